from __future__ import annotations

from dataclasses import replace

import pytest

from trimq.core.groups.classic_group import NEW_MEMBER_MS, ClassicGroup
from trimq.core.groups.group import (
    Claim,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    MemberMetadata,
    OfferedProtocol,
    SyncRequest,
    SyncResult,
    WaiterResult,
)
from trimq.errors.groups import (
    InstanceFenced,
    MemberNameNeeded,
    NothingInCommon,
    Rebalancing,
    StaleGeneration,
    UnknownMember,
)

ASKED = JoinRequest(
    member="",
    instance=None,
    protocol_type="consumer",
    offers=(OfferedProtocol("range", b"r"), OfferedProtocol("robin", b"o")),
    session_ms=10_000,
    rebalance_ms=60_000,
    client_id="client",
    host="here",
    requires_member_id=False,
)


def join(group: ClassicGroup, name: str, now_ms: int = 0, **changes: object) -> list[WaiterResult]:
    """Joins as a new member that gets this id; the waiter has the same name."""
    return group.join(replace(ASKED, **changes), name, name, now_ms)


def rejoin(group: ClassicGroup, name: str, now_ms: int = 0, **changes: object) -> list[WaiterResult]:
    return group.join(replace(ASKED, member=name, **changes), "unused", name, now_ms)


def sync(
    group: ClassicGroup, name: str, shares: dict[str, bytes] | None = None, now_ms: int = 0, **changes: object
) -> list[WaiterResult]:
    asked = SyncRequest(name, None, group.generation, "consumer", group.strategy, shares or {})
    return group.sync(replace(asked, **changes), name, now_ms)


def outcomes(decisions: list[WaiterResult]) -> dict[object, object]:
    return {decision.waiter: decision.outcome for decision in decisions}


def assignments(decisions: list[WaiterResult]) -> dict[object, bytes]:
    return {
        decision.waiter: decision.outcome.assignment
        for decision in decisions
        if isinstance(decision.outcome, SyncResult)
    }


def stable_pair(**changes: object) -> ClassicGroup:
    """Returns a stable group in generation 2: `a` leads, `b` follows."""
    group = ClassicGroup("g")
    join(group, "a", **changes)
    sync(group, "a", {"a": b"all"})
    join(group, "b", **changes)
    rejoin(group, "a", **changes)
    sync(group, "b")
    sync(group, "a", {"a": b"A", "b": b"B"})
    assert (group.state, group.generation) == (GroupState.STABLE, 2)
    return group


def test_the_first_member_leads_a_group_of_its_own_at_once() -> None:
    group = ClassicGroup("g")
    (decision,) = join(group, "a")
    assert decision == WaiterResult(
        "a", JoinResult("a", 1, "consumer", "range", "a", (MemberMetadata("a", None, b"r"),), skips_assignment=False)
    )
    assert group.state is GroupState.ASSIGNING
    assert assignments(sync(group, "a", {"a": b"x", "nobody": b"y"})) == {"a": b"x"}
    assert group.state is GroupState.STABLE
    assert group.needs_save


def test_a_new_member_must_join_again_with_its_member_id_and_starts_no_rebalance() -> None:
    group = stable_pair()
    with pytest.raises(MemberNameNeeded) as refused:
        join(group, "c", requires_member_id=True)
    assert refused.value.member == "c"
    assert group.state is GroupState.STABLE
    group.expire(9_999)
    rejoin(group, "c", 9_999)
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_member_id_that_is_not_used_in_time_is_removed() -> None:
    group = ClassicGroup("g")
    with pytest.raises(MemberNameNeeded):
        join(group, "a", requires_member_id=True)
    assert not group.is_unused
    assert group.next_due_ms() == 10_000
    group.expire(10_000)
    assert group.is_unused
    with pytest.raises(UnknownMember):
        rejoin(group, "a", 10_000)


def test_a_joining_member_starts_a_rebalance() -> None:
    group = ClassicGroup("g")
    join(group, "a")
    sync(group, "a", {"a": b"all"})
    assert join(group, "b") == []
    assert group.state is GroupState.PREPARING_REBALANCE
    with pytest.raises(Rebalancing):
        group.heartbeat("a", None, 1, 0)
    with pytest.raises(Rebalancing):
        sync(group, "a")
    answers = outcomes(rejoin(group, "a"))
    assert [answer.generation for answer in answers.values()] == [2, 2]
    assert [member.member for member in answers["a"].members] == ["a", "b"]
    assert answers["b"].members == ()
    assert answers["b"].leader == "a"


