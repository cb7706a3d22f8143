from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import msgspec
import pytest

from trimq.core.assigned_groups import AssignedGroup, Beat, BeatRequest, KnownTopics, TopicShape
from trimq.core.assigned_members import AWAY_EPOCH, LEFT_EPOCH, KeptAssignedMember
from trimq.core.group_refusals import (
    InstanceFenced,
    InstanceInUse,
    InvalidPattern,
    MemberEpochFenced,
    OldWayOfSpeaking,
    StaleMemberEpoch,
    UnknownAssignor,
    UnknownMember,
)
from trimq.core.groups import Claim, GroupState
from trimq.model import StreamId

ORDERS, BILLS = UUID(int=1), UUID(int=2)
KNOWN = KnownTopics(1, {"orders": TopicShape(ORDERS, 3), "bills": TopicShape(BILLS, 2)})
SESSION_MS = 45_000

JOIN = BeatRequest(
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
    """A member that does what it is told."""

    def __init__(self, group: AssignedGroup, name: str, instance: str | None = None) -> None:
        self.group, self.name, self.instance = group, name, instance
        self.epoch = 0
        self.owned: frozenset[StreamId] = frozenset()

    def join(self, known: KnownTopics = KNOWN, now_ms: int = 0, **changes: object) -> Beat:
        return self._say(replace(JOIN, member=self.name, instance=self.instance, **changes), known, now_ms)

    def beat(self, known: KnownTopics = KNOWN, now_ms: int = 0, **changes: object) -> Beat:
        asked = replace(QUIET, member=self.name, instance=self.instance, epoch=self.epoch)
        return self._say(replace(asked, **changes), known, now_ms)

    def acknowledge(self, known: KnownTopics = KNOWN, now_ms: int = 0) -> Beat:
        return self.beat(known, now_ms, owned=self.owned)

    def leave(self, epoch: int = LEFT_EPOCH) -> Beat:
        return self.group.leave(replace(QUIET, member=self.name, instance=self.instance, epoch=epoch))

    def _say(self, asked: BeatRequest, known: KnownTopics, now_ms: int) -> Beat:
        beat = self.group.beat(asked, known, SESSION_MS, now_ms)
        self.epoch = beat.epoch
        if beat.streams is not None:
            self.owned = beat.streams
        return beat


@pytest.fixture
def group() -> AssignedGroup:
    return AssignedGroup("g")


def pair(group: AssignedGroup) -> tuple[Client, Client]:
    """Two members that have what they shall have: the first has two streams, the second one."""
    first, second = Client(group, "a"), Client(group, "b")
    first.join()
    second.join()
    first.beat()
    first.acknowledge()
    second.beat()
    assert (first.owned, second.owned, group.state) == (orders(0, 1), orders(2), GroupState.STABLE)
    return first, second


def test_the_first_member_gets_everything_and_hears_it_once(group: AssignedGroup) -> None:
    member = Client(group, "a")
    assert member.join() == Beat("a", 2, orders(0, 1, 2))
    assert member.beat() == Beat("a", 2, None)
    assert group.state is GroupState.STABLE
    assert member.beat(rebalance_ms=1, topics=("orders",), owned=orders(0, 1, 2)).streams == orders(0, 1, 2)


def test_streams_are_given_up_before_they_are_given_out(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b")
    first.join()
    assert second.join() == Beat("b", 3, frozenset())
    assert group.state is GroupState.RECONCILING
    assert first.beat() == Beat("a", 2, orders(0, 1))
    assert second.beat().streams is None, "the first has not let go"
    assert first.beat(owned=orders(0, 1, 2)).epoch == 2
    assert second.beat().streams is None
    assert first.acknowledge() == Beat("a", 3, None)
    assert second.beat() == Beat("b", 3, orders(2))
    assert group.state is GroupState.STABLE


def test_the_rest_goes_to_who_stays(group: AssignedGroup) -> None:
    first, second = pair(group)
    assert second.leave() == Beat("b", LEFT_EPOCH, None)
    assert first.beat().streams == orders(0, 1, 2)
    with pytest.raises(UnknownMember):
        second.beat()
    first.leave()
    assert (group.state, group.has_members) == (GroupState.EMPTY, False)


def test_who_is_silent_is_a_member_no_more(group: AssignedGroup) -> None:
    first, second = pair(group)
    first.beat(now_ms=40_000)
    assert group.next_due_ms() == SESSION_MS
    group.expire(SESSION_MS)
    with pytest.raises(UnknownMember):
        second.beat(now_ms=SESSION_MS)
    assert first.beat(now_ms=SESSION_MS).streams == orders(0, 1, 2)


def test_who_does_not_let_go_in_time_is_a_member_no_more(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b")
    first.join(rebalance_ms=20_000)
    second.join()
    first.beat(now_ms=1_000)
    assert group.next_due_ms() == 21_000
    group.expire(21_000)
    with pytest.raises(UnknownMember):
        first.acknowledge(now_ms=21_000)
    assert second.beat(now_ms=21_000).streams == orders(0, 1, 2)


def test_a_member_that_lost_an_answer_may_be_one_epoch_behind(group: AssignedGroup) -> None:
    first, _ = pair(group)
    behind = first.epoch - 1
    assert first.beat(epoch=behind, owned=orders(0)).epoch == first.epoch
    for changes in ({"owned": orders(0, 1, 2)}, {"owned": None}, {"epoch": 1}, {"epoch": first.epoch + 1}):
        with pytest.raises(MemberEpochFenced):
            first.beat(**{"epoch": behind, "owned": orders(0), **changes})


def test_a_live_member_may_join_again_with_empty_hands(group: AssignedGroup) -> None:
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
def test_members_get_what_they_want(group: AssignedGroup, changes: dict[str, object], streams: int) -> None:
    beat = Client(group, "a").join(**changes)
    assert len(beat.streams) == streams


def test_a_member_may_want_other_topics_later(group: AssignedGroup) -> None:
    member = Client(group, "a")
    before = member.join().epoch
    beat = member.beat(topics=("bills",))
    assert beat.streams == frozenset(), "what it has must be let go first"
    beat = member.acknowledge()
    assert beat.streams == {StreamId(BILLS, 0), StreamId(BILLS, 1)}
    assert beat.epoch > before


def test_topics_that_come_grow_or_go_are_divided_anew(group: AssignedGroup) -> None:
    member = Client(group, "a")
    member.join(pattern="orders|late")
    shapes = {**KNOWN.shapes, "orders": TopicShape(ORDERS, 4)}
    assert member.beat(KnownTopics(2, shapes)).streams == orders(0, 1, 2, 3)
    shapes["late"] = TopicShape(UUID(int=3), 1)
    assert len(member.beat(KnownTopics(3, shapes)).streams) == 5
    epoch = member.epoch
    assert member.beat(KnownTopics(4, {**shapes, "other": TopicShape(UUID(int=4), 1)})) == Beat("a", epoch, None)
    del shapes["orders"]
    assert len(member.beat(KnownTopics(5, shapes)).streams) == 1


def test_a_pattern_that_members_share_is_matched_once_for_each_change_of_the_topics(group: AssignedGroup) -> None:
    class CountingShapes(dict[str, TopicShape]):
        passes = 0

        def __iter__(self) -> Iterator[str]:
            self.passes += 1
            return super().__iter__()

    shapes = CountingShapes(KNOWN.shapes)
    members = [Client(group, name) for name in "abc"]
    for member in members:
        member.join(KnownTopics(1, shapes), topics=None, pattern="orders")
        member.beat(KnownTopics(1, shapes))
    assert shapes.passes == 1
    for member in members:
        member.beat(KnownTopics(2, shapes))
    assert shapes.passes == 2
    members[0].beat(KnownTopics(2, shapes), pattern="bills")
    assert shapes.passes == 3


def test_a_kept_pattern_that_is_no_longer_accepted_matches_nothing(group: AssignedGroup) -> None:
    Client(group, "a").join()
    kept = KeptAssignedMember.of(group.changed["a"])
    group = AssignedGroup.restore(
        "g", group.kept(None), [msgspec.structs.replace(kept, pattern="(")], session_ms=SESSION_MS, now_ms=0
    )
    beat = Client(group, "b").join(topics=("bills",))
    assert beat.streams == {StreamId(BILLS, 0), StreamId(BILLS, 1)}


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"assignor": "unknown"}, UnknownAssignor),
        ({"assignor": ""}, UnknownAssignor),
        ({"pattern": "("}, InvalidPattern),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    group: AssignedGroup, changes: dict[str, object], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        Client(group, "a").join(**changes)
    assert not group.has_members
    assert not group.changed


def test_the_assignor_is_the_one_that_most_prefer(group: AssignedGroup) -> None:
    for name, assignor in (("a", "range"), ("b", "uniform"), ("c", "range"), ("d", None)):
        Client(group, name).join(assignor=assignor)
    assert group.describe().strategy == "range"


# -- named instances


def test_an_instance_that_goes_for_a_while_keeps_its_streams(group: AssignedGroup) -> None:
    first = Client(group, "a", "I")
    second = Client(group, "b")
    first.join()
    with pytest.raises(InstanceInUse):
        Client(group, "a2", "I").join()
    epoch = group.generation
    assert first.leave(AWAY_EPOCH) == Beat("a", AWAY_EPOCH, None)
    assert [member.epoch for member in group.describe().members] == [AWAY_EPOCH]
    again = Client(group, "a2", "I")
    assert again.join().streams == orders(0, 1, 2)
    assert group.generation == epoch
    with pytest.raises(InstanceFenced):
        first.beat()
    with pytest.raises(UnknownMember):
        first.beat(instance=None)
    with pytest.raises(UnknownMember):
        again.beat(instance="other")
    second.join()
    assert len(again.beat().streams) == 2


def test_an_instance_that_does_not_come_back_loses_its_streams(group: AssignedGroup) -> None:
    first, second = Client(group, "a", "I"), Client(group, "b")
    first.join()
    first.leave(AWAY_EPOCH)
    second.join(now_ms=10_000)
    assert second.owned == frozenset()
    group.expire(SESSION_MS)
    assert second.beat(now_ms=SESSION_MS).streams == orders(0, 1, 2)


def test_the_same_process_may_come_back_too(group: AssignedGroup) -> None:
    member = Client(group, "a", "I")
    member.join()
    member.leave(AWAY_EPOCH)
    assert member.join() == Beat("a", 2, orders(0, 1, 2))


# -- commits


@pytest.mark.parametrize(
    ("who", "epoch", "stream", "speaks_epochs", "refusal"),
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
def test_commits_are_taken_from_those_who_hold_the_stream(
    group: AssignedGroup, who: str, epoch: int, stream: int, speaks_epochs: bool, refusal: type[Exception] | None
) -> None:
    pair(group)
    claim = Claim(who, epoch, None, speaks_epochs)
    if refusal is None:
        group.check_claim(claim, StreamId(ORDERS, stream), is_transactional=False)
        return
    with pytest.raises(refusal):
        group.check_claim(claim, StreamId(ORDERS, stream), is_transactional=False)


def test_anybody_commits_to_an_empty_group_and_any_transaction_for_nobody(group: AssignedGroup) -> None:
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
def test_a_reader_is_who_it_says_or_nobody(group: AssignedGroup, claim: Claim, refusal: type[Exception] | None) -> None:
    pair(group)
    if refusal is None:
        group.check_reader(claim)
        return
    with pytest.raises(refusal):
        group.check_reader(claim)


# -- what is kept


def test_what_is_kept_comes_back_as_it_was(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b", "I")
    first.join(assignor="uniform", pattern="x.*")
    second.join()
    first.beat()
    kept = [KeptAssignedMember.of(member) for member in group.changed.values() if member is not None]
    again = AssignedGroup.restore("g", group.kept(None), kept, session_ms=400, now_ms=100)
    assert again.describe() == replace(group.describe(), subscribed=frozenset(["orders"]))
    assert again.next_due_ms() == 500
    first.group = second.group = again
    assert second.beat().streams is None, "the first has not let go"
    first.acknowledge()
    assert second.beat().streams == orders(2)
    assert again.generation == group.generation, "nothing has changed meanwhile"


def test_what_a_power_cut_kept_by_halves_is_divided_anew(group: AssignedGroup) -> None:
    first, second = pair(group)
    before = group.kept(None)
    second.leave()
    kept = [KeptAssignedMember.of(member) for member in group.changed.values() if member is not None]
    assert [member.id for member in kept] == ["a"]
    again = AssignedGroup.restore("g", before, kept, session_ms=400, now_ms=0)
    first.group = again
    first.beat()
    assert first.owned == orders(0, 1, 2)


def test_after_a_restart_a_member_has_its_own_time_to_let_go(group: AssignedGroup) -> None:
    first, second = Client(group, "a"), Client(group, "b")
    first.join()
    second.join()
    first.beat()  # is told to let go of a stream
    kept = [KeptAssignedMember.of(member) for member in group.changed.values() if member is not None]
    again = AssignedGroup.restore("g", group.kept(None), kept, session_ms=400, now_ms=100)
    rebalance_ms = next(member.rebalance_ms for member in kept if member.id == "a")
    assert rebalance_ms > 400
    first.group = again
    first.beat(now_ms=450)
    again.expire(500)
    assert [member.id for member in again.describe().members] == ["a"]
    again.expire(100 + rebalance_ms)
    assert not again.has_members


def test_a_quiet_sign_of_life_changes_nothing_that_must_be_kept(group: AssignedGroup) -> None:
    first, second = pair(group)
    group.changed.clear()
    group.must_keep = False
    for member in (first, second):
        member.beat()
        member.acknowledge()
    assert (group.changed, group.must_keep) == ({}, False)
    group.keep_all(["a", "gone"])
    assert (set(group.changed), group.must_keep) == ({"a", "b", "gone"}, True)
    assert group.changed["gone"] is None
