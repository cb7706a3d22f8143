"""Classic group: members join, the leader receives the metadata of all members and sends the assignments, each member
receives its own. State machine: an event and the time in, results out. Has no timer and no file, and cannot read the
members' metadata and assignments."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.core.groups.classic_member import ClassicMember, StoredClassicGroup, StoredClassicMember
from trimq.core.groups.classic_roster import Roster
from trimq.core.groups.group import (
    Claim,
    GroupDescription,
    GroupKind,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    SyncRequest,
    SyncResult,
    WaiterResult,
)
from trimq.errors import Refusal, UnknownGroup
from trimq.errors.groups import (
    InstanceFenced,
    MemberNameNeeded,
    NothingInCommon,
    Rebalancing,
    StaleGeneration,
    UnknownMember,
)
from trimq.formats.kafka_subscription import CONSUMER

# A new member does not know its id before its first response, so it cannot send heartbeats. If its client gave up, it
# must not stay in the group forever.
NEW_MEMBER_MS = 300_000


class ClassicGroup:
    """`needs_save` is set when a change must survive a restart; the coordinator clears it when it has stored the
    group."""

    kind = GroupKind.MEMBER_ASSIGNED

    def __init__(self, name: str, initial_delay_ms: int = 0, generation: int = 0) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = generation
        self.strategy: str | None = None
        self.needs_save = False
        self._initial_delay_ms = initial_delay_ms
        self._roster = Roster()
        self._pending_member_ids: dict[str, int] = {}  # from member id to its expiry
        self._unsynced: set[str] = set()
        self._rebalance_deadline_ms: int | None = None
        self._sync_due_ms: int | None = None
        self._is_first_gathering = False
        self._more_came = False
        self._delay_left_ms = 0
        self._decisions: list[WaiterResult] = []
        self._subscriptions: tuple[bytes, ...] | None = None

    # -- stored state

    @classmethod
    def restore(cls, name: str, kept: StoredClassicGroup, initial_delay_ms: int, now_ms: int) -> ClassicGroup:
        """Restores a stored group. Each member gets a whole session timeout to send a heartbeat."""
        group = cls(name, initial_delay_ms, kept.generation)
        group._roster.protocol_type = kept.protocol_type
        group.strategy = kept.strategy
        for each in kept.members:
            member = each.restore()
            member.deadline_ms = now_ms + member.session_ms
            group._roster.add(member)
        group._roster.leader = kept.leader
        group._subscriptions = tuple(member.metadata(kept.strategy) for member in group._roster)
        group.state = GroupState.STABLE if kept.members else GroupState.EMPTY
        if not kept.is_divided:
            group._prepare_rebalance(now_ms)
        return group

    @classmethod
    def downgrade(
        cls, name: str, initial_delay_ms: int, generation: int, members: Sequence[ClassicMember], now_ms: int
    ) -> ClassicGroup:
        """Returns the classic group that a broker-assigned group becomes when only classic members are left. They have
        to rejoin."""
        group = cls(name, initial_delay_ms, generation)
        group._roster.protocol_type = CONSUMER
        for member in members:
            member.deadline_ms = now_ms + member.session_ms
            group._roster.add(member)
        group.strategy = group._roster.select_strategy()
        group.state = GroupState.STABLE
        group._prepare_rebalance(now_ms)
        group.needs_save = True
        return group

    def upgrade(self) -> tuple[Sequence[ClassicMember], str]:
        """Returns the members and their protocol, for the broker-assigned group that this one becomes. Raises a
        refusal if its members are no consumers."""
        if self._roster.protocol_type != CONSUMER:
            raise UnknownGroup(self.name)
        return tuple(self._roster), self.strategy or self._roster.select_strategy()

    def give_way(self) -> list[WaiterResult]:
        """Asks all members with a waiting request to rejoin, after the group became broker-assigned."""
        for member in self._roster:
            for waiting in (member.joining, member.syncing):
                if waiting is not None:
                    self._decide(waiting, Rebalancing(member.id))
        return self._take_results()

    def kept(self, emptied_ms: int | None) -> StoredClassicGroup:
        roster, members = self._roster, [StoredClassicMember.of(member) for member in self._roster]
        agreed = self.generation, roster.protocol_type, self.strategy, roster.leader, members
        is_divided = self.state in (GroupState.STABLE, GroupState.EMPTY)
        return StoredClassicGroup(*agreed, None if members else emptied_ms, is_divided)

    # -- queries

    @property
    def has_members(self) -> bool:
        return len(self._roster) > 0

    @property
    def is_unused(self) -> bool:
        """True if the group has no members and no pending member ids."""
        return not self._roster and not self._pending_member_ids

    def describe(self) -> GroupDescription:
        """Includes the members' metadata and assignments only while the group is stable."""
        strategy = self.strategy if self.state is GroupState.STABLE else None
        members = tuple(member.describe(strategy) for member in self._roster)
        return GroupDescription(
            self.name,
            self.kind,
            self.state,
            self._roster.protocol_type,
            strategy or "",
            self.generation,
            members,
            subscriptions=self._subscriptions,
        )

    def next_due_ms(self) -> int | None:
        """Returns when `expire` has to be called, unless an event happens before."""
        dues = [self._rebalance_deadline_ms, self._sync_due_ms, *self._pending_member_ids.values()]
        dues += [member.deadline_ms for member in self._roster]
        return min((due for due in dues if due is not None), default=None)

    # -- events: each returns the results for waiting requests

    def join(self, request: JoinRequest, new_name: str, waiter: object, now_ms: int) -> list[WaiterResult]:
        """`new_name` is the id for a member that has none."""
        self._roster.check_offers(request)
        if request.member:
            self._join_again(request, waiter, now_ms)
        elif (holder := self._roster.holder(request.instance)) is not None:
            self._take_over(holder, request, new_name, waiter, now_ms)
        elif request.instance is None and request.requires_member_id:
            self._pending_member_ids[new_name] = now_ms + request.session_ms
            raise MemberNameNeeded(new_name)
        else:
            self._add(request, new_name, waiter, now_ms)
        return self._take_results()

    def sync(self, request: SyncRequest, waiter: object, now_ms: int) -> list[WaiterResult]:
        member = self._roster.get(request.member, request.instance)
        self._check_generation(request.generation)
        if request.protocol_type not in (None, self._roster.protocol_type) or request.strategy not in (
            None,
            self.strategy,
        ):
            raise NothingInCommon(f"the group uses the protocol {self.strategy!r}")
        if self.state is GroupState.PREPARING_REBALANCE:
            raise Rebalancing
        if member.syncing is not None:
            self._decide(member.syncing, Rebalancing())  # the client has repeated its request
        member.syncing = waiter
        self._unsynced.discard(member.id)
        if not self._unsynced:
            self._sync_due_ms = None
        if self.state is GroupState.ASSIGNING and member.id == self._roster.leader:
            for each in self._roster:
                each.assignment = request.assignments.get(each.id, b"")
            self.state = GroupState.STABLE
            self.needs_save = True
        if self.state is GroupState.STABLE:
            self._send_assignments(now_ms)
        else:
            member.deadline_ms = None
        return self._take_results()

    def heartbeat(self, member: str, instance: str | None, generation: int, now_ms: int) -> None:
        """Extends the member's session. Raises a refusal if the member has to rejoin."""
        found = self._roster.get(member, instance)
        self._check_generation(generation)
        self._stay_alive(found, now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise Rebalancing

    def leave(self, leavers: Sequence[LeaveRequest], now_ms: int) -> tuple[list[Refusal | None], list[WaiterResult]]:
        """Returns for each leaving member None or a refusal, and the results for waiting requests."""
        refusals = [self._leave(leaver) for leaver in leavers]
        # As in Kafka, the others rejoin even if the only one that left had a member id and had not joined with it.
        self._after_removal(None in refusals and self.state is not GroupState.EMPTY, now_ms)
        return refusals, self._take_results()

    def check_claim(self, claim: Claim, is_transactional: bool, now_ms: int) -> None:
        """Raises a refusal if the committer is not a current member of the group."""
        if claim.generation < 0 and self.state is GroupState.EMPTY:
            return
        if not claim.is_anonymous:
            member = self._roster.get(claim.member, claim.instance)
            self._check_generation(claim.generation)
            self._stay_alive(member, now_ms)
        elif not is_transactional and self.state is not GroupState.EMPTY:
            raise UnknownMember("")
        if not is_transactional and self.state is GroupState.ASSIGNING:
            raise Rebalancing

    def lose_assignment(self, now_ms: int) -> list[WaiterResult]:
        """Begins a new rebalance because the leader's assignments could not be stored."""
        if self.state is GroupState.STABLE:
            for member in self._roster:
                member.assignment = b""
            self._prepare_rebalance(now_ms)
        return self._take_results()

    def expire(self, now_ms: int) -> list[WaiterResult]:
        """Applies all timeouts that are due."""
        late = [name for name, due_ms in self._pending_member_ids.items() if due_ms <= now_ms]
        for name in late:
            del self._pending_member_ids[name]
        silent = [member for member in self._roster if member.is_due(now_ms)]
        for member in silent:
            self._remove(member)
        if late or silent:
            self._after_removal(bool(silent), now_ms)
        if self._rebalance_deadline_ms is not None and self._rebalance_deadline_ms <= now_ms:
            self._gathering_due(now_ms)
        if self._sync_due_ms is not None and self._sync_due_ms <= now_ms:
            for member in self._roster:
                if member.id in self._unsynced:
                    self._remove(member)
            self._prepare_rebalance(now_ms)
        return self._take_results()

    # -- joining

    def _add(self, request: JoinRequest, name: str, waiter: object, now_ms: int) -> None:
        member = ClassicMember.from_request(name, request)
        member.joining = waiter
        member.is_new = True
        member.deadline_ms = now_ms + NEW_MEMBER_MS
        if not self._roster:
            self._roster.protocol_type = request.protocol_type
        self._roster.add(member)
        self._pending_member_ids.pop(name, None)
        self._more_came = True
        self._gather_or_complete(now_ms)

    def _join_again(self, request: JoinRequest, waiter: object, now_ms: int) -> None:
        if request.member in self._pending_member_ids and request.instance is None:
            self._add(request, request.member, waiter, now_ms)
            return
        member = self._roster.get(request.member, request.instance)
        is_unchanged = member.offers == request.offers
        is_leader = member.id == self._roster.leader
        if is_unchanged and (self.state is GroupState.ASSIGNING or (self.state is GroupState.STABLE and not is_leader)):
            self._stay_alive(member, now_ms)
            self._decide(waiter, self._answer(member))
            return
        self._await_others(member, request, waiter)
        self._gather_or_complete(now_ms)

    def _await_others(self, member: ClassicMember, request: JoinRequest, waiter: object) -> None:
        if member.joining is not None:
            self._decide(member.joining, Rebalancing())  # the client has repeated its request
        member.update(request)
        member.joining = waiter
        if not member.is_new:
            member.deadline_ms = None

    def _take_over(self, old: ClassicMember, request: JoinRequest, name: str, waiter: object, now_ms: int) -> None:
        """Replaces a static member by its new process, which has a new member id."""
        for waiting in (old.joining, old.syncing):
            if waiting is not None:
                self._decide(waiting, InstanceFenced(old.instance or "", old.id))
        before = self._roster.leader
        member = ClassicMember.from_request(name, request)
        member.assignment = old.assignment
        member.deadline_ms = now_ms + request.session_ms
        self._roster.replace(old, member)
        if old.id in self._unsynced:
            self._unsynced.remove(old.id)
            self._unsynced.add(name)
        if self.state is GroupState.STABLE and self._roster.select_strategy() == self.strategy:
            self.needs_save = True
            self._decide(waiter, self._answer_to_returned(member, before, request.may_skip_assignment))
            return
        # Otherwise the leader may know only the old id, and would send no assignment for the new one.
        self._await_others(member, request, waiter)
        self._gather_or_complete(now_ms)

    def _answer_to_returned(self, member: ClassicMember, leader_before: str | None, may_skip: bool) -> JoinResult:
        if may_skip:
            return self._answer(member, skips_assignment=member.id == self._roster.leader)
        # An older client that is named as the leader would assign anew: name the leader from before the replacement.
        assert self.strategy is not None
        return JoinResult(member.id, self.generation, self._roster.protocol_type, self.strategy, leader_before or "")

    # -- rebalance

    def _gather_or_complete(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(now_ms)
        else:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        for member in self._roster:
            if self.state is GroupState.ASSIGNING:  # members that sync get no assignment of an older generation
                member.assignment = b""
            if member.syncing is not None:
                self._decide(member.syncing, Rebalancing())
                member.syncing = None
                if member.joining is None:
                    member.deadline_ms = now_ms + member.session_ms
        self._sync_due_ms = None
        self._is_first_gathering = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        if self._is_first_gathering and self._initial_delay_ms > 0:
            self._more_came = False
            self._rebalance_deadline_ms = now_ms + self._initial_delay_ms
            self._delay_left_ms = max(self._roster.rebalance_ms - self._initial_delay_ms, 0)
        elif self._is_first_gathering or self._all_joined():
            self._complete_rebalance(now_ms)
        else:
            self._rebalance_deadline_ms = now_ms + self._roster.rebalance_ms

    def _complete_if_all_joined(self, now_ms: int) -> None:
        if not self._is_first_gathering and self._all_joined():
            self._complete_rebalance(now_ms)

    def _gathering_due(self, now_ms: int) -> None:
        if self._is_first_gathering and self._more_came and self._delay_left_ms:
            self._more_came = False
            delay_ms = min(self._initial_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._rebalance_deadline_ms = now_ms + delay_ms
        else:
            self._complete_rebalance(now_ms)

    def _complete_rebalance(self, now_ms: int) -> None:
        """Begins the next generation, without the members that did not rejoin. Static members may be absent for a
        while."""
        self._rebalance_deadline_ms = None
        for member in self._roster:
            if member.joining is None and member.instance is None:
                self._remove(member)
        if self._roster and not self._roster.find_leader():
            # Only absent static members are left: wait until they rejoin or time out.
            self._rebalance_deadline_ms = now_ms + self._roster.rebalance_ms
            return
        self.generation += 1
        self._unsynced.clear()
        if not self._roster:
            self.state = GroupState.EMPTY
            self.strategy = None
            self.needs_save = True
            return
        self.strategy = self._roster.select_strategy()
        self._subscriptions = tuple(member.metadata(self.strategy) for member in self._roster)
        self.state = GroupState.ASSIGNING
        for member in self._roster:
            if member.joining is not None:
                self._decide(member.joining, self._answer(member))
                member.joining = None
            member.is_new = False
            member.deadline_ms = now_ms + member.session_ms
            self._unsynced.add(member.id)
        self._sync_due_ms = now_ms + self._roster.rebalance_ms

    def _all_joined(self) -> bool:
        return not self._pending_member_ids and self._roster.all_joined

    # -- results

    def _answer(self, member: ClassicMember, skips_assignment: bool = False) -> JoinResult:
        assert self.strategy is not None
        roster = self._roster
        members = roster.offers(self.strategy) if member.id == roster.leader else ()
        leader = roster.leader or ""
        return JoinResult(
            member.id, self.generation, roster.protocol_type, self.strategy, leader, members, skips_assignment
        )

    def _send_assignments(self, now_ms: int) -> None:
        assert self.strategy is not None
        for member in self._roster:
            if member.syncing is not None:
                self._decide(member.syncing, SyncResult(self._roster.protocol_type, self.strategy, member.assignment))
                member.syncing = None
                member.deadline_ms = now_ms + member.session_ms

    def _decide(self, waiter: object, outcome: JoinResult | SyncResult | Refusal) -> None:
        self._decisions.append(WaiterResult(waiter, outcome))

    def _take_results(self) -> list[WaiterResult]:
        decisions, self._decisions = self._decisions, []
        return decisions

    # -- members

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise StaleGeneration(generation, self.generation)

    def _stay_alive(self, member: ClassicMember, now_ms: int) -> None:
        if member.deadline_ms is not None and not member.is_new:
            member.deadline_ms = now_ms + member.session_ms

    def _leave(self, leaver: LeaveRequest) -> Refusal | None:
        name = leaver.member
        holder = self._roster.holder(leaver.instance)
        if not name and holder is not None:
            name = holder.id
        try:
            self._remove(self._roster.get(name, leaver.instance))
        except Refusal as refusal:
            return None if self._pending_member_ids.pop(name, None) is not None else refusal
        return None

    def _remove(self, member: ClassicMember) -> None:
        self._roster.remove(member)
        self._unsynced.discard(member.id)
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                self._decide(waiting, UnknownMember(member.id))

    def _after_removal(self, members_went: bool, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(now_ms)
        elif members_went:
            self._prepare_rebalance(now_ms)
