"""Verbs on consumer groups of commit-log topics and their cursors, reached as `commit_log.groups`. Each checks the
caller's rights, then delegates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from trimq.core.commit_log.groups import CommitLogGroup, CommitLogGroups
from trimq.core.crossing.groups import SharedGroups, Takers
from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.core.pop.pop import PopService
from trimq.core.security.access import Access, Action, Resource, group_resource
from trimq.model import Caller, StreamId
from trimq.storage.group_commit.passes import Ticket


class IdentifiedTopic(Protocol):
    """Topic of any layout that the group reads."""

    id: UUID
    resource: Resource


class CommitLogGroupApi:
    """`pop_service` follows changes: it holds the in-flight messages of the groups."""

    def __init__(self, groups: CommitLogGroups, cursors: Cursors, pop_service: PopService, access: Access) -> None:
        self._groups = groups
        self._cursors = cursors
        self._pop_service = pop_service
        self._access = access
        self._shared: SharedGroups | None = None
        self._takers: Takers | None = None

    def share_with(self, shared: SharedGroups) -> None:
        """Shares groups and their cursors with another protocol."""
        self._shared = shared

    def taken_by(self, takers: Takers) -> None:
        """Shares groups and their cursors with clients that take messages one by one."""
        self._takers = takers

    def require_alone(self, name: str) -> None:
        """Raises GroupOfOtherProtocol while the group has members of another protocol."""
        if self._takers is not None:
            self._takers.require_alone(name)
        if self._shared is not None:
            self._shared.require_alone(name)

    # -- definitions

    def require_read(self, caller: Caller, name: str) -> None:
        """Raises AccessDenied unless the caller may consume as a member of this group."""
        self._access.require_group(caller, Action.READ, name)

    def require_commit(self, caller: Caller, group: str, topic: IdentifiedTopic) -> None:
        """Raises AccessDenied unless the caller may commit offsets of this group in the topic."""
        self._access.require(caller, Action.READ, topic.resource)
        self.require_read(caller, group)

    def require_describe(self, caller: Caller, name: str) -> None:
        self._access.require_group(caller, Action.DESCRIBE, name)

    def is_visible(self, caller: Caller, name: str) -> bool:
        """Whether the caller may describe this group."""
        return self._access.allowed(caller, Action.DESCRIBE, group_resource(name))

    def find(self, caller: Caller, name: str) -> CommitLogGroup | None:
        self.require_describe(caller, name)
        return self._groups.find(name)

    def all(self, caller: Caller) -> list[CommitLogGroup]:
        """Groups that the caller may describe."""
        return [group for group in self._groups if self.is_visible(caller, group.name)]

    def get_or_create(self, caller: Caller, name: str) -> CommitLogGroup:
        """Returns the group for one of its members, which creates it if it is the first."""
        self.require_read(caller, name)
        found = self._groups.find(name)
        if found is None:
            found = CommitLogGroup(name)
            self._groups.define(found)
            self._access.audit.changed(caller, "create", "group", name)
        return found

    def define(self, caller: Caller, group: CommitLogGroup) -> Ticket:
        """Creates or changes a group."""
        self._access.require(caller, Action.READ, group_resource(group.name))
        ticket = self._groups.define(group)
        self._access.audit.changed(caller, "define", "group", group.name)
        return ticket

    def delete(self, caller: Caller, name: str, forgets_cursors: bool) -> Ticket | None:
        """Returns None if nothing changed."""
        self._access.require(caller, Action.DELETE, group_resource(name))
        forgotten = self._cursors.delete(name) if forgets_cursors else None
        self._pop_service.forget_group(name)
        ticket = self._groups.delete(name) or forgotten
        if ticket is not None:
            self._access.audit.changed(caller, "delete", "group", name)
        return ticket

    # -- cursors

    def commit(
        self, caller: Caller, group: str, topic: IdentifiedTopic, number: int, offset: int, metadata: str = ""
    ) -> Ticket:
        """Commits the offset up to which `group` has read a queue, with optional metadata."""
        self.require_commit(caller, group, topic)
        if self._takers is not None and group in self._takers.groups:
            self._takers.require_alone(group)
        stream = StreamId(topic.id, number)
        self._pop_service.cursor_moved(group, stream, offset)
        return self._cursors.commit(group, stream, offset, metadata)

    def reset(self, caller: Caller, group: str, topic: IdentifiedTopic, number: int, offset: int) -> Ticket:
        """Commits an offset on behalf of an operator: popped messages do not hold up the group."""
        self._access.require(caller, Action.READ, topic.resource)
        self.require_read(caller, group)
        if self._takers is not None:
            self._takers.require_alone(group)
        stream = StreamId(topic.id, number)
        self._pop_service.cursor_reset(group, stream, offset)
        ticket = self._cursors.commit(group, stream, offset)
        of_stream = {"topic": topic.resource.name, "queue": number, "offset": offset}
        self._access.audit.changed(caller, "reset", "offset", group, **of_stream)
        return ticket

    def cursor(self, caller: Caller, group: str, topic: IdentifiedTopic, number: int) -> Cursor | None:
        self._access.require(caller, Action.DESCRIBE, topic.resource)
        self.require_describe(caller, group)
        return self._cursors.fetch(group, StreamId(topic.id, number))

    def last_cursor(self, caller: Caller, group: str, topic: IdentifiedTopic, number: int) -> Cursor | None:
        """As `cursor`; the newer one, if the group has committed an offset through another protocol too."""
        own = self.cursor(caller, group, topic, number)
        return own if self._shared is None else self._shared.newest(group, StreamId(topic.id, number), own)

    def cursor_groups(self, caller: Caller) -> list[str]:
        """Groups that have a committed offset and that the caller may describe."""
        return [group for group in self._cursors.groups() if self.is_visible(caller, group)]

    def cursors(self, caller: Caller, group: str) -> Mapping[StreamId, Cursor]:
        self.require_describe(caller, group)
        return self._cursors.all(group)