def test_followers_wait_for_the_leader_and_members_it_omits_get_an_empty_assignment() -> None:
    group = ClassicGroup("g")
    join(group, "a")
    join(group, "b")
    rejoin(group, "a", offers=(OfferedProtocol("range", b"new"),))
    assert sync(group, "b") == []
    assert assignments(sync(group, "a", {"a": b"A"})) == {"a": b"A", "b": b""}
    assert assignments(sync(group, "b")) == {"b": b""}


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([("p", "q"), ("q", "p"), ("q", "p")], "q"),
        ([("p", "q"), ("q", "p")], "p"),
        ([("p", "q"), ("q",)], "q"),
        ([("p", "q"), ("r", "q")], "q"),
    ],
)
def test_the_protocol_is_one_that_all_members_support_and_most_prefer(
    offers: list[tuple[str, ...]], chosen: str
) -> None:
    group = ClassicGroup("g", initial_delay_ms=10)
    for number, names in enumerate(offers):
        join(group, f"m{number}", offers=tuple(OfferedProtocol(name, b"") for name in names))
    group.expire(10)
    group.expire(20)
    assert group.strategy == chosen


@pytest.mark.parametrize(
    "changes",
    [
        {"offers": ()},
        {"protocol_type": ""},
        {"protocol_type": "connect"},
        {"offers": (OfferedProtocol("unknown", b""),)},
        {"offers": (OfferedProtocol("unknown", b""),), "instance": "i"},
    ],
)
def test_a_member_without_a_common_protocol_is_refused(changes: dict[str, object]) -> None:
    group = stable_pair()
    with pytest.raises(NothingInCommon):
        join(group, "c", **changes)
    assert group.state is GroupState.STABLE


def test_an_empty_group_takes_members_of_any_protocol_type() -> None:
    group = ClassicGroup("g")
    join(group, "a")
    group.leave([LeaveRequest("a", None)], 0)
    assert group.state is GroupState.EMPTY
    join(group, "b", protocol_type="connect")
    assert group.describe().protocol_type == "connect"


def test_the_generation_rises_also_when_the_group_empties() -> None:
    group = ClassicGroup("g")
    join(group, "a")
    sync(group, "a")
    group.needs_save = False
    assert group.leave([LeaveRequest("a", None)], 0) == ([None], [])
    assert (group.state, group.generation, group.needs_save) == (GroupState.EMPTY, 2, True)
    join(group, "b")
    assert group.generation == 3


@pytest.mark.parametrize("leaver", ["a", "b"])
def test_when_a_member_leaves_the_other_is_notified_and_leads(leaver: str) -> None:
    group = stable_pair()
    stays = "b" if leaver == "a" else "a"
    assert group.leave([LeaveRequest(leaver, None)], 0) == ([None], [])
    assert group.state is GroupState.PREPARING_REBALANCE
    with pytest.raises(UnknownMember):
        group.heartbeat(leaver, None, 2, 0)
    with pytest.raises(Rebalancing):
        group.heartbeat(stays, None, 2, 0)
    answer = outcomes(rejoin(group, stays))[stays]
    assert (answer.generation, answer.leader, len(answer.members)) == (3, stays, 1)


def test_a_rebalance_begins_when_a_member_leaves_that_has_not_joined_with_its_id() -> None:
    group = stable_pair()
    with pytest.raises(MemberNameNeeded):
        join(group, "c", requires_member_id=True)
    refusals, _ = group.leave([LeaveRequest("nobody", None)], 0)
    assert isinstance(refusals[0], UnknownMember)
    assert group.state is GroupState.STABLE
    assert group.leave([LeaveRequest("c", None)], 0) == ([None], [])
    assert group.state is GroupState.PREPARING_REBALANCE


def test_an_empty_group_stays_empty_when_a_member_leaves_that_has_not_joined_with_its_id() -> None:
    group = ClassicGroup("g")
    with pytest.raises(MemberNameNeeded):
        join(group, "c", requires_member_id=True)
    assert group.leave([LeaveRequest("c", None)], 0) == ([None], [])
    assert (group.state, group.generation, group.is_unused) == (GroupState.EMPTY, 0, True)


