"""Classic groups and committed offsets, request by request: waiting, versions, durability and permissions. The golden
probe compares whole sequences of requests with Kafka's answers."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk
from protocols.kafka.frames import request_frame

from trimq.core.security.access import Right
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.messages.classic_groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from trimq.protocols.kafka.messages.schema import RequestMessage
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import APIS, response_class

SUBSCRIPTION = b"\0\1" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff"


class GroupDesk(Desk):
    """Desk with requests that may be held."""

    def begin(self, message: RequestMessage, version: int) -> Reply:
        self._receive(request_frame(message, version))
        event = self._conversation.next_event()
        assert event is not None
        reply = self._conversation.handle(event)
        assert reply is not None
        return reply

    def is_answered(self, reply: Reply) -> bool:
        return reply.is_ready(self.runner.passes.written, self.runner.passes.durable)

    def decoded(self, reply: Reply, api_key: int, version: int) -> Any:
        assert self.is_answered(reply)
        body = 9 if version >= APIS[api_key].flexible_from else 8
        return codec.decode(response_class(api_key), version, b"".join(reply.take()), body)


@pytest.fixture
def desk() -> GroupDesk:
    desk = GroupDesk()
    desk.create("orders", 2)
    return desk


def join(member: str = "", **changes: Any) -> JoinGroupRequest:
    fields = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000, "member_id": member}
    protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    return JoinGroupRequest(**{**fields, "protocol_type": "consumer", "protocols": protocols, **changes})


def sync(member: str, generation: int, shares: dict[str, bytes] | None = None) -> SyncGroupRequest:
    assignments = [
        SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in (shares or {}).items()
    ]
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )


def enter(desk: GroupDesk, **changes: Any) -> str:
    """Forms a stable group of one member. Returns the member's id."""
    joined = desk.ask(join(**changes), 3)
    desk.ask(sync(joined.member_id, joined.generation_id, {joined.member_id: b"share"}))
    return joined.member_id


def commit(desk: GroupDesk, offset: int = 5, version: int = 9, **fields: Any) -> list[int]:
    id = desk.core.broker.topics.get(desk.caller, "orders").id.bytes
    metadata = fields.pop("metadata", "note")
    partition = OffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0), committed_offset=offset, committed_metadata=metadata
    )
    topic = OffsetCommitRequestTopic(name=fields.pop("topic", "orders"), topic_id=id, partitions=[partition])
    response = desk.ask(OffsetCommitRequest(**{"group_id": "g", "topics": [topic], **fields}), version)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def committed(desk: GroupDesk, version: int = 8, **fields: Any) -> Any:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        response = desk.ask(OffsetFetchRequest(group_id="g", topics=topics, **fields), version)
        return response.topics[0].partitions[0]
    id = desk.core.broker.topics.get(desk.caller, "orders").id.bytes
    topics = [OffsetFetchRequestTopics(name="orders", topic_id=id, partition_indexes=[0])]
    response = desk.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], **fields), version
    )
    return response.groups[0].topics[0].partitions[0]


def beat(desk: GroupDesk, member: str, generation: int = 1) -> int:
    return desk.ask(HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)).error_code


# -- members


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_with_every_version(desk: GroupDesk, version: int) -> None:
    response = desk.ask(join(), version)
    if version >= 4:
        assert (response.error_code, response.generation_id) == (Code.MEMBER_ID_REQUIRED, -1)
        assert response.protocol_name == (None if version >= 7 else "")
        response = desk.ask(join(response.member_id), version)
    assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
    assert response.leader == response.member_id
    assert response.member_id.startswith("client-")
    assert [(each.member_id, each.metadata) for each in response.members] == [(response.member_id, SUBSCRIPTION)]


def test_the_others_are_waited_for_and_a_follower_waits_for_the_leader(desk: GroupDesk) -> None:
    first = enter(desk)
    waiting = desk.begin(join(), 3)
    assert not desk.is_answered(waiting)
    assert beat(desk, first) == Code.REBALANCE_IN_PROGRESS
    again = desk.ask(join(first), 3)
    second = desk.decoded(waiting, 11, 3)
    assert (second.generation_id, again.generation_id, second.leader) == (2, 2, first)
    assert (len(again.members), len(second.members)) == (2, 0)
    waiting = desk.begin(sync(second.member_id, 2), 5)
    assert not desk.is_answered(waiting)
    leader = desk.begin(sync(first, 2, {first: b"1", second.member_id: b"2"}), 5)
    assert not desk.is_answered(waiting), "answered before the assignment is durable"
    desk.runner.settle()
    assert desk.decoded(leader, 14, 5).assignment == b"1"
    assert desk.decoded(waiting, 14, 5).assignment == b"2"


