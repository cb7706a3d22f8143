from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import msgspec
import pytest

from trimq.core.groups.assigned_group import (
    AssignableTopic,
    AssignedGroup,
    HeartbeatResult,
    KnownTopics,
    MemberHeartbeat,
)
from trimq.core.groups.assigned_member import LEFT_EPOCH, STATIC_LEAVE_EPOCH, StoredAssignedMember
from trimq.core.groups.group import Claim, GroupState
from trimq.errors.groups import (
    InstanceFenced,
    InstanceInUse,
    InvalidPattern,
    MemberEpochFenced,
    OldWayOfSpeaking,
    StaleMemberEpoch,
    UnknownMember,
)
from trimq.model import StreamId

ORDERS, BILLS = UUID(int=1), UUID(int=2)
KNOWN = KnownTopics(1, {"orders": AssignableTopic(ORDERS, 3), "bills": AssignableTopic(BILLS, 2)})
SESSION_MS = 45_000

JOIN = MemberHeartbeat(
    member="",
    epoch=0,
    instance=None,
    rack=None,
    rebalance_ms=60_000,
    topics=("orders",),
    pattern=None,
    assignor=None,
    owned=frozenset(),
    protocol_type="consumer",
    client_id="client",
    host="here",
)
QUIET = replace(JOIN, rebalance_ms=None, topics=None, owned=None)


def orders(*indexes: int) -> frozenset[StreamId]:
    return frozenset(StreamId(ORDERS, index) for index in indexes)


class Client:
    """A member that follows the coordinator's assignments."""

    def __init__(self, group: AssignedGroup, name: str, instance: str | None = None) -> None:
        self.group, self.name, self.instance = group, name, instance
        self.epoch = 0
        self.owned: frozenset[StreamId] = frozenset()

    def join(self, known: KnownTopics = KNOWN, now_ms: int = 0, **changes: object) -> HeartbeatResult:
        return self._send(replace(JOIN, member=self.name, instance=self.instance, **changes), known, now_ms)

    def heartbeat(self, known: KnownTopics = KNOWN, now_ms: int = 0, **changes: object) -> HeartbeatResult:
        asked = replace(QUIET, member=self.name, instance=self.instance, epoch=self.epoch)
        return self._send(replace(asked, **changes), known, now_ms)

    def acknowledge(self, known: KnownTopics = KNOWN, now_ms: int = 0) -> HeartbeatResult:
        return self.heartbeat(known, now_ms, owned=self.owned)

    def leave(self, epoch: int = LEFT_EPOCH) -> HeartbeatResult:
        return self.group.leave(replace(QUIET, member=self.name, instance=self.instance, epoch=epoch))

    def _send(self, asked: MemberHeartbeat, known: KnownTopics, now_ms: int) -> HeartbeatResult:
        heartbeat = self.group.heartbeat(asked, known, SESSION_MS, now_ms)
        self.epoch = heartbeat.epoch
        if heartbeat.streams is not None:
            self.owned = heartbeat.streams
        return heartbeat


@pytest.fixture
def group() -> AssignedGroup:
    return AssignedGroup("g")


def pair(group: AssignedGroup) -> tuple[Client, Client]:
    """Returns two members that own their target assignments: the first owns two streams, the second one."""
    first, second = Client(group, "a"), Client(group, "b")
    first.join()
    second.join()
    first.heartbeat()
    first.acknowledge()
    second.heartbeat()
    assert (first.owned, second.owned, group.state) == (orders(0, 1), orders(2), GroupState.STABLE)
    return first, second


def test_the_first_member_gets_all_streams_and_the_assignment_is_sent_once(group: AssignedGroup) -> None:
    member = Client(group, "a")
    assert member.join() == HeartbeatResult("a", 2, orders(0, 1, 2))
    assert member.heartbeat() == HeartbeatResult("a", 2, None)
    assert group.state is GroupState.STABLE
    assert member.heartbeat(rebalance_ms=1, topics=("orders",), owned=orders(0, 1, 2)).streams == orders(0, 1, 2)


