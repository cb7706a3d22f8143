"""Administration of topics: created, deleted, extended, described."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from protocols.kafka.desk import Desk

from trimq.model import Layout, TopicName
from trimq.protocols.kafka.messages.metadata import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from trimq.protocols.kafka.messages.schema import NO_ID
from trimq.protocols.kafka.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from trimq.protocols.kafka.names.codes import Code


@pytest.fixture
def desk() -> Desk:
    return Desk()


def names(desk: Desk) -> set[str]:
    return {topic.name for topic in desk.ask(MetadataRequest(topics=None)).topics}


def create(desk: Desk, *topics: CreatableTopic, version: int = 7, **fields: Any) -> list[Any]:
    found: list[Any] = desk.ask(CreateTopicsRequest(topics=list(topics), **fields), version).topics
    return found


def topic(name: str = "t", partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def assigned(*replicas: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=index, broker_ids=nodes) for index, nodes in enumerate(replicas)]


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_in_every_version(desk: Desk, version: int) -> None:
    (made,) = create(desk, topic("t", 3), version=version)
    assert made.error_code == Code.NONE
    assert made.error_message is None
    assert len(desk.core.broker.topics.get(desk.caller, "t").streams) == 3
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert "retention.ms" in {config.name for config in made.configs}
    if version >= 7:
        assert UUID(bytes=made.topic_id) == desk.core.broker.topics.get(desk.caller, "t").id


REFUSED = [
    (topic("a b"), Code.INVALID_TOPIC),
    (topic(""), Code.INVALID_TOPIC),
    (topic("x" * 250), Code.INVALID_TOPIC),
    (topic(".."), Code.INVALID_TOPIC),
    (topic("there"), Code.TOPIC_ALREADY_EXISTS),
    (topic("there", 0, 5), Code.TOPIC_ALREADY_EXISTS),
    (topic("__consumer_offsets"), Code.TOPIC_ALREADY_EXISTS),
    (topic("dotted_name"), Code.INVALID_TOPIC),
    (topic("t", 0), Code.INVALID_PARTITIONS),
    (topic("t", -2), Code.INVALID_PARTITIONS),
    (topic("t", 1, 2), Code.INVALID_REPLICATION_FACTOR),
    (topic("t", 1, 0), Code.INVALID_REPLICATION_FACTOR),
    (topic("t", configs=[CreatableTopicConfig(name="no.such", value="1")]), Code.INVALID_CONFIG),
    (topic("t", configs=[CreatableTopicConfig(name="retention.ms", value=None)]), Code.INVALID_CONFIG),
    (topic("t", 1, 1, assignments=assigned([1])), Code.INVALID_REQUEST),
    (topic("t", -1, -1, assignments=assigned([77])), Code.INVALID_REPLICA_ASSIGNMENT),
    (topic("t", -1, -1, assignments=assigned([1, 1])), Code.INVALID_REPLICA_ASSIGNMENT),
    (topic("t", -1, -1, assignments=assigned([])), Code.INVALID_REPLICA_ASSIGNMENT),
    (topic("t", -1, -1, assignments=assigned([1], [1])[1:]), Code.INVALID_REPLICA_ASSIGNMENT),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("asked", "code"), REFUSED)
def test_an_invalid_topic_is_refused_with_its_own_reason(
    asked: CreatableTopic, code: Code, validate_only: bool
) -> None:
    desk = Desk()
    desk.create("there")
    desk.create("dotted.name")
    good = topic("good")
    results = {result.name: result for result in create(desk, asked, good, validate_only=validate_only)}
    assert results[asked.name].error_code == code
    assert results[asked.name].error_message
    assert results[asked.name].configs == []
    assert results["good"].error_code == Code.NONE
    assert names(desk) == {"there", "dotted.name"} | (set() if validate_only else {"good"})


def test_the_broker_chooses_omitted_values() -> None:
    desk = Desk(kafka={"num_partitions": 4})
    (made,) = create(desk, topic("t", -1, -1))
    assert (made.num_partitions, made.replication_factor) == (4, 1)
    (made,) = create(desk, topic("u", -1, -1, assignments=assigned([1], [1])))
    assert made.num_partitions == 2


def test_a_repeated_name_is_refused_once(desk: Desk) -> None:
    (result,) = create(desk, topic("t"), topic("t"))
    assert result.error_code == Code.INVALID_REQUEST
    assert names(desk) == set()


def test_a_request_for_very_many_partitions_is_refused(desk: Desk) -> None:
    results = create(desk, topic("t", 9_999), topic("u"), topic("v"), validate_only=True)
    assert [result.error_code for result in results] == [Code.POLICY_VIOLATION] * 3
    small = Desk(limits={"streams_per_topic": 5})
    (result,) = create(small, topic("t", 6))
    assert result.error_code == Code.INVALID_PARTITIONS


def test_with_a_timeout_of_zero_nothing_is_created(desk: Desk) -> None:
    (result,) = create(desk, topic("t"), timeout_ms=0)
    assert result.error_code == Code.REQUEST_TIMED_OUT
    assert names(desk) == set()


def test_a_topic_that_could_not_be_written_is_refused_and_undone(desk: Desk) -> None:
    desk.fail_writes()
    (result,) = create(desk, topic("t"))
    assert result.error_code == Code.KAFKA_STORAGE_ERROR
    assert result.error_message
    assert names(desk) == set()


# -- deletion


def delete(desk: Desk, *states: DeleteTopicState) -> list[Any]:
    found: list[Any] = desk.ask(DeleteTopicsRequest(topics=list(states), timeout_ms=1000)).responses
    return found


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_in_every_version(desk: Desk, version: int) -> None:
    desk.create("t")
    request = DeleteTopicsRequest(
        topic_names=["t", "u"], topics=[DeleteTopicState(name="t"), DeleteTopicState(name="u")]
    )
    results = {result.name: result.error_code for result in desk.ask(request, version).responses}
    assert results == {"t": Code.NONE, "u": Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert names(desk) == set()


def test_a_topic_is_deleted_by_its_id_once(desk: Desk) -> None:
    id = desk.create("t").topic_id
    (result,) = delete(desk, DeleteTopicState(name=None, topic_id=id))
    assert (result.name, result.error_code) == ("t", Code.NONE)
    (result,) = delete(desk, DeleteTopicState(name=None, topic_id=id))
    assert (result.name, result.error_code) == (None, Code.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([DeleteTopicState(name="t"), DeleteTopicState(name="t")], Code.INVALID_REQUEST),
        ([DeleteTopicState(name=None)], Code.INVALID_REQUEST),
        ([DeleteTopicState(name="t", topic_id=b"x" * 16)], Code.INVALID_REQUEST),
        ([DeleteTopicState(name="__consumer_offsets")], Code.INVALID_TOPIC),
        ([DeleteTopicState(name="")], Code.UNKNOWN_TOPIC_OR_PARTITION),
        ([DeleteTopicState(name="a b")], Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_invalid_deletion_is_refused_once(desk: Desk, states: list[DeleteTopicState], code: Code) -> None:
    desk.create("t")
    (result,) = delete(desk, *states)
    assert result.error_code == code
    assert names(desk) == {"t"}


def test_a_topic_that_is_named_both_ways_is_not_deleted(desk: Desk) -> None:
    id = desk.create("t").topic_id
    states = [DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=id)]
    (result,) = desk.ask(DeleteTopicsRequest(topics=states)).responses
    assert (result.name, result.topic_id, result.error_code) == ("t", id, Code.INVALID_REQUEST)
    assert desk.core.broker.topics.get(desk.caller, "t")


def test_a_recreated_topic_has_another_id_and_is_empty(desk: Desk) -> None:
    first = desk.create("t").topic_id
    delete(desk, DeleteTopicState(name="t"))
    assert desk.create("t").topic_id not in (first, NO_ID)


# -- growth


def grow(desk: Desk, name: str, count: int, nodes: list[list[int]] | None = None, **fields: Any) -> Any:
    assignments = None if nodes is None else [CreatePartitionsAssignment(broker_ids=each) for each in nodes]
    asked = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return desk.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=1000, **fields)).results[0]


@pytest.mark.parametrize(
    ("name", "count", "nodes", "code"),
    [
        ("t", 3, None, Code.NONE),
        ("t", 3, [[1]], Code.NONE),
        ("t", 4, [[1]], Code.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[9]], Code.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 1]], Code.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, None, Code.INVALID_PARTITIONS),
        ("t", 1, None, Code.INVALID_PARTITIONS),
        ("t", 0, None, Code.INVALID_PARTITIONS),
        ("t", 10_001, None, Code.INVALID_PARTITIONS),
        ("u", 3, None, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("", 3, None, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_topic_grows_by_whole_partitions(
    desk: Desk, name: str, count: int, nodes: list[list[int]] | None, code: Code
) -> None:
    desk.create("t", 2)
    assert grow(desk, name, count, nodes, validate_only=True).error_code == code
    assert len(desk.core.broker.topics.get(desk.caller, "t").streams) == 2
    assert grow(desk, name, count, nodes).error_code == code
    assert len(desk.core.broker.topics.get(desk.caller, "t").streams) == (count if code == Code.NONE else 2)


def test_a_topic_extended_twice_in_a_request_is_refused_once(desk: Desk) -> None:
    desk.create("t")
    asked = [CreatePartitionsTopic(name="t", count=count) for count in (2, 3)]
    (result,) = desk.ask(CreatePartitionsRequest(topics=asked, timeout_ms=1000)).results
    assert result.error_code == Code.INVALID_REQUEST


# -- metadata


def metadata(desk: Desk, *asked: MetadataRequestTopic, version: int = 12, **fields: Any) -> list[Any]:
    found: list[Any] = desk.ask(MetadataRequest(topics=list(asked), **fields), version).topics
    return found


def by_name(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name)


def test_a_requested_topic_is_created_where_that_is_allowed(desk: Desk) -> None:
    (first,) = metadata(desk, by_name("t"), allow_auto_topic_creation=False)
    assert (first.error_code, names(desk)) == (Code.UNKNOWN_TOPIC_OR_PARTITION, set())
    (first,) = metadata(desk, by_name("t"))
    assert first.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (second,) = metadata(desk, by_name("t"))
    assert (second.error_code, len(second.partitions)) == (Code.NONE, 1)
    off = Desk(kafka={"auto_create_topics": False})
    metadata(off, by_name("t"))
    assert names(off) == set()


def test_a_name_colliding_with_another_is_not_created_automatically(desk: Desk) -> None:
    desk.create("a.b")
    (result,) = metadata(desk, by_name("a_b"))
    assert result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert names(desk) == {"a.b"}


@pytest.mark.parametrize("may_create", [True, False])
@pytest.mark.parametrize("name", ["", "a b", ".", "x" * 250, "ü"])
def test_an_invalid_topic_name_is_refused(desk: Desk, name: str, may_create: bool) -> None:
    (result,) = metadata(desk, by_name(name), allow_auto_topic_creation=may_create)
    assert result.error_code == Code.INVALID_TOPIC


def test_ids_before_version_12_refuse_the_whole_request(desk: Desk) -> None:
    desk.create("t")
    asked = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u", topic_id=b"\x07" * 16)]
    found = desk.ask(MetadataRequest(topics=asked), 11)
    assert (found.brokers, found.controller_id) == ([], -1)
    assert [(topic.name, topic.error_code) for topic in found.topics] == [("t", 42), ("u", 42)]


def test_ids_are_supported_since_version_12_and_names_beside_them_are_ignored(desk: Desk) -> None:
    id = desk.create("t").topic_id
    asked = (MetadataRequestTopic(name=None, topic_id=id), MetadataRequestTopic(name=None, topic_id=b"x" * 16))
    found = metadata(desk, *asked, by_name("t"))
    assert [(topic.name, topic.error_code) for topic in found] == [("t", Code.NONE), (None, Code.UNKNOWN_TOPIC_ID)]
    (refused,) = metadata(desk, MetadataRequestTopic(name=None, topic_id=id), version=10)
    assert refused.error_code == Code.INVALID_REQUEST


def test_topics_of_other_layouts_are_not_listed(desk: Desk) -> None:
    desk.core.broker.topics.create(desk.caller, "queue", Layout.QUEUE_LOG, 1, {})
    desk.runner.settle()
    assert names(desk) == set()
    (result,) = metadata(desk, by_name("queue"))
    assert result.error_code == Code.INVALID_TOPIC


def test_authorized_operations_are_included_on_request(desk: Desk) -> None:
    desk.create("t")
    request = MetadataRequest(
        topics=[by_name("t")], include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    found = desk.ask(request, 8)
    assert (found.cluster_authorized_operations, found.topics[0].topic_authorized_operations) == (8096, 3576)
    assert (
        desk.ask(DescribeClusterRequest(include_cluster_authorized_operations=True)).cluster_authorized_operations
        == 8096
    )


def test_partitions_are_described_page_by_page(desk: Desk) -> None:
    desk.create("a", 3)
    desk.create("b", 2)
    seen = []
    cursor = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2, cursor=cursor)
        found = desk.ask(request)
        seen += [(topic.name, part.partition_index) for topic in found.topics for part in topic.partitions]
        cursor = found.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_an_unknown_topic_is_described_as_such(desk: Desk) -> None:
    asked = [TopicRequest(name="u"), TopicRequest(name="a b")]
    found = desk.ask(DescribeTopicPartitionsRequest(topics=asked)).topics
    assert {topic.name: topic.error_code for topic in found} == {
        "u": Code.UNKNOWN_TOPIC_OR_PARTITION,
        "a b": Code.INVALID_TOPIC,
    }
    assert {topic.topic_authorized_operations for topic in found} == {3576}


@pytest.mark.parametrize(("name", "partition"), [("u", -1), ("other", 0)])
def test_a_cursor_that_no_page_begins_with_refuses_each_topic(desk: Desk, name: str, partition: int) -> None:
    asked = [TopicRequest(name="u"), TopicRequest(name="v")]
    request = DescribeTopicPartitionsRequest(topics=asked, cursor=Cursor(topic_name=name, partition_index=partition))
    found = desk.ask(request).topics
    assert [(topic.name, topic.error_code) for topic in found] == [(name, Code.INVALID_REQUEST) for name in ("u", "v")]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(1, Code.NONE), (2, Code.MISMATCHED_ENDPOINT_TYPE), (9, Code.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_described(desk: Desk, kind: int, code: Code) -> None:
    found = desk.ask(DescribeClusterRequest(endpoint_type=kind))
    assert found.endpoint_type == 1
    assert found.error_code == code
    assert [node.port for node in found.brokers] == ([9092] if code == Code.NONE else [])


# -- many partitions at once


def test_a_topic_of_many_partitions_is_answered_when_all_of_them_are_durable(desk: Desk) -> None:
    results = create(
        desk, CreatableTopic(name="many", num_partitions=300, replication_factor=1), CreatableTopic(name="bad name")
    )
    assert [(result.name, result.error_code, result.num_partitions) for result in results] == [
        ("many", 0, 300),
        ("bad name", Code.INVALID_TOPIC, -1),
    ]
    assert len(desk.core.topics.get(TopicName("", "many")).streams) == 300
    (again,) = create(desk, CreatableTopic(name="many", num_partitions=300, replication_factor=1))
    assert again.error_code == Code.TOPIC_ALREADY_EXISTS


def test_many_topics_of_one_request_are_created_together(desk: Desk) -> None:
    asked = [CreatableTopic(name=f"t{number}", num_partitions=3, replication_factor=1) for number in range(40)]
    assert {result.error_code for result in create(desk, *asked)} == {0}
    assert sum(len(topic.streams) for topic in desk.core.topics) == 120


def test_many_partitions_are_added_to_a_topic(desk: Desk) -> None:
    desk.create("t")
    assert grow(desk, "t", 200).error_code == 0
    assert len(desk.core.topics.get(TopicName("", "t")).streams) == 200
