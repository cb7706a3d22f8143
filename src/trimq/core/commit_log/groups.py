"""Consumer groups that read commit-log topics, and their settings, kept in the catalogue. The front-end that the
members connect to knows the current members."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as Stored
from trimq.errors import InvalidName, NameTooLong
from trimq.storage.group_commit.passes import Ticket

KIND = "shared-group"

_LONGEST_NAME = 255


class CommitLogGroup(msgspec.Struct, frozen=True):
    """Definition of a consumer group. `settings`: further settings that only the front-end interprets."""

    name: str
    may_consume: bool = True
    may_broadcast: bool = True
    retry_streams: int = 1
    retry_limit: int = 16
    is_told_of_members: bool = True
    settings: dict[str, str] = {}
    is_orderly: bool = False


_ANY = CommitLogGroup("")


class CommitLogGroups:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._groups: dict[str, CommitLogGroup] = {}
        for key, found in catalogue.all(KIND):
            self._changed(key, found)
        catalogue.watch(KIND, self._changed)

    def __iter__(self) -> Iterator[CommitLogGroup]:
        return iter(self._groups.values())

    def find(self, name: str) -> CommitLogGroup | None:
        return self._groups.get(name)

    def retry_limit(self, name: str) -> int:
        """Maximum number of retries of a message for a group, defined or not."""
        return self._groups.get(name, _ANY).retry_limit

    def define(self, group: CommitLogGroup) -> Ticket:
        if not group.name:
            raise InvalidName(group.name, "the group name is empty")
        if len(group.name) > _LONGEST_NAME:
            raise NameTooLong(len(group.name), _LONGEST_NAME)
        known = self._catalogue.get(KIND, group.name)
        value = msgspec.to_builtins(group)
        return self._catalogue.put(KIND, group.name, value, None if known is None else known.version)

    def delete(self, name: str) -> Ticket | None:
        """Returns None if there is no such group."""
        known = self._catalogue.get(KIND, name)
        return None if known is None else self._catalogue.delete(KIND, name, known.version)

    def _changed(self, key: str, found: Stored | None) -> None:
        if found is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = msgspec.convert(found.value, CommitLogGroup)
