"""Catalogue of all definitions (topics, groups, bindings, users), with compare-and-set and watch. A local table now, a
store shared by several nodes later. Knows names and versions, never the meaning of a definition."""

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

# Stores the newest revision when the definition with that version was deleted. Kinds are never empty, so no
# definition has this key.
_REVISION_KEY = "/"

# Number of remembered changes from which on the durable ones are dropped.
_PENDING = 256


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """`value` consists of dicts, lists, strings, numbers and None, and must not be changed in place. `version` is
    greater than that of every earlier definition, so a definition that was deleted and created again is never mistaken
    for the old one."""

    value: Any
    version: int


Listener = Callable[[str, Definition | None], None]


class Catalogue:
    """A change is visible at once and durable once its ticket's pass is durable. If the pass is refused, the
    definitions are rolled back, and watchers are notified as of any other change."""

    def __init__(
        self,
        table: DurableMap[Definition],
        is_durable: Callable[[int], bool] = lambda number: False,
        was_truncated: bool = False,
    ) -> None:
        """`is_durable` returns whether the pass with the given number is durable."""
        self._table = table
        self.was_truncated = was_truncated
        """True if the last changes were incomplete at opening: a folder that no definition refers to may belong to a
        lost definition."""
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
        """Returns a snapshot of keys and definitions, in no order."""
        return list(self._kinds.get(kind, {}).items())

    def put(self, kind: str, key: str, value: Any, expected: int | None) -> Ticket:
        """Defines `key`. Raises `Changed` unless its version is `expected`; with `expected` None, unless it does not
        exist."""
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
        """Returns the ticket of the last change of this definition while that change is not durable. Callers that rely
        on the definition wait for it. The ticket may carry a refusal that watchers have not been notified of yet."""
        ticket = self._pending.get(_name(kind, key))
        return None if ticket is None or self._is_durable(ticket.number) else ticket

    def _forget_durable(self) -> None:
        self._pending = {name: ticket for name, ticket in self._pending.items() if not self._is_durable(ticket.number)}
        self._pending_limit = max(_PENDING, 2 * len(self._pending))

    def delete(self, kind: str, key: str, expected: int) -> Ticket:
        """Raises `Changed` unless the version is `expected`."""
        name = _name(kind, key)
        self._require(kind, key, expected)
        self._table.put(_REVISION_KEY, Definition(None, self._revision + 1))
        ticket = self._table.delete(name)
        self._revision += 1
        self._set(kind, key, None)
        self._notify_watchers()
        return ticket

    def watch(self, kind: str, listener: Listener) -> None:
        """Calls `listener` after each change of this kind, with the key and the definition, or None if it was
        deleted."""
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
        """Notifies watchers in the order of the changes. If a watcher changes the catalogue, all watchers are notified
        of the first change before that one."""
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
        raise ValueError(f"{kind!r} is not a valid kind of definition (empty or with '/')")
    return f"{kind}/{key}"


def _call(listener: Listener, key: str, definition: Definition | None) -> None:
    try:
        listener(key, definition)
    except Exception:
        log.exception("catalogue: watcher failed")  # the change is made; the other watchers must be notified