def test_a_missing_member_is_waited_for_until_the_rebalance_timeout(desk: GroupDesk) -> None:
    first = enter(desk, session_timeout_ms=60_000)
    waiting = desk.begin(join(), 3)
    desk.let_pass(30_000)
    response = desk.decoded(waiting, 11, 3)
    assert (response.generation_id, response.leader) == (2, response.member_id)
    assert beat(desk, first) == Code.UNKNOWN_MEMBER_ID


def test_assignments_that_cannot_be_written_are_not_returned(desk: GroupDesk) -> None:
    joined = desk.ask(join(), 3)
    desk.fail_writes()
    response = desk.ask(sync(joined.member_id, 1, {joined.member_id: b"share"}))
    assert (response.error_code, response.assignment) == (Code.COORDINATOR_NOT_AVAILABLE, b"")
    assert beat(desk, joined.member_id) == Code.REBALANCE_IN_PROGRESS


def test_a_member_that_is_silent_is_unknown(desk: GroupDesk) -> None:
    member = enter(desk)
    desk.let_pass(9_000)
    assert beat(desk, member) == 0
    desk.let_pass(10_000)
    assert beat(desk, member) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_has_a_sensible_length(desk: GroupDesk, session_ms: int) -> None:
    response = desk.ask(join(session_timeout_ms=session_ms), 3)
    assert response.error_code == Code.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(
    "message",
    [
        join(group_id=""),
        SyncGroupRequest(protocol_type="consumer", protocol_name="range"),
        HeartbeatRequest(),
        LeaveGroupRequest(members=[MemberIdentity(member_id="m")]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_group_has_a_name(desk: GroupDesk, message: RequestMessage) -> None:
    assert desk.ask(message).error_code == Code.INVALID_GROUP_ID


def test_the_newest_sync_must_name_its_protocol(desk: GroupDesk) -> None:
    joined = desk.ask(join(), 3)
    message = sync(joined.member_id, 1)
    message.protocol_name = None
    assert desk.ask(message, 5).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert desk.ask(message, 4).error_code == 0


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_with_every_version(desk: GroupDesk, version: int) -> None:
    member = enter(desk)
    leavers = [MemberIdentity(member_id=member), MemberIdentity(member_id="nobody")]
    response = desk.ask(LeaveGroupRequest(group_id="g", member_id=member, members=leavers), version)
    assert response.error_code == 0
    assert [each.error_code for each in response.members] == ([0, Code.UNKNOWN_MEMBER_ID] if version >= 3 else [])
    assert beat(desk, member) == Code.UNKNOWN_MEMBER_ID


def test_members_are_known_after_a_restart(desk: GroupDesk) -> None:
    member = enter(desk)
    commit(desk, 7, generation_id_or_member_epoch=1, member_id=member)
    again = GroupDesk.restart(desk)
    assert beat(again, member) == 0
    assert committed(again).committed_offset == 7


# -- offsets


@pytest.mark.parametrize("version", range(2, 11))
def test_an_offset_is_committed_with_every_version(desk: GroupDesk, version: int) -> None:
    assert commit(desk, 40 + version, version) == [0]
    found = committed(desk)
    assert (found.committed_offset, found.metadata, found.error_code) == (40 + version, "note", 0)


@pytest.mark.parametrize("version", range(1, 11))
def test_an_offset_is_fetched_with_every_version(desk: GroupDesk, version: int) -> None:
    found = committed(desk, version)
    assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", 0)
    commit(desk)
    assert committed(desk, version).committed_offset == 5


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "unknown"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "ä" * 4097}, Code.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": "ä" * 4096}, Code.NONE),
        ({"metadata": None}, Code.NONE),
        ({"member_id": "x", "generation_id_or_member_epoch": 5}, Code.GROUP_ID_NOT_FOUND),
        ({"member_id": "x", "generation_id_or_member_epoch": 5, "version": 8}, Code.ILLEGAL_GENERATION),
    ],
)
def test_an_invalid_commit_is_refused(desk: GroupDesk, fields: dict[str, Any], code: Code) -> None:
    assert commit(desk, **fields) == [code]


