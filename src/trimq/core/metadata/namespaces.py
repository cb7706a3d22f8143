"""Namespaces: names that stand apart, as virtual hosts do. Kept in the catalogue; the default one is always there."""

from __future__ import annotations

from collections.abc import Callable

from trimq.core.metadata.catalogue import Catalogue
from trimq.errors import InvalidSetting
from trimq.errors.queues import UnknownNamespace
from trimq.model import DEFAULT_NAMESPACE
from trimq.storage.group_commit.passes import Ticket

_KIND = "namespace"


class Namespaces:
    """`empty(name)` removes all that is in one."""

    def __init__(self, catalogue: Catalogue, empty: Callable[[str], None]) -> None:
        self._catalogue = catalogue
        self._empty = empty
        self._deleted: list[Callable[[str], None]] = []

    def all(self) -> list[str]:
        return [DEFAULT_NAMESPACE, *(key for key, _ in self._catalogue.all(_KIND))]

    def __contains__(self, name: object) -> bool:
        return name == DEFAULT_NAMESPACE or (isinstance(name, str) and self._catalogue.get(_KIND, name) is not None)

    def define(self, name: str) -> Ticket | None:
        """None: it is there already."""
        if name in self:
            return None
        if not name or len(name.encode()) > 255:
            raise InvalidSetting("namespace", "a name has 1 to 255 bytes")
        return self._catalogue.put(_KIND, name, {}, None)

    def delete(self, name: str) -> Ticket:
        """With all that is in it."""
        known = self._catalogue.get(_KIND, name)
        if known is None:
            raise UnknownNamespace(name, "")
        self._empty(name)
        ticket = self._catalogue.delete(_KIND, name, known.version)
        for listener in self._deleted:
            listener(name)
        return ticket

    def on_deleted(self, listener: Callable[[str], None]) -> None:
        self._deleted.append(listener)