def test_a_member_without_heartbeats_is_removed() -> None:
    group = stable_pair()
    group.heartbeat("a", None, 2, 9_000)
    group.expire(10_000)
    assert [member.id for member in group.describe().members] == ["a"]
    assert group.state is GroupState.PREPARING_REBALANCE
    rejoin(group, "a", 10_500)
    assert group.state is GroupState.ASSIGNING


def test_a_member_whose_join_is_pending_needs_no_heartbeats() -> None:
    group = stable_pair()
    rejoin(group, "b", 0, offers=(OfferedProtocol("range", b"new"),))
    for now_ms in range(0, 50_000, 5_000):
        with pytest.raises(Rebalancing):
            group.heartbeat("a", None, 2, now_ms)
        assert group.expire(now_ms) == []
    assert len(group.describe().members) == 2


def test_a_rebalance_ends_without_members_that_do_not_rejoin() -> None:
    group = stable_pair(session_ms=600_000)
    rejoin(group, "b", 100, offers=(OfferedProtocol("range", b"new"),))
    assert group.next_due_ms() == 60_100
    (decision,) = group.expire(60_100)
    assert (decision.waiter, decision.outcome.generation, decision.outcome.leader) == ("b", 3, "b")
    with pytest.raises(UnknownMember):
        group.heartbeat("a", None, 2, 60_100)


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_expires() -> None:
    group = ClassicGroup("g")
    join(group, "a", instance="A", session_ms=600_000)
    sync(group, "a", {}, instance="A")
    join(group, "b", 0)
    (decision,) = group.expire(60_000)
    assert decision.waiter == "b"
    assert [member.member for member in decision.outcome.members] == ["a", "b"]


def test_a_member_that_joins_but_never_syncs_is_removed() -> None:
    group = stable_pair(session_ms=600_000)
    rejoin(group, "a", session_ms=600_000)
    rejoin(group, "b", session_ms=600_000)
    assert group.state is GroupState.ASSIGNING
    sync(group, "a", {"a": b"A"})
    assert group.state is GroupState.STABLE
    assert group.next_due_ms() == 60_000
    group.expire(60_000)
    assert [member.id for member in group.describe().members] == ["a"]
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_new_member_whose_client_disconnected_is_removed() -> None:
    group = stable_pair(session_ms=600_000, rebalance_ms=2 * NEW_MEMBER_MS)
    join(group, "c", rebalance_ms=2 * NEW_MEMBER_MS)
    (decision,) = group.expire(NEW_MEMBER_MS)
    assert decision.waiter == "c"
    assert isinstance(decision.outcome, UnknownMember)


def test_a_rebalance_ends_pending_syncs() -> None:
    group = ClassicGroup("g")
    join(group, "a")
    join(group, "b")
    rejoin(group, "a", offers=(OfferedProtocol("range", b"new"),))
    sync(group, "b")
    (decision,) = join(group, "c")
    assert decision.waiter == "b"
    assert isinstance(decision.outcome, Rebalancing)


def test_a_repeated_join_ends_the_first_with_rebalancing() -> None:
    group = stable_pair()
    group.join(replace(ASKED, member="b", offers=(OfferedProtocol("range", b"1"),)), "", "first", 0)
    (decision,) = group.join(replace(ASKED, member="b", offers=(OfferedProtocol("range", b"1"),)), "", "second", 0)
    assert decision.waiter == "first"
    assert isinstance(decision.outcome, Rebalancing)
    assert set(outcomes(rejoin(group, "a"))) == {"second", "a"}


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_unchanged_rejoin_while_assignments_are_pending_gets_the_same_response(name: str) -> None:
    group = ClassicGroup("g")
    join(group, "a")
    join(group, "b")
    first = outcomes(rejoin(group, "a", offers=(OfferedProtocol("range", b"new"),)))
    offers = (OfferedProtocol("range", b"new"),) if name == "a" else ASKED.offers
    assert outcomes(rejoin(group, name, offers=offers)) == {name: first[name]}


