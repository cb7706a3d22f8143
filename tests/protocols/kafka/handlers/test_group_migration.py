"""Groups that change between the classic protocol and KIP-848 while they have members, request by request."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from protocols.kafka.desk import Desk

from trimq.formats.kafka_subscription import read_assignment, write_assignment
from trimq.protocols.kafka.messages.classic_groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
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
)
from trimq.protocols.kafka.names.codes import Code

TOPIC = "orders"


def subscription(*owned: int) -> bytes:
    """Version 1, with the partitions that the member has."""
    name = struct.pack(">h6s", 6, TOPIC.encode())
    return (
        struct.pack(">hi", 1, 1)
        + name
        + struct.pack(">ii", -1, 1)
        + name
        + struct.pack(f">i{len(owned)}i", len(owned), *owned)
    )


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create(TOPIC, 4)
    return desk


def join(desk: Desk, member: str = "", *owned: int, version: int = 9, **changes: Any) -> Any:
    protocols = [JoinGroupRequestProtocol(name="cooperative", metadata=subscription(*owned))]
    fields = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000, "member_id": member}
    return desk.ask(
        JoinGroupRequest(**{**fields, "protocol_type": "consumer", "protocols": protocols, **changes}), version
    )


def sync(desk: Desk, member: str, generation: int, shares: dict[str, list[int]] | None = None) -> tuple[int, Any]:
    """Error code, and the partitions that the member has."""
    given = [
        SyncGroupRequestAssignment(member_id=name, assignment=write_assignment(1, {TOPIC: numbers}))
        for name, numbers in (shares or {}).items()
    ]
    found = desk.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="cooperative",
            assignments=given,
        )
    )
    return found.error_code, read_assignment(found.assignment).get(TOPIC, []) if found.assignment else None


def heartbeat(desk: Desk, member: str, generation: int) -> int:
    return desk.ask(HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)).error_code


def leave(desk: Desk, member: str) -> int:
    found = desk.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)]))
    return found.error_code or found.members[0].error_code


def beat(desk: Desk, member: str, epoch: int, *owned: int, **changes: Any) -> tuple[int, int, list[int] | None]:
    """Error code, epoch and assignment. Epoch 0 joins."""
    fields: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch, "topic_partitions": []}
    if epoch == 0:
        fields |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [TOPIC]}
    elif owned:
        id = desk.core.broker.topics.get(desk.caller, TOPIC).id.bytes
        fields["topic_partitions"] = [ConsumerGroupHeartbeatTopicPartitions(topic_id=id, partitions=list(owned))]
    found = desk.ask(ConsumerGroupHeartbeatRequest(**{**fields, **changes}))
    share = None
    if found.assignment is not None:
        share = [index for topic in found.assignment.topic_partitions for index in topic.partitions]
    return found.error_code, found.member_epoch, share


def commit(desk: Desk, member: str, generation: int, version: int = 9) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
    )
    return desk.ask(request, version).topics[0].partitions[0].error_code


def kind(desk: Desk) -> str:
    return desk.ask(ListGroupsRequest()).groups[0].group_type


def classic_group(desk: Desk) -> str:
    """A stable classic group of one member, which has all partitions."""
    joined = join(desk, version=3)
    assert sync(desk, joined.member_id, joined.generation_id, {joined.member_id: [0, 1, 2, 3]}) == (0, [0, 1, 2, 3])
    return joined.member_id


def mixed_group(desk: Desk) -> tuple[str, int]:
    """Both kinds of members, with two partitions each. The classic member and its generation."""
    old = classic_group(desk)
    assert beat(desk, "new", 0) == (Code.NONE, 2, [])
    assert heartbeat(desk, old, 1) == Code.REBALANCE_IN_PROGRESS
    joined = join(desk, old, 0, 1, 2, 3)
    assert (joined.error_code, joined.generation_id, joined.leader) == (Code.NONE, 1, "")
    error, kept = sync(desk, old, 1)
    assert (error, len(kept)) == (Code.NONE, 2)
    assert heartbeat(desk, old, 1) == Code.REBALANCE_IN_PROGRESS  # it has yet to show that it gave two up
    assert beat(desk, "new", 2)[2] is None
    assert join(desk, old, *kept).generation_id == 2
    assert sync(desk, old, 2) == (Code.NONE, kept)
    assert heartbeat(desk, old, 2) == Code.NONE
    _, epoch, share = beat(desk, "new", 2)
    assert (epoch, sorted([*kept, *share])) == (2, [0, 1, 2, 3])
    return old, 2


def test_a_member_of_the_newer_protocol_joins_a_classic_group(desk: Desk) -> None:
    old, generation = mixed_group(desk)
    assert kind(desk) == "consumer"
    assert commit(desk, old, generation, version=8) == Code.NONE
    assert commit(desk, old, generation - 1) == Code.NONE  # it has had the partition since then
    assert commit(desk, old, 0) == Code.ILLEGAL_GENERATION
    assert commit(desk, old, generation + 1) == Code.ILLEGAL_GENERATION
    assert sync(desk, old, generation - 1)[0] == Code.ILLEGAL_GENERATION
    assert heartbeat(desk, old, generation - 1) == Code.ILLEGAL_GENERATION
    (found,) = desk.ask(ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert {member.member_id: member.member_type for member in found.members} == {old: 0, "new": 1}
    assert desk.ask(DescribeGroupsRequest(groups=["g"])).groups[0].error_code == Code.GROUP_ID_NOT_FOUND


def test_a_member_that_waits_for_its_first_join_gets_its_id_when_the_group_changes(desk: Desk) -> None:
    classic_group(desk)
    protocols = [JoinGroupRequestProtocol(name="cooperative", metadata=subscription())]
    fields = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000, "member_id": ""}
    request = JoinGroupRequest(**fields, protocol_type="consumer", protocols=protocols)
    waiting = desk.connect().begin(request, 3)
    assert waiting is not None
    assert beat(desk, "new", 0)[0] == Code.NONE
    answer = desk.read_answer(waiting, request, 3)
    assert answer.error_code == Code.REBALANCE_IN_PROGRESS
    assert leave(desk, answer.member_id) == Code.NONE


def test_members_that_wait_in_a_classic_group_are_asked_to_rejoin(desk: Desk) -> None:
    old = classic_group(desk)
    generation = 1
    beat(desk, "new", 0)
    assert sync(desk, old, generation)[0] == Code.REBALANCE_IN_PROGRESS


def test_the_group_is_classic_again_when_the_last_newer_member_leaves(desk: Desk) -> None:
    old, generation = mixed_group(desk)
    assert beat(desk, "new", -1)[0] == Code.NONE
    assert kind(desk) == "classic"
    assert heartbeat(desk, old, generation) == Code.REBALANCE_IN_PROGRESS
    joined = join(desk, old, 0, 1)
    assert (joined.error_code, joined.leader) == (Code.NONE, old)
    assert sync(desk, old, joined.generation_id, {old: [0, 1, 2, 3]}) == (Code.NONE, [0, 1, 2, 3])
    assert desk.ask(DescribeGroupsRequest(groups=["g"])).groups[0].group_state == "Stable"


def test_an_administrator_removes_a_member_of_the_newer_protocol(desk: Desk) -> None:
    mixed_group(desk)
    assert leave(desk, "new") == Code.NONE
    assert kind(desk) == "classic"


def test_the_group_is_classic_again_when_the_last_newer_member_is_silent(desk: Desk) -> None:
    old, generation = mixed_group(desk)
    for _ in range(10):
        desk.let_pass(5_000)
        assert heartbeat(desk, old, generation) in (Code.NONE, Code.REBALANCE_IN_PROGRESS)
    assert kind(desk) == "classic"


def test_the_classic_member_leaves_and_the_newer_one_has_everything(desk: Desk) -> None:
    old, _ = mixed_group(desk)
    assert leave(desk, "nobody") == Code.UNKNOWN_MEMBER_ID
    assert leave(desk, old) == Code.NONE
    assert kind(desk) == "consumer"
    assert beat(desk, "new", 2)[1:] == (3, [0, 1, 2, 3])


def test_a_silent_classic_member_is_removed(desk: Desk) -> None:
    old, generation = mixed_group(desk)
    desk.let_pass(11_000)
    assert heartbeat(desk, old, generation) == Code.UNKNOWN_MEMBER_ID
    assert beat(desk, "new", 2)[1:] == (3, [0, 1, 2, 3])


def test_a_member_that_does_not_rejoin_in_time_is_removed(desk: Desk) -> None:
    old = classic_group(desk)
    beat(desk, "new", 0)
    for _ in range(6):
        assert heartbeat(desk, old, 1) == Code.REBALANCE_IN_PROGRESS
        beat(desk, "new", 2)
        desk.let_pass(5_000)
    assert heartbeat(desk, old, 1) == Code.UNKNOWN_MEMBER_ID


def test_a_classic_member_joins_a_group_of_the_newer_protocol(desk: Desk) -> None:
    assert beat(desk, "new", 0)[2] == [0, 1, 2, 3]
    named = join(desk)
    assert named.error_code == Code.MEMBER_ID_REQUIRED
    joined = join(desk, named.member_id)
    assert (joined.error_code, joined.leader, joined.members) == (Code.NONE, "", [])
    assert sync(desk, joined.member_id, joined.generation_id) == (Code.NONE, [])
    assert heartbeat(desk, joined.member_id, joined.generation_id) == Code.NONE  # it waits for the other
    _, _, kept = beat(desk, "new", 2, 0, 1, 2, 3)
    beat(desk, "new", 2, *kept)
    assert heartbeat(desk, joined.member_id, joined.generation_id) == Code.REBALANCE_IN_PROGRESS
    again = join(desk, joined.member_id)
    _, share = sync(desk, again.member_id, again.generation_id)
    assert sorted([*kept, *share]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": []},
        {"protocols": [JoinGroupRequestProtocol(name="other", metadata=subscription())]},
        {"protocols": [JoinGroupRequestProtocol(name="cooperative", metadata=b"no subscription")]},
    ],
)
def test_only_consumers_with_a_common_protocol_join(desk: Desk, changes: dict[str, Any]) -> None:
    mixed_group(desk)
    assert join(desk, version=3, **changes).error_code == Code.INCONSISTENT_GROUP_PROTOCOL


def test_a_refused_join_repeats_its_member_id_only_in_a_classic_group(desk: Desk) -> None:
    classic_group(desk)
    refused = join(desk, "unknown", group_instance_id="static")
    assert (refused.error_code, refused.member_id) == (Code.UNKNOWN_MEMBER_ID, "unknown")
    beat(desk, "new", 0)
    refused = join(desk, "unknown", group_instance_id="static")
    assert (refused.error_code, refused.member_id) == (Code.UNKNOWN_MEMBER_ID, "")


def test_a_group_of_other_clients_is_not_converted(desk: Desk) -> None:
    join(desk, version=3, protocol_type="connect")
    assert beat(desk, "new", 0)[0] == Code.GROUP_ID_NOT_FOUND


def test_a_refused_heartbeat_converts_nothing(desk: Desk) -> None:
    old = classic_group(desk)
    assert beat(desk, "new", 0, server_assignor="no-such")[0] == Code.UNSUPPORTED_ASSIGNOR
    assert kind(desk) == "classic"
    assert heartbeat(desk, old, 1) == Code.NONE


def test_a_static_member_changes_its_protocol(desk: Desk) -> None:
    joined = join(desk, version=5, group_instance_id="i")
    sync_all = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="cooperative",
        assignments=[
            SyncGroupRequestAssignment(
                member_id=joined.member_id, assignment=write_assignment(1, {TOPIC: [0, 1, 2, 3]})
            )
        ],
    )
    assert desk.ask(sync_all).error_code == Code.NONE
    assert beat(desk, "new", 0, instance_id="i") == (Code.NONE, 1, [0, 1, 2, 3])
    assert kind(desk) == "consumer"
    assert join(desk, version=5, group_instance_id="i").error_code == Code.NONE
    assert kind(desk) == "classic"


def test_a_mixed_group_survives_a_restart(desk: Desk) -> None:
    old, generation = mixed_group(desk)
    desk = desk.restart()
    assert heartbeat(desk, old, generation) == Code.NONE
    assert sync(desk, old, generation)[0] == Code.NONE
    assert beat(desk, "new", 2)[0] == Code.NONE
    beat(desk, "new", -1)
    assert kind(desk.restart()) == "classic"
