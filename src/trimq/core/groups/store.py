"""Groups in the catalogue: one definition each, and one per member of a broker-assigned group. Knows their stored
forms, never their behaviour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from trimq.core.groups.assigned_member import AssignedMember, StoredAssignedGroup, StoredAssignedMember
from trimq.core.groups.classic_member import StoredClassicGroup
from trimq.core.metadata.catalogue import Catalogue
from trimq.storage.group_commit.passes import Ticket

_GROUP = "group"
_MEMBER = "group-member"
_SETTINGS = "group-settings"

StoredGroup = StoredClassicGroup | StoredAssignedGroup


class GroupSettings(msgspec.Struct, frozen=True):
    """Settings of a broker-assigned group; None is the broker's default."""

    heartbeat_ms: int | None = None
    session_ms: int | None = None


class GroupStore:
    """A change is durable once its ticket's pass is durable, as all changes of the catalogue are."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def load(self) -> Iterator[tuple[str, StoredGroup, list[StoredAssignedMember]]]:
        """Yields each group with its separately stored members."""
        members: dict[str, list[StoredAssignedMember]] = defaultdict(list)
        for key, found in self._catalogue.all(_MEMBER):
            group, _ = msgspec.json.decode(key, type=tuple[str, str])
            members[group].append(msgspec.convert(found.value, StoredAssignedMember, str_keys=True))
        for name, found in self._catalogue.all(_GROUP):
            yield name, msgspec.convert(found.value, StoredGroup), members[name]

    def keep(self, name: str, kept: StoredGroup) -> Ticket:
        return self._put(_GROUP, name, kept)

    def keep_member(self, group: str, name: str, member: AssignedMember | None) -> Ticket | None:
        """Stores a member, or deletes it if `member` is None. Returns None if there was nothing to delete."""
        key = _member_key(group, name)
        return (
            self._delete(_MEMBER, key) if member is None else self._put(_MEMBER, key, StoredAssignedMember.of(member))
        )

    def members(self, group: str) -> list[str]:
        """Ids of the stored members."""
        keys = (msgspec.json.decode(key, type=tuple[str, str]) for key, _ in self._catalogue.all(_MEMBER))
        return [member for name, member in keys if name == group]

    def forget(self, name: str) -> Ticket | None:
        """Deletes a group. Returns None if it was not stored."""
        return self._delete(_GROUP, name)

    def settings(self, name: str) -> GroupSettings:
        found = self._catalogue.get(_SETTINGS, name)
        return GroupSettings() if found is None else msgspec.convert(found.value, GroupSettings)

    def with_settings(self) -> list[str]:
        """Groups that have settings of their own."""
        return [name for name, _ in self._catalogue.all(_SETTINGS)]

    def change_settings(self, name: str, settings: GroupSettings) -> Ticket | None:
        """Replaces the settings; empty settings delete them. Returns None if nothing had to change."""
        if settings == GroupSettings():
            return self._delete(_SETTINGS, name)
        return self._put(_SETTINGS, name, settings)

    def _put(self, kind: str, key: str, value: msgspec.Struct) -> Ticket:
        found = self._catalogue.get(kind, key)
        version = None if found is None else found.version
        return self._catalogue.put(kind, key, msgspec.to_builtins(value, str_keys=True), version)

    def _delete(self, kind: str, key: str) -> Ticket | None:
        found = self._catalogue.get(kind, key)
        return None if found is None else self._catalogue.delete(kind, key, found.version)


def _member_key(group: str, member: str) -> str:
    """JSON, because both names may contain any character."""
    return msgspec.json.encode((group, member)).decode()