@pytest.mark.parametrize(
    ("name", "offers", "state"),
    [
        ("b", ASKED.offers, GroupState.STABLE),
        ("b", (OfferedProtocol("range", b"new"),), GroupState.PREPARING_REBALANCE),
        ("a", ASKED.offers, GroupState.PREPARING_REBALANCE),
    ],
)
def test_a_stable_group_rebalances_when_its_leader_rejoins_or_metadata_changes(
    name: str, offers: tuple[OfferedProtocol, ...], state: GroupState
) -> None:
    group = stable_pair()
    rejoin(group, name, offers=offers)
    assert group.state is state


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"generation": 9}, StaleGeneration),
        ({"member": "nobody"}, UnknownMember),
        ({"strategy": "other"}, NothingInCommon),
        ({"protocol_type": "other"}, NothingInCommon),
        ({"instance": "nobody"}, UnknownMember),
    ],
)
def test_a_sync_with_a_wrong_generation_or_protocol_is_refused(
    changes: dict[str, object], refusal: type[Exception]
) -> None:
    group = stable_pair()
    with pytest.raises(refusal):
        sync(group, "a", **changes)


# -- static members


def static_pair() -> ClassicGroup:
    group = ClassicGroup("g", initial_delay_ms=1)
    join(group, "a", instance="A")
    join(group, "b", instance="B")
    group.expire(1)
    group.expire(2)
    sync(group, "b", instance="B")
    sync(group, "a", {"a": b"A", "b": b"B"}, instance="A")
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    group.needs_save = False
    return group


def test_a_static_follower_rejoins_under_a_new_member_id_without_a_rebalance() -> None:
    group = static_pair()
    (decision,) = join(group, "b2", instance="B")
    assert decision.outcome == JoinResult("b2", 1, "consumer", "range", "a")
    assert (group.state, group.needs_save) == (GroupState.STABLE, True)
    assert assignments(sync(group, "b2", instance="B")) == {"b2": b"B"}
    for instance, refusal in (("B", InstanceFenced), (None, UnknownMember)):
        with pytest.raises(refusal):
            group.heartbeat("b", instance, 1, 0)


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_static_leader_rejoins_without_a_rebalance(may_skip: bool) -> None:
    group = static_pair()
    (decision,) = join(group, "a2", instance="A", may_skip_assignment=may_skip)
    answer = decision.outcome
    assert answer.skips_assignment is may_skip
    assert answer.leader == ("a2" if may_skip else "a")
    assert len(answer.members) == (2 if may_skip else 0)
    assert group.state is GroupState.STABLE


def test_a_static_member_that_rejoins_with_other_protocols_starts_a_rebalance() -> None:
    group = static_pair()
    assert join(group, "b2", instance="B", offers=(OfferedProtocol("robin", b""),)) == []
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_rejoins_while_assignments_are_pending_is_kept() -> None:
    group = ClassicGroup("g")
    join(group, "x", instance="X")
    (decision,) = join(group, "y", instance="X")
    assert (decision.waiter, decision.outcome.generation, decision.outcome.leader) == ("y", 2, "y")


def test_a_pending_join_under_the_old_member_id_is_fenced() -> None:
    group = static_pair()
    group.join(replace(ASKED, member="b", instance="B", offers=(OfferedProtocol("range", b"new"),)), "", "old", 0)
    decisions = outcomes(join(group, "b2", instance="B"))
    fenced = decisions["old"]
    assert isinstance(fenced, InstanceFenced)
    assert fenced.member == "b"


@pytest.mark.parametrize(
    ("leaver", "refusal"),
    [
        (LeaveRequest("", "B"), None),
        (LeaveRequest("b", "B"), None),
        (LeaveRequest("", "nobody"), UnknownMember),
        (LeaveRequest("nobody", "A"), InstanceFenced),
        (LeaveRequest("", None), UnknownMember),
    ],
)
def test_a_static_member_is_removed_by_its_instance_id(leaver: LeaveRequest, refusal: type[Exception] | None) -> None:
    group = static_pair()
    (found,), _ = group.leave([leaver], 0)
    assert (found is None) if refusal is None else isinstance(found, refusal)
    assert group.state is (GroupState.PREPARING_REBALANCE if refusal is None else GroupState.STABLE)


# -- commits, initial rebalance delay, restart


