"""Group coordinator: finds groups, stores the state that must survive a restart, runs their timeouts, and answers
waiting requests. The groups themselves make all decisions."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import cast
from uuid import UUID

from trimq.clock import Clock, Timer
from trimq.core.groups.assignable_topics import AssignableTopics
from trimq.core.groups.assigned_group import AssignedGroup, HeartbeatResult, MemberHeartbeat
from trimq.core.groups.assigned_member import JOINING_EPOCH, StoredAssignedGroup, StoredAssignedMember
from trimq.core.groups.assignors import ASSIGNORS
from trimq.core.groups.classic_group import ClassicGroup
from trimq.core.groups.group import (
    Claim,
    CursorChange,
    GroupDescription,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    SyncRequest,
    SyncResult,
    WaiterResult,
)
from trimq.core.groups.migration import downgrade_group, upgrade_group
from trimq.core.groups.rebalances import Rebalances, RebalanceSummary, find_owners
from trimq.core.groups.store import GroupSettings, GroupStore, StoredGroup
from trimq.core.metadata.cursors import Cursors
from trimq.errors import GroupNotEmpty, LimitReached, Refusal, UnknownGroup
from trimq.errors.groups import UnknownAssignor, UnknownMember
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Passes, Ticket

GroupCallback = Callable[[JoinResult | SyncResult | Refusal, Ticket | None], None]
Group = ClassicGroup | AssignedGroup

HEARTBEAT_MS = 5_000
SESSION_MS = 45_000

_SWEEP_MS = 600_000

# A group that lost its last cursor, or that a client only tried to join, is known until the next sweep, as in Kafka.
_MAX_VACANT = 1_000

# Groups that are swept in one turn of the loop: 20,000 at once would delay all clients by a tenth of a second.
_SWEPT_AT_ONCE = 200


class GroupCoordinator:
    """`retention_ms`: time, in message time, for which the cursors of an unused group are kept. `drop_pending` removes
    a group's cursors, or the one of a stream, from open transactions."""

    def __init__(
        self,
        store: GroupStore,
        cursors: Cursors,
        passes: Passes,
        clock: Clock,
        topics: AssignableTopics,
        new_id: Callable[[], UUID],
        initial_delay_ms: int,
        retention_ms: int,
        drop_pending: Callable[[str, StreamId | None], Ticket | None],
        rebalances: Rebalances,
        group_limit: int,
    ) -> None:
        self._group_limit = group_limit
        self._store = store
        self._cursors = cursors
        self._passes = passes
        self._clock = clock
        self._topics = topics
        self._new_id = new_id
        self._initial_delay_ms = initial_delay_ms
        self._retention_ms = retention_ms
        self._drop_pending = drop_pending
        self._rebalances = rebalances
        self._groups: dict[str, Group] = {}
        self._vacant: dict[str, None] = {}
        """Groups without a member, a generation and a cursor; the latest ones are the last."""
        self._emptied_ms: dict[str, int] = {}
        self._unsettled: dict[str, Ticket] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self.is_taken: Callable[[str], bool] = lambda group: False
        """Whether clients of another protocol take messages for this group: its cursors are in use."""
        self._sweep_timer: Timer | None = None

    # -- life cycle

    def open(self) -> None:
        """Loads the stored groups."""
        for name, kept, members in self._store.load():
            group = self._groups[name] = self._restore(name, kept, members)
            self._rebalances.restore(name, group.generation, find_owners(group.describe(), self._topics.known()))
            if kept.emptied_ms is not None:
                self._emptied_ms[name] = kept.emptied_ms

    def _restore(self, name: str, kept: StoredGroup, members: list[StoredAssignedMember]) -> Group:
        now_ms = self._clock.liveness.now_ms()
        if isinstance(kept, StoredAssignedGroup):
            session_ms = self._store.settings(name).session_ms or SESSION_MS
            return AssignedGroup.restore(name, kept, members, session_ms, now_ms)
        return ClassicGroup.restore(name, kept, self._initial_delay_ms, now_ms)

    def start(self) -> None:
        for group in self._groups.values():
            self._arm(group)
        self._await_sweep()

    def stop(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    # -- groups

    def names(self) -> Iterator[str]:
        """Yields the groups that have or had members, or have cursors, if only in an open transaction, and those known
        until the next sweep. The broker may work meanwhile: a group may be deleted before it is yielded."""
        seen = set(known := list({**dict.fromkeys(self._groups), **self._vacant}))
        yield from known
        for name in self._cursors.groups():
            if name not in seen:
                yield name
        for name in sorted(self._cursors.unstable_groups()):
            if name not in seen and not self._cursors.all(name):
                yield name

    def has(self, name: str) -> bool:
        return name in self._groups or name in self._vacant or self._has_cursors(name)

    def _has_cursors(self, name: str) -> bool:
        return bool(self._cursors.all(name)) or bool(self._cursors.unstable(name))

    @property
    def is_used(self) -> bool:
        return bool(self._groups) or bool(self._vacant) or bool(self._cursors.groups())

    def has_members(self, name: str) -> bool:
        return name in self._groups and bool(self.describe(name).members)

    def describe(self, name: str) -> GroupDescription:
        return self._find(name).describe()

    def rebalances(self, name: str) -> RebalanceSummary:
        return self._rebalances.summary(name, self._clock.liveness.now_ms())

    def delete(self, name: str) -> Ticket | None:
        """Deletes the group and its cursors, also those in open transactions. Returns None if nothing was stored."""
        if self._find(name).state is not GroupState.EMPTY or self.is_taken(name):
            raise GroupNotEmpty(name)
        dropped = self._drop_pending(name, None)
        return self._forget(name) or dropped

    def _find(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is not None:
            return group
        if not self.has(name):
            raise UnknownGroup(name)
        return ClassicGroup(name)  # non-members have committed offsets, or a client tried to join

    def _classic(self, name: str, member: str) -> ClassicGroup:
        group = self._groups.get(name)
        if not isinstance(group, ClassicGroup):
            raise UnknownMember(member)
        return group

    def _forget(self, name: str) -> Ticket | None:
        self._groups.pop(name, None)
        self._vacant.pop(name, None)
        self._emptied_ms.pop(name, None)
        self._disarm(name)
        self._rebalances.forget(name)
        deleted = self._cursors.delete(name)
        return self._store.forget(name) or deleted

    # -- members of classic groups

    def join(self, name: str, request: JoinRequest, answer: GroupCallback) -> None:
        """Calls `answer` once, perhaps before this returns. If this raises a refusal, `answer` is not called."""
        origin = request.client_id if request.instance is None else request.instance
        new_name = f"{origin}-{self._new_id()}"
        mixed = self._mixed(name)
        if mixed is not None:
            new_name = short_name(self._new_id())
            joined = mixed.join_classic(request, new_name, self._topics.known(), self._clock.liveness.now_ms())
            answer(joined, self._keep_changes(mixed))
            self._arm(mixed)
            self._downgrade_if_due(mixed)
            return
        group = self._classic_to_join(name, request)
        try:
            decisions = group.join(request, new_name, answer, self._clock.liveness.now_ms())
            self._carry_out(group, decisions)
        finally:
            self._arm(group)
            self._drop_unused(group)

    def _classic_to_join(self, name: str, request: JoinRequest) -> ClassicGroup:
        group = self._groups.get(name)
        if isinstance(group, AssignedGroup):
            self._disarm(name)
            group = self._groups[name] = ClassicGroup(name, self._initial_delay_ms)
        if group is None:
            if request.member:
                raise UnknownMember(request.member)
            self._require_room()
            group = self._groups[name] = ClassicGroup(name, self._initial_delay_ms)
        return group

    def _mixed(self, name: str) -> AssignedGroup | None:
        """Returns the group if it is broker-assigned and has members, which classic members may join."""
        group = self._groups.get(name)
        return group if isinstance(group, AssignedGroup) and group.has_members else None

    def sync(self, name: str, request: SyncRequest, answer: GroupCallback) -> None:
        """Same as `join`."""
        mixed = self._mixed(name)
        if mixed is not None:
            try:
                synced = mixed.sync_classic(request, self._topics.known(), self._clock.liveness.now_ms())
            finally:
                self._arm(mixed)
            answer(synced, self._unsettled.get(name))
            return
        group = self._classic(name, request.member)
        self._carry_out(group, group.sync(request, answer, self._clock.liveness.now_ms()))
        self._arm(group)

    def heartbeat(self, name: str, member: str, instance: str | None, generation: int) -> None:
        now_ms = self._clock.liveness.now_ms()
        mixed = self._mixed(name)
        if mixed is None:
            self._classic(name, member).heartbeat(member, instance, generation, now_ms)
            return
        try:
            mixed.heartbeat_classic(member, instance, generation, now_ms)
        finally:
            self._arm(mixed)

    def leave(self, name: str, leavers: Sequence[LeaveRequest]) -> list[Refusal | None]:
        """Returns for each leaving member None or a refusal."""
        group = self._groups.get(name)
        if isinstance(group, AssignedGroup):
            left = group.leave_classic(leavers)
            self._downgrade_or_keep(group)
            return left
        if not isinstance(group, ClassicGroup):
            return [UnknownMember(leaver.member) for leaver in leavers]
        refusals, decisions = group.leave(leavers, self._clock.liveness.now_ms())
        self._carry_out(group, decisions)
        self._arm(group)
        self._drop_unused(group)
        return refusals

    # -- members of broker-assigned groups

    def heartbeat_assigned(self, name: str, request: MemberHeartbeat) -> tuple[HeartbeatResult, Ticket | None]:
        """The result is valid once the ticket's pass is durable and not refused; without a ticket, at once."""
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            raise UnknownAssignor(request.assignor, tuple(ASSIGNORS))
        if not request.member:
            request = replace(request, member=short_name(self._new_id()))
        group = self._assigned(name, request)
        session_ms = self._store.settings(name).session_ms or SESSION_MS
        heartbeat = group.heartbeat(request, self._topics.known(), session_ms, self._clock.liveness.now_ms())
        before = self._groups.get(name)
        if before is not group:
            self._disarm(name)
            self._groups[name] = group
        ticket = self._keep_changes(group)
        if isinstance(before, ClassicGroup):
            self._answer(before.give_way(), None)
        return heartbeat, ticket

    def leave_assigned(self, name: str, request: MemberHeartbeat) -> tuple[HeartbeatResult, Ticket | None]:
        """Same as `heartbeat_assigned`."""
        group = self._groups.get(name)
        if not isinstance(group, AssignedGroup):
            raise UnknownGroup(name)
        heartbeat = group.leave(request)
        return heartbeat, self._downgrade_or_keep(group)

    def _downgrade_or_keep(self, group: AssignedGroup) -> Ticket | None:
        """Stores the changes, or makes the group a classic one if only classic members are left."""
        if not self._downgrade_if_due(group):
            return self._keep_changes(group)
        return self._unsettled.get(group.name)

    def _downgrade_if_due(self, group: AssignedGroup) -> bool:
        if not group.is_all_classic:
            return False
        now_ms = self._clock.liveness.now_ms()
        classic = downgrade_group(group, self._topics.known(), self._initial_delay_ms, now_ms)
        self._disarm(group.name)
        self._groups[group.name] = classic
        for name in self._store.members(group.name):
            self._store.keep_member(group.name, name, None)
        self._carry_out(classic, ())
        self._arm(classic)
        return True

    def _assigned(self, name: str, request: MemberHeartbeat) -> AssignedGroup:
        """Returns the group. For a joining member it may be a new one, which is registered once it has a member."""
        group = self._groups.get(name)
        if isinstance(group, AssignedGroup):
            return group
        if request.epoch != JOINING_EPOCH:
            raise UnknownGroup(name)
        if group is None:
            self._require_room()
            return AssignedGroup(name)
        if group.has_members:
            return upgrade_group(group, self._topics.known(), self._clock.liveness.now_ms())
        return AssignedGroup(name)

    def __len__(self) -> int:
        return len(self._groups)

    def _require_room(self) -> None:
        if len(self._groups) >= self._group_limit:
            raise LimitReached("groups", self._group_limit, "limits.groups")

    def settings(self, name: str) -> GroupSettings:
        return self._store.settings(name)

    def with_settings(self) -> list[str]:
        return self._store.with_settings()

    def change_settings(self, name: str, settings: GroupSettings) -> Ticket | None:
        return self._store.change_settings(name, settings)

    # -- cursors

    def commit(self, name: str, claim: Claim, changes: Sequence[CursorChange]) -> list[Ticket | Refusal]:
        """Commits offsets of a group. Returns for each change its ticket or a refusal."""
        outcomes: list[Ticket | Refusal] = []
        for change in changes:
            try:
                self.check_claim(name, claim, change.stream)
            except Refusal as refusal:
                outcomes.append(refusal)
                continue
            outcomes.append(
                self._cursors.commit(name, change.stream, change.offset, change.metadata, change.leader_epoch)
            )
        return outcomes

    def check_claim(
        self, name: str, claim: Claim, stream: StreamId | None = None, is_transactional: bool = False
    ) -> None:
        """Raises a refusal if the committer is not a current member of the group, or does not hold the stream."""
        try:
            group = self._find(name)
        except UnknownGroup:
            if claim.generation < 0:
                self._keep_name(name)  # the first commit of a non-member creates the group, also if no offset is good
                return
            raise
        if isinstance(group, AssignedGroup):
            group.check_claim(claim, stream, is_transactional)
        else:
            group.check_claim(claim, is_transactional, self._clock.liveness.now_ms())

    def check_reader(self, name: str, claim: Claim) -> None:
        """Raises a refusal if the caller claims to be a member of a broker-assigned group and is none."""
        group = self._groups.get(name)
        if isinstance(group, AssignedGroup):
            group.check_reader(claim)

    def delete_cursor(self, name: str, stream: StreamId) -> Ticket | None:
        """Deletes the group's cursor of a stream. Returns None if there was none."""
        dropped = self._drop_pending(name, stream)
        deleted = self._cursors.delete_stream(name, stream) or dropped
        if deleted is not None and not self.has(name):
            self._keep_name(name)
        return deleted

    # -- results and storage

    def _carry_out(self, group: ClassicGroup, decisions: Iterable[WaiterResult]) -> None:
        if group.needs_save:
            self._save(group)
        self._observe(group)
        self._answer(decisions, self._unsettled.get(group.name))

    @staticmethod
    def _answer(decisions: Iterable[WaiterResult], ticket: Ticket | None) -> None:
        for waiter, outcome in decisions:
            cast(GroupCallback, waiter)(outcome, None if isinstance(outcome, Refusal) else ticket)

    def _keep_changes(self, group: AssignedGroup) -> Ticket | None:
        """Stores the changes. Returns the ticket that the response depends on, also for earlier changes by other
        members that are not durable yet."""
        ticket = self._unsettled.get(group.name)
        if ticket is not None and ticket.refusal is not None:
            # The response builds on state that could not be written.
            group.mark_all_changed(self._store.members(group.name))
        if group.changed or group.needs_save:
            # The group last: its ticket is of the same pass, and covers the members too.
            for name, member in group.changed.items():
                self._store.keep_member(group.name, name, member)
            group.changed.clear()
            self._save(group)
            self._observe(group)
            self._arm(group)
        return self._unsettled.get(group.name)

    def _observe(self, group: Group) -> None:
        def owners() -> dict[StreamId, str]:
            return find_owners(group.describe(), self._topics.known())

        self._rebalances.observe(group.name, group.state, group.generation, owners, self._clock.liveness.now_ms())

    def _save(self, group: Group) -> None:
        group.needs_save = False
        if group.has_members:
            self._emptied_ms.pop(group.name, None)
        else:
            self._emptied_ms[group.name] = self._clock.message.now_ms()
        ticket = self._store.keep(group.name, group.kept(self._emptied_ms.get(group.name)))
        self._unsettled[group.name] = ticket
        self._passes.on_durable(ticket, lambda done: self._was_kept(group, done))

    def _was_kept(self, group: Group, ticket: Ticket) -> None:
        if self._unsettled.get(group.name) is ticket:
            del self._unsettled[group.name]
        if ticket.refusal is None or self._groups.get(group.name) is not group:
            return
        if isinstance(group, AssignedGroup):
            # Stored again with the next event: the disk may have space by then.
            group.mark_all_changed(self._store.members(group.name))
            return
        decisions = group.lose_assignment(self._clock.liveness.now_ms())
        self._carry_out(group, decisions)
        group.needs_save = True
        self._arm(group)

    # -- timers

    def _arm(self, group: Group) -> None:
        """Sets the timer of the group. Heartbeats postpone the due time; this is checked when the timer fires."""
        due_ms = group.next_due_ms()
        armed = self._timers.get(group.name)
        if due_ms is None or (armed is not None and armed[0] <= due_ms):
            return
        self._disarm(group.name)
        timer = self._clock.liveness.call_at(due_ms, lambda: self._wake(group.name))
        self._timers[group.name] = due_ms, timer

    def _disarm(self, name: str) -> None:
        armed = self._timers.pop(name, None)
        if armed is not None:
            armed[1].cancel()

    def _wake(self, name: str) -> None:
        del self._timers[name]
        group = self._groups[name]
        now_ms = self._clock.liveness.now_ms()
        if isinstance(group, AssignedGroup):
            group.expire(now_ms)
            self._downgrade_or_keep(group)
            group = self._groups[name]
        else:
            self._carry_out(group, group.expire(now_ms))
        self._arm(group)
        self._drop_unused(group)

    def _drop_unused(self, group: Group) -> None:
        """Drops a group that never had a generation: a name that a client tried once must not stay in memory beyond
        the next sweep."""
        if group.is_unused and not group.generation:
            if self._groups.pop(group.name, None) is not None:
                self._keep_name(group.name)
            self._disarm(group.name)
            self._rebalances.forget(group.name)

    def _keep_name(self, name: str) -> None:
        self._vacant.pop(name, None)
        self._vacant[name] = None
        if len(self._vacant) > _MAX_VACANT:
            del self._vacant[next(iter(self._vacant))]

    def _await_sweep(self) -> None:
        timeline = self._clock.message
        self._sweep_timer = timeline.call_at(timeline.now_ms() + _SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        """Deletes expired cursors of unused groups, and empty groups without cursors."""
        before_ms = self._clock.message.now_ms() - self._retention_ms
        self._sweep_some(self.names(), before_ms)

    def _sweep_some(self, names: Iterator[str], before_ms: int) -> None:
        """Sweeps some of these groups, and the others in later turns of the loop."""
        some = list(islice(names, _SWEPT_AT_ONCE))
        for name in some:
            if self.has(name):
                self._sweep_group(name, before_ms)
        if some:
            timeline = self._clock.message
            self._sweep_timer = timeline.call_at(timeline.now_ms(), lambda: self._sweep_some(names, before_ms))
        else:
            self._await_sweep()

    def _sweep_group(self, name: str, before_ms: int) -> None:
        group = self._find(name)
        if group.state is not GroupState.EMPTY or not group.is_unused or self.is_taken(name):
            return
        if self._emptied_ms.get(name, 0) <= before_ms:
            self._forget_old(name, before_ms)
        if not self._has_cursors(name):
            self._forget(name)

    def _forget_old(self, name: str, before_ms: int) -> None:
        for stream, cursor in list(self._cursors.all(name).items()):
            if cursor.committed_ms <= before_ms and not self._cursors.is_unstable(name, stream):
                self._cursors.delete_stream(name, stream)


def short_name(id: UUID) -> str:
    """Encodes an id in 22 characters, for members without an id of their own."""
    return base64.urlsafe_b64encode(id.bytes)[:22].decode()
