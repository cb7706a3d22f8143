"""Verbs on access control entries, reached as `broker.acl_entries`. Listing needs the right to describe the broker,
changes the right to alter it."""

from __future__ import annotations

from trimq.core.security.access import Access
from trimq.core.security.acl_entries import AclEntry
from trimq.core.security.resources import BROKER, Action
from trimq.core.security.rights import Right
from trimq.errors import InvalidSetting
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class AclEntryApi:
    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def are_enforced(self) -> bool:
        """False while every caller may do everything: entries would protect nothing."""
        return self._access.is_enforced

    def all(self, caller: Caller) -> list[AclEntry]:
        self._access.require(caller, Action.DESCRIBE, BROKER)
        return self._access.entries.all()

    def permissions(self, caller: Caller) -> list[Right]:
        """RabbitMQ's permissions, which decide together with the entries."""
        self._access.require(caller, Action.DESCRIBE, BROKER)
        return self._access.rights()

    def require_change(self, caller: Caller) -> None:
        """Raises as `create` and `delete` would."""
        self._access.require(caller, Action.ALTER, BROKER)

    def create(self, caller: Caller, entry: AclEntry) -> Ticket | None:
        """Returns None if there is such an entry and it is durable. Effective at once, on open connections too."""
        self._access.require(caller, Action.ALTER, BROKER)
        if not self._access.is_enforced:
            raise InvalidSetting("acls", "every client may do everything while no user is defined: define a user first")
        return self._access.entries.put(entry)

    def delete(self, caller: Caller, entry: AclEntry) -> Ticket | None:
        """Returns None if there is no such entry."""
        self._access.require(caller, Action.ALTER, BROKER)
        return self._access.entries.delete(entry)