def test_a_commit_that_cannot_be_written_is_refused_and_not_returned(desk: GroupDesk) -> None:
    commit(desk, 5)
    desk.fail_writes()
    assert commit(desk, 9) == [Code.COORDINATOR_NOT_AVAILABLE]
    desk.files.before = lambda operation, name: None
    assert committed(desk).committed_offset == 5


def test_an_answer_about_offsets_waits_until_they_are_durable(desk: GroupDesk) -> None:
    id = desk.core.broker.topics.get(desk.caller, "orders").id.bytes
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="orders", topic_id=id, partitions=[partition])
    committing = desk.begin(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    asking = desk.begin(OffsetFetchRequest(group_id="g", topics=topics), 7)
    assert not desk.is_answered(committing)
    assert not desk.is_answered(asking)
    desk.runner.settle()
    assert desk.decoded(asking, 9, 7).topics[0].partitions[0].committed_offset == 9


def test_an_undone_commit_is_never_returned(desk: GroupDesk) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    desk.begin(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    asked = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    asking = desk.begin(OffsetFetchRequest(groups=asked), 8)
    desk.fail_writes()
    desk.runner.settle()
    (group,) = desk.decoded(asking, 9, 8).groups
    assert (group.error_code, group.topics) == (Code.COORDINATOR_NOT_AVAILABLE, [])


def test_all_offsets_of_several_groups_are_fetched_at_once(desk: GroupDesk) -> None:
    commit(desk, 5, partition=1)
    asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "unknown")]
    response = desk.ask(OffsetFetchRequest(groups=asked), 9)
    found = {
        group.group_id: [(topic.name, [each.partition_index for each in topic.partitions]) for topic in group.topics]
        for group in response.groups
    }
    assert found == {"g": [("orders", [1])], "unknown": []}


def test_offsets_go_with_their_topic(desk: GroupDesk) -> None:
    commit(desk)
    broker = desk.core.broker
    broker.topics.delete(desk.caller, broker.topics.get(desk.caller, "orders"))
    asked = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    assert desk.ask(OffsetFetchRequest(groups=asked), 9).groups[0].topics == []


# -- administration


def test_offsets_of_subscribed_topics_are_not_deleted(desk: GroupDesk) -> None:
    desk.create("bills")
    member = enter(desk)
    commit(desk, member_id=member, generation_id_or_member_epoch=1)
    commit(desk, topic="bills", member_id=member, generation_id_or_member_epoch=1, version=9)

    def delete(topic: str, partition: int = 0) -> int:
        partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        response = desk.ask(OffsetDeleteRequest(group_id="g", topics=topics))
        assert response.error_code == 0
        return response.topics[0].partitions[0].error_code

    assert delete("orders") == Code.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete("bills") == 0
    assert delete("unknown") == Code.UNKNOWN_TOPIC_OR_PARTITION
    desk.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)]))
    assert delete("orders") == 0
    assert committed(desk).committed_offset == -1


def test_deleted_offsets_of_a_topic_are_in_one_entry_if_a_partition_does_not_exist(desk: GroupDesk) -> None:
    commit(desk)

    def delete(*partitions: int) -> list[list[tuple[int, int]]]:
        asked = [
            OffsetDeleteRequestTopic(name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=each)])
            for each in partitions
        ]
        topics = desk.ask(OffsetDeleteRequest(group_id="g", topics=asked)).topics
        return [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in topics]

    assert delete(0, 0) == [[(0, Code.NONE)], [(0, Code.NONE)]]
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(0, 77, 78) == [[(0, Code.NONE), (77, unknown), (78, unknown)]]