@pytest.mark.parametrize(
    ("claim", "refusal"),
    [
        (Claim("a", 2), None),
        (Claim("a", 1), StaleGeneration),
        (Claim("a", -1), StaleGeneration),
        (Claim("nobody", 2), UnknownMember),
        (Claim("", 2), UnknownMember),
        (Claim(), UnknownMember),
        (Claim("a", 2, "I"), UnknownMember),
    ],
)
def test_only_members_of_this_generation_commit(claim: Claim, refusal: type[Exception] | None) -> None:
    group = stable_pair()
    if refusal is None:
        group.check_claim(claim, is_transactional=False, now_ms=5)
        return
    with pytest.raises(refusal):
        group.check_claim(claim, is_transactional=False, now_ms=5)


def test_a_transaction_may_commit_without_a_member_id() -> None:
    stable_pair().check_claim(Claim(), is_transactional=True, now_ms=0)


def test_any_client_commits_to_an_empty_group() -> None:
    group = ClassicGroup("g")
    group.check_claim(Claim(), is_transactional=False, now_ms=0)
    with pytest.raises(UnknownMember):
        group.check_claim(Claim("old", 1), is_transactional=False, now_ms=0)


def test_commits_are_accepted_while_members_join_and_refused_while_assignments_are_pending() -> None:
    group = stable_pair()
    rejoin(group, "a")
    group.check_claim(Claim("b", 2), is_transactional=False, now_ms=0)
    rejoin(group, "b")
    with pytest.raises(Rebalancing):
        group.check_claim(Claim("a", 3), is_transactional=False, now_ms=0)


def test_a_commit_extends_the_session() -> None:
    group = stable_pair()
    for name in ("a", "b"):
        group.check_claim(Claim(name, 2), is_transactional=False, now_ms=9_999)
    group.expire(19_998)
    assert len(group.describe().members) == 2


def test_the_initial_rebalance_delay_is_extended_while_members_join() -> None:
    group = ClassicGroup("g", initial_delay_ms=3_000)
    assert join(group, "a", 0) == []
    assert group.next_due_ms() == 3_000
    assert join(group, "b", 2_000) == []
    assert group.expire(3_000) == []
    assert group.next_due_ms() == 6_000
    assert set(outcomes(group.expire(6_000))) == {"a", "b"}
    assert group.generation == 1


def test_members_keep_their_assignments_unless_a_rebalance_follows_before_the_next_ones() -> None:
    group = stable_pair()
    before = [member.assignment for member in group.describe().members]
    assert all(before)
    rejoin(group, "a", offers=(OfferedProtocol("range", b"other"),))
    rejoin(group, "b")
    assert group.state is GroupState.ASSIGNING
    assert [member.assignment for member in group.describe().members] == before
    rejoin(group, "a", offers=(OfferedProtocol("range", b"third"),))
    assert [member.assignment for member in group.describe().members] == [b"", b""]


def test_a_restored_group_has_all_members_and_their_assignments() -> None:
    group = static_pair()
    again = ClassicGroup.restore("g", group.kept(None), 0, now_ms=100)
    assert again.describe() == group.describe()
    assert again.next_due_ms() == 10_100
    again.heartbeat("a", "A", 1, 200)
    assert assignments(sync(again, "b", instance="B")) == {"b": b"B"}


def test_an_assignment_whose_write_failed_is_made_again() -> None:
    group = stable_pair()
    group.lose_assignment(0)
    assert group.state is GroupState.PREPARING_REBALANCE
    with pytest.raises(Rebalancing):
        group.heartbeat("a", None, 2, 0)


def test_a_group_that_was_stored_before_its_assignment_rebalances_after_a_restart() -> None:
    group = stable_pair()
    group.lose_assignment(0)
    restored = ClassicGroup.restore("g", group.kept(None), 0, 100)
    with pytest.raises(Rebalancing):
        restored.heartbeat("b", None, restored.generation, 100)
    assert rejoin(restored, "b", 100) == []
    joined = outcomes(rejoin(restored, "a", 100))
    assert sorted(map(str, joined)) == ["a", "b"]
    sync(restored, "b", now_ms=100)
    assert assignments(sync(restored, "a", {"a": b"one", "b": b"two"}, 100)) == {"a": b"one", "b": b"two"}


def test_a_group_that_was_stored_with_its_assignment_stays_stable_after_a_restart() -> None:
    restored = ClassicGroup.restore("g", stable_pair().kept(None), 0, 100)
    restored.heartbeat("b", None, 2, 100)
    assert assignments(sync(restored, "b", now_ms=100)) == {"b": b"B"}
