"""Operations on consumer groups that front-ends may call, reached as `broker.groups`. Each checks the caller's
rights, then delegates; there is no logic here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trimq.core.crossing.groups import SharedGroups, Takers
from trimq.core.groups.assigned_group import HeartbeatResult, MemberHeartbeat
from trimq.core.groups.coordinator import GroupCallback, GroupCoordinator
from trimq.core.groups.group import (
    NO_MEMBER,
    Claim,
    CursorChange,
    GroupDescription,
    JoinRequest,
    LeaveRequest,
    SyncRequest,
)
from trimq.core.groups.rebalances import RebalanceSummary
from trimq.core.groups.store import GroupSettings
from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind, group_resource
from trimq.errors import NotRunning, Refusal, UnknownGroup
from trimq.model import Caller, StreamId
from trimq.storage.group_commit.passes import Ticket


class CommittedCursors(NamedTuple):
    """Cursors of a group. Valid once the ticket's pass is durable and not refused; without a ticket, at once."""

    cursors: Mapping[StreamId, Cursor]
    ticket: Ticket | None


class GroupApi:
    def __init__(
        self, groups: GroupCoordinator, cursors: Cursors, access: Access, is_running: Callable[[], bool]
    ) -> None:
        self._groups = groups
        self._cursors = cursors
        self._access = access
        self._is_running = is_running
        self._shared: SharedGroups | None = None
        self._takers: Takers | None = None
        # Whether an open transaction may still move a cursor of a group, and the cursors concerned.
        self.is_offset_unstable = cursors.is_unstable
        self.unstable_offsets = cursors.unstable

    def share_with(self, shared: SharedGroups) -> None:
        """Shares groups and their cursors with another protocol."""
        self._shared = shared

    def taken_by(self, takers: Takers) -> None:
        """Shares groups and their cursors with clients that take messages one by one."""
        self._takers = takers

    def _require_alone(self, group: str) -> None:
        """Raises GroupOfOtherProtocol while the group has members of another protocol."""
        if self._takers is not None:
            self._takers.require_alone(group)
        if self._shared is not None:
            self._shared.require_alone(group)

    # -- groups

    def groups(self, caller: Caller) -> list[GroupDescription]:
        """Groups that the caller may see: all, if the caller may describe the broker."""
        sees_all = self._access.allowed(caller, Action.DESCRIBE, BROKER)
        return [
            self._groups.describe(name)
            for name in self._groups.names()
            if sees_all or self._access.allowed(caller, Action.DESCRIBE, group_resource(name))
        ]

    def iterate(self, caller: Caller) -> Iterator[GroupDescription | None]:
        """As `groups`, one at a time: the broker may work meanwhile. Yields None for each group that is left out."""
        for name in self._groups.names():
            sees_all = self._access.allowed(caller, Action.DESCRIBE, BROKER)  # rights may change meanwhile
            if not sees_all and not self._access.allowed(caller, Action.DESCRIBE, group_resource(name)):
                yield None
                continue
            try:
                yield self._groups.describe(name)
            except UnknownGroup:  # deleted meanwhile
                yield None

    def require(self, caller: Caller, action: Action, group: str) -> None:
        """Raises AccessDenied unless the caller may perform this action."""
        self._access.require(caller, action, group_resource(group))

    @property
    def is_used(self) -> bool:
        """True if there is any group."""
        return self._groups.is_used

    def has(self, group: str) -> bool:
        return self._groups.has(group)

    def describe(self, caller: Caller, group: str) -> GroupDescription:
        self._access.require(caller, Action.DESCRIBE, group_resource(group))
        return self._groups.describe(group)

    def rebalances(self, caller: Caller, group: str) -> RebalanceSummary:
        """Rebalances of the group since the start of the broker."""
        self._access.require(caller, Action.DESCRIBE, group_resource(group))
        return self._groups.rebalances(group)

    def iterate_rebalances(self, caller: Caller) -> Iterator[tuple[str, RebalanceSummary] | None]:
        """As `iterate`, for the rebalances of groups that had one."""
        for name in self._groups.names():
            found = self._groups.rebalances(name)
            is_seen = found.completed and self._access.allowed(caller, Action.DESCRIBE, group_resource(name))
            yield (name, found) if is_seen else None

    def delete(self, caller: Caller, group: str) -> Ticket | None:
        """Deletes an empty group and its cursors."""
        self._require(caller, Action.DELETE, group)
        ticket = self._groups.delete(group)
        self._access.audit.changed(caller, "delete", "group", group)
        return ticket

    # -- members

    def join(self, caller: Caller, group: str, request: JoinRequest, answer: GroupCallback) -> None:
        """Calls `answer` once, perhaps before this returns. If this raises a refusal, `answer` is not called."""
        self._require(caller, Action.READ, group)
        self._require_alone(group)
        self._groups.join(group, request, answer)

    def sync(self, caller: Caller, group: str, request: SyncRequest, answer: GroupCallback) -> None:
        """As `join`."""
        self._require(caller, Action.READ, group)
        self._groups.sync(group, request, answer)

    def heartbeat(self, caller: Caller, group: str, member: str, instance: str | None, generation: int) -> None:
        """Renews the member's session."""
        self._require(caller, Action.READ, group)
        self._groups.heartbeat(group, member, instance, generation)

    def leave(self, caller: Caller, group: str, leavers: Sequence[LeaveRequest]) -> list[Refusal | None]:
        """Returns, for each leaving member, the refusal or None."""
        self._require(caller, Action.READ, group)
        return self._groups.leave(group, leavers)

    # -- members of groups with broker-side assignment (KIP-848)

    def heartbeat_assigned(
        self, caller: Caller, group: str, request: MemberHeartbeat
    ) -> tuple[HeartbeatResult, Ticket | None]:
        """Adds the member or renews its session. The result is valid once the ticket's pass is durable; without a
        ticket, at once."""
        self._require(caller, Action.READ, group)
        self._require_alone(group)
        for topic in request.topics or ():
            self._access.require(caller, Action.DESCRIBE, Resource(ResourceKind.TOPIC, caller.namespace, topic))
        return self._groups.heartbeat_assigned(group, request)

    def leave_assigned(
        self, caller: Caller, group: str, request: MemberHeartbeat
    ) -> tuple[HeartbeatResult, Ticket | None]:
        """Removes the member. Result as for `heartbeat_assigned`."""
        self._require(caller, Action.READ, group)
        return self._groups.leave_assigned(group, request)

    def heartbeat_ms(self, group: str) -> int | None:
        """Interval of heartbeats that the group's settings name, for a member."""
        return self._groups.settings(group).heartbeat_ms

    def settings(self, caller: Caller, group: str) -> GroupSettings:
        self._access.require(caller, Action.DESCRIBE_CONFIGS, group_resource(group))
        return self._groups.settings(group)

    def with_settings(self, caller: Caller) -> list[str]:
        """Groups with settings of their own that the caller may see: all, if the caller may see the broker's."""
        sees_all = self._access.allowed(caller, Action.DESCRIBE_CONFIGS, BROKER)
        return [
            name
            for name in self._groups.with_settings()
            if sees_all or self._access.allowed(caller, Action.DESCRIBE_CONFIGS, group_resource(name))
        ]

    def change_settings(self, caller: Caller, group: str, settings: GroupSettings) -> Ticket | None:
        """Returns None if nothing changed."""
        self._require(caller, Action.ALTER_CONFIGS, group)
        ticket = self._groups.change_settings(group, settings)
        if ticket is not None:
            self._access.audit.changed(caller, "alter-configs", "group", group)
        return ticket

    # -- cursors

    def commit(
        self, caller: Caller, group: str, claim: Claim, changes: Sequence[CursorChange]
    ) -> list[Ticket | Refusal]:
        """Commits offsets of streams that the caller may read. Returns for each change its ticket or its refusal."""
        self._require(caller, Action.READ, group)
        if self._takers is not None and group in self._takers.groups:
            self._takers.require_alone(group)
        return self._groups.commit(group, claim, changes)

    def check_commit(self, caller: Caller, group: str, claim: Claim) -> None:
        """Raises if this member may not commit any offset of the group."""
        self._require(caller, Action.READ, group)
        self._groups.check_claim(group, claim)

    def check_claim(self, caller: Caller, group: str, claim: Claim) -> None:
        """Raises if a transaction may not commit offsets on behalf of this member."""
        self._require(caller, Action.READ, group)
        if self._takers is not None:
            self._takers.require_alone(group)
        self._groups.check_claim(group, claim, is_transactional=True)

    def cursors(self, caller: Caller, group: str, claim: Claim = NO_MEMBER) -> CommittedCursors:
        """Committed offsets of the group. A reader that claims to be a member must be one; by default it claims
        nothing."""
        self._access.require(caller, Action.DESCRIBE, group_resource(group))
        self._groups.check_reader(group, claim)
        own = self._cursors.all(group)
        if self._shared is None:
            return CommittedCursors(dict(own), self._cursors.latest)
        return CommittedCursors(self._shared.merged(group, own), self._shared.latest(self._cursors.latest))

    def last_commit_ms(self, group: str) -> int | None:
        """Time of the last commit of the group, in message time; None if it has committed nothing."""
        return max((cursor.committed_ms for cursor in self._cursors.all(group).values()), default=None)

    @property
    def latest_commit(self) -> Ticket | None:
        """Ticket of the last change of any cursor: once its pass is durable, so are the cursors that callers have
        seen."""
        return self._cursors.latest

    def delete_cursor(self, caller: Caller, group: str, stream: StreamId) -> Ticket | None:
        """Deletes the group's committed offset of a stream. Returns None if there is none."""
        self._require(caller, Action.DELETE, group)
        if self._takers is not None:
            self._takers.require_alone(group)
        ticket = self._groups.delete_cursor(group, stream)
        if ticket is not None:
            self._access.audit.changed(
                caller, "delete", "offset", group, stream=str(stream.topic), partition=stream.number
            )
        return ticket

    def _require(self, caller: Caller, action: Action, group: str) -> None:
        self._access.require(caller, action, group_resource(group))
        if not self._is_running():
            raise NotRunning
