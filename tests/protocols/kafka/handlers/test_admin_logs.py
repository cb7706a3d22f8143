"""Administration of logs: deleted records, sizes, epochs and their end offsets, and refused moves of replicas."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import NOW_MS, Desk

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from trimq.protocols.kafka.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from trimq.protocols.kafka.names.codes import Code


@pytest.fixture
def desk() -> Desk:
    return Desk()


def batch(count: int = 1, time: int = NOW_MS) -> bytearray:
    return from_records([Record(b"x", b"k", timestamp_ms=time + index) for index in range(count)])


def cut(desk: Desk, offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    asked = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
    )
    (result,) = desk.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000)).topics[0].partitions
    return result.error_code, result.low_watermark


def offsets(desk: Desk, time: int, version: int = 11, **fields: Any) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=time, **fields)
    topic = ListOffsetsTopic(name="t", partitions=[partition])
    return desk.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), version).topics[0].partitions[0]


# -- deletion of records


def test_records_before_an_offset_go_and_do_not_come_back(desk: Desk) -> None:
    desk.create("t")
    desk.produce("t", batch(5))
    assert cut(desk, 2) == (Code.NONE, 2)
    assert cut(desk, 1) == (Code.NONE, 2)
    assert offsets(desk, -2).offset == 2
    assert cut(desk, -1) == (Code.NONE, 5)
    assert desk.produce("t", batch()).base_offset == 5
    desk = desk.restart()
    assert offsets(desk, -2).offset == 5
    assert offsets(desk, -1).offset == 6


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "code"),
    [
        ("t", 0, 6, Code.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, Code.OFFSET_OUT_OF_RANGE),
        ("t", 3, 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("keyed", 0, 1, Code.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, Code.INVALID_TOPIC),
    ],
)
def test_an_invalid_deletion_is_refused(desk: Desk, topic: str, partition: int, offset: int, code: Code) -> None:
    desk.create("t")
    desk.create("keyed", cleanup_policy="compact")
    desk.produce("t", batch(5))
    desk.produce("keyed", batch(5))
    assert cut(desk, offset, topic, partition) == (code, -1)


def test_a_topic_that_is_compacted_and_expires_may_lose_records(desk: Desk) -> None:
    desk.create("t", cleanup_policy="compact,delete")
    desk.produce("t", batch(5))
    assert cut(desk, 3) == (Code.NONE, 3)


# -- epochs


def epoch_end(desk: Desk, asked: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
    part = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=asked)
    topic = OffsetForLeaderTopic(topic="t", partitions=[part])
    (found,) = desk.ask(OffsetForLeaderEpochRequest(topics=[topic])).topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def test_each_epoch_ends_where_the_next_has_written(desk: Desk) -> None:
    desk.create("t")
    desk.produce("t", batch(3))
    assert epoch_end(desk, 0) == (Code.NONE, 0, 3)
    desk = desk.restart()  # epoch 1 writes nothing
    assert epoch_end(desk, 1) == (Code.NONE, 1, 3)
    desk = desk.restart()
    desk.produce("t", batch(4))
    assert epoch_end(desk, 0) == (Code.NONE, 0, 3)
    assert epoch_end(desk, 1) == (Code.NONE, 0, 3)
    assert epoch_end(desk, 2) == (Code.NONE, 2, 7)
    assert epoch_end(desk, 3) == (Code.NONE, -1, -1)
    assert epoch_end(desk, -1) == (Code.NONE, -1, -1)


def test_another_leader_epoch_is_refused(desk: Desk) -> None:
    desk.create("t")
    desk = desk.restart()
    assert epoch_end(desk, 0, 1)[0] == Code.NONE
    assert epoch_end(desk, 0, 0)[0] == Code.FENCED_LEADER_EPOCH
    assert epoch_end(desk, 0, 2)[0] == Code.UNKNOWN_LEADER_EPOCH
    assert epoch_end(desk, 0, -1, partition=4)[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    for asked, code in [(1, Code.NONE), (0, Code.FENCED_LEADER_EPOCH), (2, Code.UNKNOWN_LEADER_EPOCH)]:
        assert offsets(desk, -1, current_leader_epoch=asked).error_code == code
        fetched = desk.fetch("t", current_leader_epoch=asked).responses[0].partitions[0]
        assert fetched.error_code == code
        assert (fetched.current_leader is not None) == (code == Code.FENCED_LEADER_EPOCH)
    assert offsets(desk, -1, current_leader_epoch=-2).error_code == Code.FENCED_LEADER_EPOCH


# -- offsets


def test_an_offset_is_returned_with_the_epoch_of_its_record(desk: Desk) -> None:
    desk.create("t")
    desk.produce("t", batch(3))
    desk = desk.restart()
    desk.produce("t", batch(2, NOW_MS + 1000))
    found = {time: offsets(desk, time) for time in (-1, -2, -3, NOW_MS + 1, NOW_MS + 500, NOW_MS + 5000)}
    assert {time: (each.offset, each.leader_epoch) for time, each in found.items()} == {
        -1: (5, 1),
        -2: (0, 0),
        -3: (4, 1),
        NOW_MS + 1: (1, 0),
        NOW_MS + 500: (3, 1),
        NOW_MS + 5000: (-1, -1),
    }


@pytest.mark.parametrize(
    ("time", "version", "code"),
    [
        (-3, 6, Code.UNSUPPORTED_VERSION),
        (-3, 7, Code.NONE),
        (-4, 7, Code.UNSUPPORTED_VERSION),
        (-5, 8, Code.UNSUPPORTED_VERSION),
        (-6, 10, Code.UNSUPPORTED_VERSION),
        (-6, 11, Code.NONE),
        (-7, 11, Code.UNSUPPORTED_VERSION),
    ],
)
def test_special_times_need_a_version_that_has_them(desk: Desk, time: int, version: int, code: Code) -> None:
    desk.create("t")
    assert offsets(desk, time, version).error_code == code


def test_a_partition_that_is_asked_for_twice_is_refused_once(desk: Desk) -> None:
    desk.create("t")
    twice = [ListOffsetsPartition(partition_index=0, timestamp=time) for time in (-1, -2)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
    (result,) = desk.ask(request).topics[0].partitions
    assert result.error_code == Code.INVALID_REQUEST


# -- log directories


def test_logs_are_measured(desk: Desk) -> None:
    desk.create("t", 2)
    desk.create("u")
    sent = batch(5)
    desk.produce("t", sent)
    asked = [DescribableLogDirTopic(topic="t", partitions=[0, 1, 9]), DescribableLogDirTopic(topic="v", partitions=[0])]
    (folder,) = desk.ask(DescribeLogDirsRequest(topics=asked)).results
    assert folder.log_dir == desk.settings.data_dir
    assert folder.total_bytes >= folder.usable_bytes > 0
    (topic,) = folder.topics
    assert [(each.partition_index, each.partition_size) for each in topic.partitions] == [(0, len(sent)), (1, 0)]
    (folder,) = desk.ask(DescribeLogDirsRequest(topics=None)).results
    assert {topic.name for topic in folder.topics} == {"t", "u"}
    (folder,) = desk.ask(DescribeLogDirsRequest(topics=[])).results
    assert folder.topics == []


# -- replicas


@pytest.mark.parametrize(
    ("kind", "topic", "partition", "top", "code"),
    [
        (0, "t", 0, Code.NONE, Code.ELECTION_NOT_NEEDED),
        (1, "t", 0, Code.NONE, Code.ELECTION_NOT_NEEDED),
        (0, "t", 9, Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION),
        (0, "u", 0, Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION),
        (7, "t", 0, Code.INVALID_REQUEST, Code.INVALID_REQUEST),
    ],
)
def test_the_only_replica_leads(desk: Desk, kind: int, topic: str, partition: int, top: Code, code: Code) -> None:
    desk.create("t")
    asked = [TopicPartitions(topic=topic, partitions=[partition])]
    found = desk.ask(ElectLeadersRequest(election_type=kind, topic_partitions=asked))
    assert found.error_code == top
    assert found.replica_election_results[0].partition_result[0].error_code == code
    assert desk.ask(ElectLeadersRequest(topic_partitions=None)).replica_election_results == []


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("t", 0, [1], Code.NONE),
        ("t", 0, [88], Code.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [], Code.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [1, 1], Code.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, None, Code.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 9, [1], Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, [1], Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", 0, [1], Code.NONE),
        ("__consumer_offsets", 0, None, Code.NO_REASSIGNMENT_IN_PROGRESS),
        ("__consumer_offsets", 50, [1], Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_stays_on_its_node(
    desk: Desk, topic: str, partition: int, replicas: list[int] | None, code: Code
) -> None:
    desk.create("t")
    moved = ReassignableTopic(
        name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
    )
    (found,) = desk.ask(AlterPartitionReassignmentsRequest(topics=[moved])).responses[0].partitions
    assert found.error_code == code
    assert (found.error_message is None) == (code == Code.NONE)
    assert desk.ask(ListPartitionReassignmentsRequest(topics=None)).topics == []


def test_a_topic_that_is_listed_twice_is_answered_once(desk: Desk) -> None:
    desk.create("t", 2)
    for index in (0, 1):
        desk.produce("t", batch(3), index)
    asked = [
        ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
        for index in (0, 1, 0)
    ]
    (topic,) = desk.ask(ListOffsetsRequest(topics=asked), 11).topics
    found = [(each.partition_index, each.error_code, each.offset) for each in topic.partitions]
    assert found == [(0, Code.INVALID_REQUEST, -1), (1, Code.NONE, 3)]


def test_the_last_offset_counts_for_a_partition_whose_records_are_deleted_twice(desk: Desk) -> None:
    desk.create("t", 2)
    desk.produce("t", batch(3))
    asked = [
        DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for index, offset in ((0, 2), (1, 0), (0, 1))
    ]
    (topic,) = desk.ask(DeleteRecordsRequest(topics=asked, timeout_ms=1000)).topics
    assert [(each.partition_index, each.low_watermark) for each in topic.partitions] == [(0, 1), (1, 0)]
