"""All definitions (topics, groups, bindings, users), with compare-and-set and watch: a local table now, a store that
many nodes share later. Knows their names and versions, never what they mean."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from trimq.core.metadata.durable_map import DurableMap
from trimq.errors import Changed
from trimq.storage.group_commit.passes import Ticket

log = logging.getLogger(__name__)

# Where the newest revision is kept when the definition that carried it was deleted. No kind is empty.
_REVISION_KEY = "/"

# So many changes are remembered before those that are durable are forgotten.
_PENDING = 256


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """`value` is made of dicts, lists, strings, numbers and None, and must not be changed in place. `version` is
    greater than that of any definition before it, so that one deleted and made again is never taken for the old one."""

    value: Any
    version: int


Listener = Callable[[str, Definition | None], None]


class Catalogue:
    """A change is seen at once and pending like an append: it counts when the ticket's pass is durable. When that pass
    is refused the definitions go back, and watchers hear of it as of any other change."""

    def __init__(
        self,
        table: DurableMap[Definition],
        is_durable: Callable[[int], bool] = lambda number: False,
        was_truncated: bool = False,
    ) -> None:
        """`is_durable` says of the number of a pass whether it is."""
        self._table = table
        self.was_truncated = was_truncated
        """The last changes were not whole when it was opened: what no definition names may still be somebody's."""
        self._is_durable = is_durable
        self._pending: dict[str, Ticket] = {}
        self._pending_limit = _PENDING
        self._kinds: dict[str, dict[str, Definition]] = {}
        self._watchers: dict[str, list[Listener]] = {}
        self._unnotified: deque[tuple[str, str, Definition | None]] = deque()
        self._is_notifying = False
        self._revision = 0
        for name, definition in table.items():
            self._revision = max(self._revision, definition.version)
            if name != _REVISION_KEY:
                kind, _, key = name.partition("/")
                self._kinds.setdefault(kind, {})[key] = definition
        table.on_undone(self._rolled_back)

    def get(self, kind: str, key: str) -> Definition | None:
        return self._kinds.get(kind, {}).get(key)

    def all(self, kind: str) -> list[tuple[str, Definition]]:
        """Keys and definitions, as they are now, in no order."""
        return list(self._kinds.get(kind, {}).items())

    def put(self, kind: str, key: str, value: Any, expected: int | None) -> Ticket:
        """Define `key`. `Changed` unless its version is `expected`; None: unless it does not exist."""
        name = _name(kind, key)
        self._require(kind, key, expected)
        definition = Definition(value, self._revision + 1)
        ticket = self._table.put(name, definition)
        self._revision += 1
        self._pending[name] = ticket
        if len(self._pending) > self._pending_limit:
            self._forget_durable()
        self._set(kind, key, definition)
        self._notify_watchers()
        return ticket

    def pending(self, kind: str, key: str) -> Ticket | None:
        """Of the last change of this definition, if it does not count yet: whoever relies on it waits for that. It may
        have been refused, of which not everybody has heard."""
        ticket = self._pending.get(_name(kind, key))
        return None if ticket is None or self._is_durable(ticket.number) else ticket

    def _forget_durable(self) -> None:
        self._pending = {name: ticket for name, ticket in self._pending.items() if not self._is_durable(ticket.number)}
        self._pending_limit = max(_PENDING, 2 * len(self._pending))

    def delete(self, kind: str, key: str, expected: int) -> Ticket:
        """`Changed` unless its version is `expected`."""
        name = _name(kind, key)
        self._require(kind, key, expected)
        self._table.put(_REVISION_KEY, Definition(None, self._revision + 1))
        ticket = self._table.delete(name)
        self._revision += 1
        self._set(kind, key, None)
        self._notify_watchers()
        return ticket

    def watch(self, kind: str, listener: Listener) -> None:
        """Call `listener` with the key and the definition, None when it is gone, after each change of this kind."""
        self._watchers.setdefault(kind, []).append(listener)

    def _require(self, kind: str, key: str, expected: int | None) -> None:
        found = self.get(kind, key)
        if (None if found is None else found.version) != expected:
            raise Changed(f"{kind} {key}")

    def _rolled_back(self, names: Collection[str]) -> None:
        for name in names:
            if name != _REVISION_KEY:
                kind, _, key = name.partition("/")
                self._set(kind, key, self._table.get(name))
        self._notify_watchers()

    def _set(self, kind: str, key: str, definition: Definition | None) -> None:
        definitions = self._kinds.setdefault(kind, {})
        if definition is None:
            definitions.pop(key, None)
        else:
            definitions[key] = definition
        self._unnotified.append((kind, key, definition))

    def _notify_watchers(self) -> None:
        """A watcher may change the catalogue: all hear of that after they have heard of the first change."""
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._unnotified:
                kind, key, definition = self._unnotified.popleft()
                for listener in tuple(self._watchers.get(kind, ())):
                    _call(listener, key, definition)
        finally:
            self._is_notifying = False


def _name(kind: str, key: str) -> str:
    if not kind or "/" in kind:
        raise ValueError(f"{kind!r} cannot be a kind of definition")
    return f"{kind}/{key}"


def _call(listener: Listener, key: str, definition: Definition | None) -> None:
    try:
        listener(key, definition)
    except Exception:
        log.exception("a watcher of the catalogue failed")  # the change has happened; the others must hear of it