@pytest.mark.parametrize(
    ("metadata", "protocol_type", "top", "code"),
    [(b"?", "consumer", 0, Code.GROUP_SUBSCRIBED_TO_TOPIC), (b"?", "connect", Code.NON_EMPTY_GROUP, None)],
)
def test_an_unreadable_subscription_is_assumed_to_include_the_topic(
    desk: GroupDesk, metadata: bytes, protocol_type: str, top: int, code: int | None
) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    joined = desk.ask(join(protocols=protocols, protocol_type=protocol_type), 3)
    desk.ask(sync(joined.member_id, 1), 3)
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="orders", partitions=partitions)]
    response = desk.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    assert response.error_code == top
    assert [each.error_code for topic in response.topics for each in topic.partitions] == (
        [] if code is None else [code]
    )


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("count", [99, 100, 101, 350])
def test_a_long_list_of_groups_is_made_in_several_turns(desk: GroupDesk, version: int, count: int) -> None:
    topic = next(iter(desk.core.topics))
    for number in range(count):
        desk.core.cursors.commit(f"group-{number}", topic.stream(0).id, 0)
    desk.runner.settle()
    reply = desk.begin(ListGroupsRequest(), version)
    turns = 1
    while not desk.is_answered(reply):
        assert desk.liveness.step(desk.liveness.now_ms())
        turns += 1
    assert turns == count // 100 + 1
    frame = b"".join(reply.take())
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = 9 if version >= APIS[ListGroupsRequest.API_KEY].flexible_from else 8
    listed = codec.decode(response_class(ListGroupsRequest.API_KEY), version, frame, body)
    assert [each.group_id for each in listed.groups] == [f"group-{number}" for number in range(count)]
    assert codec.encode(listed, version) == frame[body:]


def test_groups_are_listed_described_and_deleted(desk: GroupDesk) -> None:
    member = enter(desk)
    commit(desk, group_id="empty")
    listed = desk.ask(ListGroupsRequest()).groups
    assert {(each.group_id, each.group_state, each.group_type) for each in listed} == {
        ("g", "Stable", "classic"),
        ("empty", "Empty", "classic"),
    }
    assert [each.group_id for each in desk.ask(ListGroupsRequest(states_filter=["stable"])).groups] == ["g"]
    assert desk.ask(ListGroupsRequest(types_filter=["consumer"])).groups == []
    described = desk.ask(DescribeGroupsRequest(groups=["g", "unknown"], include_authorized_operations=True)).groups
    assert [(each.group_state, each.error_code) for each in described] == [
        ("Stable", 0),
        ("Dead", Code.GROUP_ID_NOT_FOUND),
    ]
    (found,) = described[0].members
    assert (found.member_id, found.client_host, found.member_assignment) == (member, "/10.0.0.1", b"share")
    assert described[0].authorized_operations == 3400
    deleted = desk.ask(DeleteGroupsRequest(groups_names=["g", "empty", "unknown", "empty"])).results
    assert {each.group_id: each.error_code for each in deleted} == {
        "g": Code.NON_EMPTY_GROUP,
        "empty": 0,
        "unknown": Code.GROUP_ID_NOT_FOUND,
    }


@pytest.mark.parametrize(
    ("version", "key_type", "code"), [(2, 0, 0), (6, 0, 0), (6, 1, 0), (6, 2, Code.INVALID_REQUEST)]
)
def test_this_node_coordinates_everything(desk: GroupDesk, version: int, key_type: int, code: int) -> None:
    response = desk.ask(FindCoordinatorRequest(key="g", key_type=key_type, coordinator_keys=["g"]), version)
    if version in (1, 2, 3) and not response.error_code:
        assert response.error_message == "NONE"
    found = response if version < 4 else response.coordinators[0]
    assert found.error_code == code
    assert (found.node_id, found.port) == ((1, 9092) if not code else (-1, -1))


def test_rights_are_asked_for_groups(desk: GroupDesk) -> None:
    access = desk.core.broker._access
    access.define_user("admin", "secret", is_administrator=True)
    access.define_user("anonymous", "secret")
    access.grant(Right("anonymous", "", read="orders|mine"))
    assert desk.ask(join(), 3).error_code == Code.GROUP_AUTHORIZATION_FAILED
    assert commit(desk) == [Code.GROUP_AUTHORIZATION_FAILED]
    assert desk.ask(join(group_id="mine"), 3).error_code == 0
    assert [each.group_id for each in desk.ask(ListGroupsRequest()).groups] == ["mine"]
    (described,) = desk.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert described.error_code == Code.GROUP_AUTHORIZATION_FAILED
    (deleted,) = desk.ask(DeleteGroupsRequest(groups_names=["mine"])).results
    assert deleted.error_code == Code.GROUP_AUTHORIZATION_FAILED


def test_a_broker_that_stops_takes_no_members(desk: GroupDesk) -> None:
    desk.core.stop_writes()
    assert desk.ask(join(), 3).error_code == Code.NOT_COORDINATOR
