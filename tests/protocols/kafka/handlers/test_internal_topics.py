"""Kafka's internal topics: listed and described once they are in use, never read or written."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from trimq.protocols.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from trimq.protocols.kafka.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from trimq.protocols.kafka.messages.transactions import DescribeProducersRequest, InitProducerIdRequest
from trimq.protocols.kafka.messages.transactions import TopicRequest as TransactionTopic
from trimq.protocols.kafka.names.codes import Code

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("t")
    return desk


def listed(desk: Desk) -> dict[str, bool]:
    return {topic.name: topic.is_internal for topic in desk.ask(MetadataRequest(topics=None)).topics}


def commit(desk: Desk) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    desk.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 9)


def test_internal_topics_are_listed_once_they_are_in_use(desk: Desk) -> None:
    assert listed(desk) == {"t": False}
    commit(desk)
    assert listed(desk) == {"t": False, OFFSETS: True}
    desk.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
    assert listed(desk) == {"t": False, OFFSETS: True, TRANSACTIONS: True}
    found = desk.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000)).topics
    assert [(topic.name, topic.is_internal, len(topic.partitions)) for topic in found] == [
        (OFFSETS, True, 50),
        (TRANSACTIONS, True, 50),
        ("t", False, 1),
    ]


def test_internal_topics_are_listed_among_the_resources_with_settings(desk: Desk) -> None:
    commit(desk)
    listed = desk.ask(ListConfigResourcesRequest(resource_types=[2])).config_resources
    assert [each.resource_name for each in listed] == ["t", OFFSETS]


def test_internal_topics_are_described_by_name_and_by_id(desk: Desk) -> None:
    (by_name,) = desk.ask(MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS)])).topics
    assert (by_name.error_code, by_name.is_internal, len(by_name.partitions)) == (Code.NONE, True, 50)
    (by_id,) = desk.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=by_name.topic_id, name=None)])).topics
    assert by_id == by_name
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=OFFSETS)], response_partition_limit=20)
    described = desk.ask(request)
    assert (len(described.topics[0].partitions), described.next_cursor.partition_index) == (20, 20)
    asked = DescribeConfigsResource(resource_type=2, resource_name=OFFSETS, configuration_keys=["cleanup.policy"])
    (found,) = desk.ask(DescribeConfigsRequest(resources=[asked])).results
    assert [(config.value, config.config_source) for config in found.configs] == [("compact", 1)]


def fetched(desk: Desk, topic: FetchTopic, version: int) -> Any:
    return desk.ask(FetchRequest(min_bytes=1, topics=[topic]), version).responses[0].partitions[0]


def test_internal_topics_are_neither_read_nor_written(desk: Desk) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    assert fetched(desk, FetchTopic(topic=OFFSETS, partitions=[partition]), 12).error_code == (
        Code.TOPIC_AUTHORIZATION_FAILED
    )
    (known,) = desk.ask(MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS)])).topics
    assert fetched(desk, FetchTopic(topic_id=known.topic_id, partitions=[partition]), 17).error_code == (
        Code.TOPIC_AUTHORIZATION_FAILED
    )
    asked = ListOffsetsTopic(name=OFFSETS, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    found = desk.ask(ListOffsetsRequest(replica_id=-1, topics=[asked])).topics[0].partitions[0]
    assert found.error_code == Code.TOPIC_AUTHORIZATION_FAILED
    epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=OFFSETS, partitions=[epoch])])
    assert desk.ask(request).topics[0].partitions[0].error_code == Code.TOPIC_AUTHORIZATION_FAILED
    batch = bytearray(from_records([Record(b"x", b"k", timestamp_ms=1)]))
    assert desk.produce(OFFSETS, batch).error_code == Code.INVALID_TOPIC


def test_internal_topics_have_no_committed_offsets(desk: Desk) -> None:
    (known,) = desk.ask(MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS)])).topics
    topics = [OffsetFetchRequestTopics(topic_id=known.topic_id, partition_indexes=[0])]
    (group,) = desk.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]), 10).groups
    (partition,) = group.topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (Code.NONE, -1)


def test_internal_topics_have_no_producers(desk: Desk) -> None:
    asked = TransactionTopic(name=OFFSETS, partition_indexes=[0, 50])
    (topic,) = desk.ask(DescribeProducersRequest(topics=[asked])).topics
    assert [each.error_code for each in topic.partitions] == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert topic.partitions[0].active_producers == []
