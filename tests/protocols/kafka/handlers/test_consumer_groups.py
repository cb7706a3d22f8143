"""Groups with assignment by the broker (KIP-848), request by request."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk

from trimq.protocols.kafka.messages.classic_groups import DescribeGroupsRequest, ListGroupsRequest
from trimq.protocols.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from trimq.protocols.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from trimq.protocols.kafka.names.codes import Code


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("orders", 3)
    return desk


def join(desk: Desk, member: str = "m", version: int = 1, **changes: Any) -> Any:
    fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    return beat(desk, member, 0, version, **{**fields, **changes})


def beat(desk: Desk, member: str, epoch: int, version: int = 1, **changes: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": member, "member_epoch": epoch, **changes})
    return desk.ask(request, version)


def assigned(response: Any) -> list[int] | None:
    if response.assignment is None:
        return None
    return [index for topic in response.assignment.topic_partitions for index in topic.partitions]


def owning(desk: Desk, *indexes: int) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    id = desk.core.broker.topics.get(desk.caller, "orders").id.bytes
    return [ConsumerGroupHeartbeatTopicPartitions(topic_id=id, partitions=list(indexes))]


def test_a_member_joins_and_gets_its_assignment(desk: Desk) -> None:
    response = join(desk)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert assigned(response) == [0, 1, 2]
    assert assigned(beat(desk, "m", 2)) is None


def test_an_older_client_gets_a_name(desk: Desk) -> None:
    response = join(desk, "", 0)
    assert (response.error_code, len(response.member_id)) == (0, 22)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, Code.INVALID_REQUEST),
        ({"member_id": ""}, Code.INVALID_REQUEST),
        ({"instance_id": ""}, Code.INVALID_REQUEST),
        ({"rack_id": ""}, Code.INVALID_REQUEST),
        ({"member_epoch": -3}, Code.INVALID_REQUEST),
        ({"member_epoch": -2}, Code.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, Code.INVALID_REQUEST),
        ({"topic_partitions": None}, Code.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Code.INVALID_REQUEST),
        ({"server_assignor": "unknown"}, Code.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, Code.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 5}, Code.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, Code.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(desk: Desk, changes: dict[str, Any], code: Code) -> None:
    response = join(desk, **changes)
    assert (response.error_code, response.member_epoch, response.assignment) == (code, 0, None)
    assert response.error_message
    assert desk.ask(ListGroupsRequest()).groups == []


def test_partitions_move_from_member_to_member(desk: Desk) -> None:
    join(desk, "a")
    assert assigned(join(desk, "b")) == []
    response = beat(desk, "a", 2)
    assert (assigned(response), response.member_epoch) == ([0, 1], 2)
    response = beat(desk, "a", 2, topic_partitions=owning(desk, 0, 1))
    assert (assigned(response), response.member_epoch) == (None, 3)
    assert assigned(beat(desk, "b", 3)) == [2]
    assert beat(desk, "b", -1).member_epoch == -1
    assert assigned(beat(desk, "a", 3)) == [0, 1, 2]
    assert beat(desk, "b", 3).error_code == Code.UNKNOWN_MEMBER_ID


def test_an_unwritten_change_is_not_returned(desk: Desk) -> None:
    desk.fail_writes()
    response = join(desk)
    assert (response.error_code, response.assignment) == (Code.COORDINATOR_NOT_AVAILABLE, None)


def test_the_group_is_known_after_a_restart(desk: Desk) -> None:
    join(desk)
    again = desk.restart()
    response = beat(again, "m", 2)
    assert (response.error_code, response.member_epoch, assigned(response)) == (0, 2, None)


def test_the_group_is_described(desk: Desk) -> None:
    join(desk, instance_id="i", rack_id="r", subscribed_topic_regex="o.*", server_assignor="range")
    request = ConsumerGroupDescribeRequest(group_ids=["g", "unknown", ""], include_authorized_operations=True)
    found, *others = desk.ask(request).groups
    assert [each.error_code for each in others] == [Code.GROUP_ID_NOT_FOUND, Code.INVALID_GROUP_ID]
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert (found.assignor_name, found.authorized_operations) == ("range", 3400)
    (member,) = found.members
    assert (member.instance_id, member.rack_id, member.client_host) == ("i", "r", "/10.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["orders"], "o.*")
    for assignment in (member.assignment, member.target_assignment):
        assert [(each.topic_name, each.partitions) for each in assignment.topic_partitions] == [("orders", [0, 1, 2])]
    assert member.member_type == 1
    (listed,) = desk.ask(ListGroupsRequest()).groups
    assert (listed.protocol_type, listed.group_type, listed.group_state) == ("consumer", "consumer", "Stable")
    (older,) = desk.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert older.error_code == Code.GROUP_ID_NOT_FOUND


def commit(desk: Desk, member: str, epoch: int, partition: int = 0, version: int = 9) -> int:
    id = desk.core.broker.topics.get(desk.caller, "orders").id.bytes
    asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=4, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="orders", topic_id=id, partitions=[asked])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member, topics=[topic])
    return desk.ask(request, version).topics[0].partitions[0].error_code


def test_offsets_are_committed_and_fetched_with_the_epoch(desk: Desk) -> None:
    join(desk)
    assert commit(desk, "m", 2) == 0
    assert commit(desk, "m", 3) == Code.STALE_MEMBER_EPOCH
    assert commit(desk, "m", 2, version=8) == Code.UNSUPPORTED_VERSION
    assert commit(desk, "nobody", 2) == Code.UNKNOWN_MEMBER_ID

    def fetch(member: str | None, epoch: int) -> tuple[int, int]:
        asked = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=None)
        (group,) = desk.ask(OffsetFetchRequest(groups=[asked]), 9).groups
        return group.error_code, sum(len(topic.partitions) for topic in group.topics)

    assert fetch("m", 2) == (0, 1)
    assert fetch(None, -1) == (0, 1)
    assert fetch("m", 1) == (Code.STALE_MEMBER_EPOCH, 0)
    assert fetch("nobody", 2) == (Code.UNKNOWN_MEMBER_ID, 0)


def set_config(desk: Desk, name: str, value: str | None, operation: int = 0) -> int:
    config = IncrementalAlterConfigsAlterableConfig(name=name, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
    return desk.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code


def configs(desk: Desk) -> dict[str, tuple[str, int]]:
    asked = DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=None)
    (found,) = desk.ask(DescribeConfigsRequest(resources=[asked])).results
    return {each.name: (each.value, each.config_source) for each in found.configs}


def test_a_group_has_settings(desk: Desk) -> None:
    heartbeat, session = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
    assert configs(desk) == {heartbeat: ("5000", 5), session: ("45000", 5)}
    assert set_config(desk, heartbeat, "6000") == 0
    assert configs(desk) == {heartbeat: ("6000", 8), session: ("45000", 5)}
    assert join(desk).heartbeat_interval_ms == 6_000
    listed = desk.ask(ListConfigResourcesRequest(resource_types=[32])).config_resources
    assert [each.resource_name for each in listed] == ["g"]
    assert set_config(desk, heartbeat, None, operation=1) == 0
    assert configs(desk)[heartbeat] == ("5000", 5)


def test_only_another_subscription_begins_a_new_epoch(desk: Desk) -> None:
    first = join(desk).member_epoch
    assert join(desk, server_assignor="range").member_epoch == first
    assert join(desk, "n", subscribed_topic_names=[]).member_epoch == first
    assert join(desk, "n").member_epoch == first + 1


def commit_topics(desk: Desk, *topics: tuple[str, int, str], **fields: Any) -> list[list[tuple[int, int]]]:
    """Index and error code of each partition, by topic."""
    asked = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequestPartition(partition_index=index, committed_metadata=metadata)],
        )
        for name, index, metadata in topics
    ]
    found = desk.ask(OffsetCommitRequest(group_id="g", topics=asked, **fields), 9).topics
    return [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in found]


def test_topics_of_a_commit_are_merged_only_beside_a_partition_that_does_not_exist(desk: Desk) -> None:
    assert commit_topics(desk, ("orders", 0, ""), ("orders", 1, "")) == [[(0, 0)], [(1, 0)]]
    assert commit_topics(desk, ("orders", 0, ""), ("orders", 7, "")) == [[(0, 0), (7, Code.UNKNOWN_TOPIC_OR_PARTITION)]]


def test_a_commit_of_another_than_a_member_is_refused_before_its_metadata_is_measured(desk: Desk) -> None:
    join(desk)
    assert commit_topics(desk, ("orders", 0, "x" * 5000)) == [[(0, Code.UNKNOWN_MEMBER_ID)]]
    assert commit_topics(desk, ("none", 0, "x" * 5000)) == [[(0, Code.UNKNOWN_TOPIC_OR_PARTITION)]]


@pytest.mark.parametrize(
    ("name", "value", "operation", "code"),
    [
        ("consumer.session.timeout.ms", "1", 0, Code.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "60001", 0, Code.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "x", 0, Code.INVALID_CONFIG),
        ("share.session.timeout.ms", "45000", 0, Code.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "45000", 2, Code.INVALID_CONFIG),
        ("consumer.session.timeout.ms", None, 0, Code.INVALID_REQUEST),
    ],
)
def test_a_setting_that_a_group_cannot_have_is_refused(
    desk: Desk, name: str, value: str | None, operation: int, code: Code
) -> None:
    assert set_config(desk, name, value, operation) == code


def test_a_static_member_that_has_not_left_cannot_join_again(desk: Desk) -> None:
    assert join(desk, instance_id="i").error_code == Code.NONE
    assert join(desk, instance_id="i").error_code == Code.UNRELEASED_INSTANCE_ID
    assert beat(desk, "m", -2, instance_id="i").error_code == Code.NONE
    assert join(desk, instance_id="i").error_code == Code.NONE
