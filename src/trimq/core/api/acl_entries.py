"""Verbs on access control entries, reached as `broker.acl_entries`. Listing needs the right to describe the broker,
changes the right to alter it."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.core.security.access import Access
from trimq.core.security.acl_entries import AclEntry, check_entry
from trimq.core.security.resources import BROKER, Action
from trimq.core.security.rights import Right
from trimq.errors import InvalidSetting
from trimq.model import Caller
from trimq.storage.group_commit.passes import JointTicket, Ticket


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
        return self._recorded(caller, "create", entry, self._access.entries.put(entry))

    def is_user(self, caller: Caller, name: str) -> bool:
        """Returns whether there is a user of this name: only callers that may see all entries learn it."""
        self._access.require(caller, Action.DESCRIBE, BROKER)
        return any(user.name == name for user in self._access.users())

    def replace(self, caller: Caller, removed: Iterable[AclEntry], added: Iterable[AclEntry]) -> Ticket | None:
        """Deletes some entries and adds others. First what takes rights away, so that an interrupted change allows
        nothing that neither the old nor the new entries allow. Returns None if there is nothing to wait for."""
        removed, added = set(removed), sorted(set(added), key=lambda entry: entry.is_allowed)
        for entry in added:
            check_entry(entry)
        gone = sorted(removed.difference(added), key=lambda entry: not entry.is_allowed)
        tickets = [self.create(caller, entry) for entry in added if not entry.is_allowed]
        tickets += [self.delete(caller, entry) for entry in gone if entry.is_allowed]
        tickets += [self.create(caller, entry) for entry in added if entry.is_allowed]
        tickets += [self.delete(caller, entry) for entry in gone if not entry.is_allowed]
        pending = [ticket for ticket in tickets if ticket is not None]
        return JointTicket(pending) if pending else None

    def delete(self, caller: Caller, entry: AclEntry) -> Ticket | None:
        """Returns None if there is no such entry."""
        self._access.require(caller, Action.ALTER, BROKER)
        return self._recorded(caller, "delete", entry, self._access.entries.delete(entry))

    def _recorded(self, caller: Caller, action: str, entry: AclEntry, ticket: Ticket | None) -> Ticket | None:
        if ticket is not None:
            self._access.audit.entry_changed(caller, action, entry)
        return ticket
