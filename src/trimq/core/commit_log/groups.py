"""The groups that read topics whose streams share one log, and what is set for each: kept in the catalogue. Who is in a
group now is known to the front-end that its members talk to."""

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
    """`settings` are those that a front-end knows and keeps its word on."""

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
        """How often a message may come back to a group, be it known or not."""
        return self._groups.get(name, _ANY).retry_limit

    def define(self, group: CommitLogGroup) -> Ticket:
        if not group.name:
            raise InvalidName(group.name, "a group has a name")
        if len(group.name) > _LONGEST_NAME:
            raise NameTooLong(len(group.name), _LONGEST_NAME)
        known = self._catalogue.get(KIND, group.name)
        value = msgspec.to_builtins(group)
        return self._catalogue.put(KIND, group.name, value, None if known is None else known.version)

    def delete(self, name: str) -> Ticket | None:
        """None: there is none of this name."""
        known = self._catalogue.get(KIND, name)
        return None if known is None else self._catalogue.delete(KIND, name, known.version)

    def _changed(self, key: str, found: Stored | None) -> None:
        if found is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = msgspec.convert(found.value, CommitLogGroup)
