from __future__ import annotations

from uuid import UUID

from trimq.core.groups.assigned_group import AssignableTopic, KnownTopics
from trimq.core.groups.group import GroupDescription, GroupKind, GroupState, MemberDescription
from trimq.core.groups.rebalances import Owners, Rebalances, RebalanceSummary, find_owners
from trimq.formats.kafka_subscription import write_assignment
from trimq.model import StreamId

ORDERS = UUID(int=1)
FIRST, SECOND = StreamId(ORDERS, 0), StreamId(ORDERS, 1)


class Observed:
    """Rebalances of one group; the test sets the time and the ends of streams."""

    def __init__(self) -> None:
        self.ends: dict[StreamId, int] = {FIRST: 10, SECOND: 20}
        self.now_ms = 0
        self.rebalances = Rebalances(self.ends.get)

    def change(self, state: GroupState, generation: int = 0, owners: Owners | None = None) -> None:
        self.rebalances.observe("g", state, generation, lambda: dict(owners or {}), self.now_ms)

    def summary(self) -> RebalanceSummary:
        return self.rebalances.summary("g", self.now_ms)


def stable_group() -> Observed:
    observed = Observed()
    observed.change(GroupState.PREPARING_REBALANCE)
    observed.now_ms = 3_000
    observed.change(GroupState.STABLE, 1, {FIRST: "a", SECOND: "a"})
    return observed


def test_a_first_assignment_moves_nothing() -> None:
    assert stable_group().summary() == RebalanceSummary(completed=1, total_ms=3_000, last_ms=3_000)


def test_a_rebalance_counts_its_pause_the_moved_streams_and_what_arrived_meanwhile() -> None:
    observed = stable_group()
    observed.ends[FIRST] += 1  # before the rebalance
    observed.now_ms = 10_000
    observed.change(GroupState.PREPARING_REBALANCE, 1)
    observed.ends[FIRST] += 5
    observed.now_ms = 10_400
    observed.change(GroupState.ASSIGNING, 2)
    assert observed.summary().running_ms == 400
    observed.ends[SECOND] += 2
    observed.now_ms = 10_500
    observed.change(GroupState.STABLE, 2, {FIRST: "a", SECOND: "b"})
    assert observed.summary() == RebalanceSummary(
        completed=2,
        total_ms=3_500,
        total_moved=1,
        total_arrived=7,
        last_ms=500,
        last_moved=1,
        last_arrived=7,
    )


def test_an_assignment_within_one_event_is_a_rebalance_without_a_pause() -> None:
    observed = stable_group()
    observed.change(GroupState.STABLE, 2, {FIRST: "b", SECOND: "b"})
    summary = observed.summary()
    assert (summary.completed, summary.last_ms, summary.last_moved) == (2, 0, 2)


def test_a_change_without_a_new_assignment_is_no_rebalance() -> None:
    observed = stable_group()
    before = observed.summary()
    observed.change(GroupState.STABLE, 1, {FIRST: "c"})
    assert observed.summary() == before


def test_a_group_that_becomes_empty_does_not_rebalance() -> None:
    observed = stable_group()
    observed.change(GroupState.PREPARING_REBALANCE, 1)
    observed.change(GroupState.EMPTY, 2)
    summary = observed.summary()
    assert (summary.completed, summary.running_ms) == (1, None)
    observed.change(GroupState.STABLE, 3, {FIRST: "b"})
    assert observed.summary().last_moved == 0, "nobody had the stream before"


def test_deleted_streams_do_not_count() -> None:
    observed = stable_group()
    observed.change(GroupState.PREPARING_REBALANCE, 1)
    del observed.ends[FIRST]
    observed.ends[SECOND] += 3
    observed.change(GroupState.STABLE, 2, {SECOND: "a"})
    assert (observed.summary().last_moved, observed.summary().last_arrived) == (0, 3)


def test_the_assignment_of_a_stored_group_is_not_new() -> None:
    observed = Observed()
    observed.rebalances.restore("g", 4, {FIRST: "a"})
    observed.change(GroupState.STABLE, 4, {FIRST: "a"})
    assert observed.summary() == RebalanceSummary()


def test_a_forgotten_group_begins_anew() -> None:
    observed = stable_group()
    observed.rebalances.forget("g")
    assert observed.summary() == RebalanceSummary()


def described(protocol_type: str, *members: MemberDescription) -> GroupDescription:
    kind = GroupKind.MEMBER_ASSIGNED
    return GroupDescription("g", kind, GroupState.STABLE, protocol_type, "range", 1, members)


def test_owners_are_read_from_assignments_of_both_protocols() -> None:
    known = KnownTopics(1, {"orders": AssignableTopic(ORDERS, 2)})
    assignment = write_assignment(1, {"orders": [0], "gone": [1]})
    old = MemberDescription("a", None, "c", "here", assignment=assignment)
    new = MemberDescription("b-2", "b", "c", "here", streams=frozenset([SECOND]))
    assert find_owners(described("consumer", old, new), known) == {FIRST: "a", SECOND: "b"}


def test_assignments_that_the_broker_cannot_read_have_no_owners() -> None:
    known = KnownTopics(1, {"orders": AssignableTopic(ORDERS, 2)})
    odd = MemberDescription("a", None, "c", "here", assignment=b"?")
    whole = MemberDescription("a", None, "c", "here", assignment=write_assignment(1, {"orders": [0]}))
    assert find_owners(described("consumer", odd), known) == {}
    assert find_owners(described("connect", whole), known) == {}
