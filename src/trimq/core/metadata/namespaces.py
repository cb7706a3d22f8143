"""Namespaces: separate sets of names, as AMQP virtual hosts are. Stored in the catalogue; the default namespace always
exists."""

from __future__ import annotations

from collections.abc import Callable

from trimq.core.metadata.catalogue import Catalogue
from trimq.errors import InvalidSetting
from trimq.errors.queues import UnknownNamespace
from trimq.model import DEFAULT_NAMESPACE
from trimq.storage.group_commit.passes import Ticket

_KIND = "namespace"


class Namespaces:
    """`empty(name)` deletes everything in a namespace."""

    def __init__(self, catalogue: Catalogue, empty: Callable[[str], None]) -> None:
        self._catalogue = catalogue
        self._empty = empty
        self._deleted: list[Callable[[str], None]] = []

    def all(self) -> list[str]:
        return [DEFAULT_NAMESPACE, *(key for key, _ in self._catalogue.all(_KIND))]

    def __contains__(self, name: object) -> bool:
        return name == DEFAULT_NAMESPACE or (isinstance(name, str) and self._catalogue.get(_KIND, name) is not None)

    def define(self, name: str) -> Ticket | None:
        """Creates a namespace. Returns None if it exists already."""
        if name in self:
            return None
        if not name or len(name.encode()) > 255:
            raise InvalidSetting("namespace", "the name must have 1 to 255 bytes")
        return self._catalogue.put(_KIND, name, {}, None)

    def delete(self, name: str) -> Ticket:
        """Deletes the namespace and everything in it."""
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