def test_streams_are_revoked_before_they_are_assigned_again(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b")
    first.join()
    assert second.join() == HeartbeatResult("b", 3, frozenset())
    assert group.state is GroupState.RECONCILING
    assert first.heartbeat() == HeartbeatResult("a", 2, orders(0, 1))
    assert second.heartbeat().streams is None, "the first has not let go"
    assert first.heartbeat(owned=orders(0, 1, 2)).epoch == 2
    assert second.heartbeat().streams is None
    assert first.acknowledge() == HeartbeatResult("a", 3, None)
    assert second.heartbeat() == HeartbeatResult("b", 3, orders(2))
    assert group.state is GroupState.STABLE


def test_streams_of_a_member_that_leaves_are_assigned_to_the_remaining_member(group: AssignedGroup) -> None:
    first, second = pair(group)
    assert second.leave() == HeartbeatResult("b", LEFT_EPOCH, None)
    assert first.heartbeat().streams == orders(0, 1, 2)
    with pytest.raises(UnknownMember):
        second.heartbeat()
    first.leave()
    assert (group.state, group.has_members) == (GroupState.EMPTY, False)


def test_a_member_without_heartbeats_is_removed(group: AssignedGroup) -> None:
    first, second = pair(group)
    first.heartbeat(now_ms=40_000)
    assert group.next_due_ms() == SESSION_MS
    group.expire(SESSION_MS)
    with pytest.raises(UnknownMember):
        second.heartbeat(now_ms=SESSION_MS)
    assert first.heartbeat(now_ms=SESSION_MS).streams == orders(0, 1, 2)


def test_a_member_that_does_not_revoke_in_time_is_removed(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b")
    first.join(rebalance_ms=20_000)
    second.join()
    first.heartbeat(now_ms=1_000)
    assert group.next_due_ms() == 21_000
    group.expire(21_000)
    with pytest.raises(UnknownMember):
        first.acknowledge(now_ms=21_000)
    assert second.heartbeat(now_ms=21_000).streams == orders(0, 1, 2)


def test_a_member_that_lost_a_response_may_be_one_epoch_behind(group: AssignedGroup) -> None:
    first, _ = pair(group)
    behind = first.epoch - 1
    assert first.heartbeat(epoch=behind, owned=orders(0)).epoch == first.epoch
    for changes in ({"owned": orders(0, 1, 2)}, {"owned": None}, {"epoch": 1}, {"epoch": first.epoch + 1}):
        with pytest.raises(MemberEpochFenced):
            first.heartbeat(**{"epoch": behind, "owned": orders(0), **changes})


def test_a_live_member_may_join_again_without_owned_streams(group: AssignedGroup) -> None:
    first, _ = pair(group)
    assert first.join().streams == orders(0, 1)


@pytest.mark.parametrize(
    ("changes", "streams"),
    [
        ({"topics": ("orders", "bills")}, 5),
        ({"topics": ()}, 0),
        ({"topics": ("unknown",)}, 0),
        ({"topics": None, "pattern": "o.*|b.*"}, 5),
        ({"topics": None, "pattern": "order"}, 0),
        ({"topics": ("bills",), "pattern": "orders"}, 5),
        ({"topics": ("bills", "bills"), "pattern": ""}, 2),
    ],
)
def test_members_get_the_streams_of_the_topics_they_subscribe_to(
    group: AssignedGroup, changes: dict[str, object], streams: int
) -> None:
    heartbeat = Client(group, "a").join(**changes)
    assert len(heartbeat.streams) == streams


def test_a_member_may_change_its_subscription(group: AssignedGroup) -> None:
    member = Client(group, "a")
    before = member.join().epoch
    heartbeat = member.heartbeat(topics=("bills",))
    assert heartbeat.streams == frozenset(), "the streams of the old subscription must be revoked first"
    heartbeat = member.acknowledge()
    assert heartbeat.streams == {StreamId(BILLS, 0), StreamId(BILLS, 1)}
    assert heartbeat.epoch > before


def test_topics_that_are_created_grown_or_deleted_are_assigned_again(group: AssignedGroup) -> None:
    member = Client(group, "a")
    member.join(pattern="orders|late")
    shapes = {**KNOWN.shapes, "orders": AssignableTopic(ORDERS, 4)}
    assert member.heartbeat(KnownTopics(2, shapes)).streams == orders(0, 1, 2, 3)
    shapes["late"] = AssignableTopic(UUID(int=3), 1)
    assert len(member.heartbeat(KnownTopics(3, shapes)).streams) == 5
    epoch = member.epoch
    assert member.heartbeat(KnownTopics(4, {**shapes, "other": AssignableTopic(UUID(int=4), 1)})) == HeartbeatResult(
        "a", epoch, None
    )
    del shapes["orders"]
    assert len(member.heartbeat(KnownTopics(5, shapes)).streams) == 1


def test_a_pattern_that_members_share_is_matched_once_for_each_change_of_the_topics(group: AssignedGroup) -> None:
    class CountingShapes(dict[str, AssignableTopic]):
        passes = 0

        def __iter__(self) -> Iterator[str]:
            self.passes += 1
            return super().__iter__()

    shapes = CountingShapes(KNOWN.shapes)
    members = [Client(group, name) for name in "abc"]
    for member in members:
        member.join(KnownTopics(1, shapes), topics=None, pattern="orders")
        member.heartbeat(KnownTopics(1, shapes))
    assert shapes.passes == 1
    for member in members:
        member.heartbeat(KnownTopics(2, shapes))
    assert shapes.passes == 2
    members[0].heartbeat(KnownTopics(2, shapes), pattern="bills")
    assert shapes.passes == 3


def test_a_stored_pattern_that_is_no_longer_valid_matches_nothing(group: AssignedGroup) -> None:
    Client(group, "a").join()
    kept = StoredAssignedMember.of(group.changed["a"])
    group = AssignedGroup.restore(
        "g", group.kept(None), [msgspec.structs.replace(kept, pattern="(")], session_ms=SESSION_MS, now_ms=0
    )
    beat = Client(group, "b").join(topics=("bills",))
    assert beat.streams == {StreamId(BILLS, 0), StreamId(BILLS, 1)}


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"pattern": "("}, InvalidPattern),
    ],
)
def test_a_refused_heartbeat_leaves_no_group_state(
    group: AssignedGroup, changes: dict[str, object], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        Client(group, "a").join(**changes)
    assert not group.has_members
    assert not group.changed


def test_the_assignor_is_the_one_most_members_prefer(group: AssignedGroup) -> None:
    for name, assignor in (("a", "range"), ("b", "uniform"), ("c", "range"), ("d", None)):
        Client(group, name).join(assignor=assignor)
    assert group.describe().strategy == "range"


# -- static members


def test_a_static_member_that_leaves_temporarily_keeps_its_streams(group: AssignedGroup) -> None:
    first = Client(group, "a", "I")
    second = Client(group, "b")
    first.join()
    with pytest.raises(InstanceInUse):
        Client(group, "a2", "I").join()
    epoch = group.generation
    assert first.leave(STATIC_LEAVE_EPOCH) == HeartbeatResult("a", STATIC_LEAVE_EPOCH, None)
    assert [member.epoch for member in group.describe().members] == [STATIC_LEAVE_EPOCH]
    again = Client(group, "a2", "I")
    assert again.join().streams == orders(0, 1, 2)
    assert group.generation == epoch
    with pytest.raises(InstanceFenced):
        first.heartbeat()
    with pytest.raises(UnknownMember):
        first.heartbeat(instance=None)
    with pytest.raises(UnknownMember):
        again.heartbeat(instance="other")
    second.join()
    assert len(again.heartbeat().streams) == 2


def test_a_static_member_that_does_not_rejoin_loses_its_streams(group: AssignedGroup) -> None:
    first, second = Client(group, "a", "I"), Client(group, "b")
    first.join()
    first.leave(STATIC_LEAVE_EPOCH)
    second.join(now_ms=10_000)
    assert second.owned == frozenset()
    group.expire(SESSION_MS)
    assert second.heartbeat(now_ms=SESSION_MS).streams == orders(0, 1, 2)


def test_a_static_member_may_rejoin_with_its_old_member_id(group: AssignedGroup) -> None:
    member = Client(group, "a", "I")
    member.join()
    member.leave(STATIC_LEAVE_EPOCH)
    assert member.join() == HeartbeatResult("a", 2, orders(0, 1, 2))


# -- commits


@pytest.mark.parametrize(
    ("member", "epoch", "stream", "uses_member_epoch", "refusal"),
    [
        ("a", 3, 0, True, None),
        ("a", 3, 2, True, None),
        ("a", 2, 0, True, None),
        ("a", 2, 2, True, StaleMemberEpoch),
        ("a", 4, 0, True, StaleMemberEpoch),
        ("a", 3, 0, False, OldWayOfSpeaking),
        ("nobody", 3, 0, True, UnknownMember),
        ("", -1, 0, True, UnknownMember),
    ],
)
def test_commits_are_accepted_from_members_that_own_the_stream(
    group: AssignedGroup, member: str, epoch: int, stream: int, uses_member_epoch: bool, refusal: type[Exception] | None
) -> None:
    pair(group)
    claim = Claim(member, epoch, None, uses_member_epoch)
    if refusal is None:
        group.check_claim(claim, StreamId(ORDERS, stream), is_transactional=False)
        return
    with pytest.raises(refusal):
        group.check_claim(claim, StreamId(ORDERS, stream), is_transactional=False)


def test_any_client_commits_to_an_empty_group_and_a_transaction_commits_without_a_member_id(
    group: AssignedGroup,
) -> None:
    group.check_claim(Claim(), StreamId(ORDERS, 0), is_transactional=False)
    pair(group)
    group.check_claim(Claim(), StreamId(ORDERS, 0), is_transactional=True)


@pytest.mark.parametrize(
    ("claim", "refusal"),
    [
        (Claim(), None),
        (Claim("a", 3), None),
        (Claim("a", 2), StaleMemberEpoch),
        (Claim("a", 4), StaleMemberEpoch),
        (Claim("nobody", 3), UnknownMember),
    ],
)
def test_an_offset_fetch_names_a_valid_member_or_none(
    group: AssignedGroup, claim: Claim, refusal: type[Exception] | None
) -> None:
    pair(group)
    if refusal is None:
        group.check_reader(claim)
        return
    with pytest.raises(refusal):
        group.check_reader(claim)


# -- restart


def test_a_restored_group_is_the_group_that_was_stored(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b", "I")
    first.join(assignor="uniform", pattern="x.*")
    second.join()
    first.heartbeat()
    kept = [StoredAssignedMember.of(member) for member in group.changed.values() if member is not None]
    again = AssignedGroup.restore("g", group.kept(None), kept, session_ms=400, now_ms=100)
    assert again.describe() == replace(group.describe(), subscribed=frozenset(["orders"]))
    assert again.next_due_ms() == 500
    first.group = second.group = again
    assert second.heartbeat().streams is None, "the first has not let go"
    first.acknowledge()
    assert second.heartbeat().streams == orders(2)
    assert again.generation == group.generation, "the group epoch changed without a change"


def test_a_group_that_was_stored_in_part_before_a_power_cut_is_assigned_again(group: AssignedGroup) -> None:
    first, second = pair(group)
    before = group.kept(None)
    second.leave()
    kept = [StoredAssignedMember.of(member) for member in group.changed.values() if member is not None]
    assert [member.id for member in kept] == ["a"]
    again = AssignedGroup.restore("g", before, kept, session_ms=400, now_ms=0)
    first.group = again
    first.heartbeat()
    assert first.owned == orders(0, 1, 2)


def test_after_a_restart_a_member_has_its_full_rebalance_timeout_to_revoke(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b")
    first.join()
    second.join()
    first.heartbeat()  # the response revokes a stream
    kept = [StoredAssignedMember.of(member) for member in group.changed.values() if member is not None]
    again = AssignedGroup.restore("g", group.kept(None), kept, session_ms=400, now_ms=100)
    rebalance_ms = next(member.rebalance_ms for member in kept if member.id == "a")
    assert rebalance_ms > 400
    first.group = again
    first.heartbeat(now_ms=450)
    again.expire(500)
    assert [member.id for member in again.describe().members] == ["a"]
    again.expire(100 + rebalance_ms)
    assert not again.has_members


def test_a_heartbeat_without_news_changes_no_stored_state(group: AssignedGroup) -> None:
    first, second = pair(group)
    group.changed.clear()
    group.needs_save = False
    for member in (first, second):
        member.heartbeat()
        member.acknowledge()
    assert (group.changed, group.needs_save) == ({}, False)
    group.mark_all_changed(["a", "gone"])
    assert (set(group.changed), group.needs_save) == ({"a", "b", "gone"}, True)
    assert group.changed["gone"] is None
