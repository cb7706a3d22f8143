"""Matching of message headers against the arguments of bindings. Pure: tables in, yes or no out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from trimq.errors.queues import InvalidMatch
from trimq.formats.amqp_content.field_tables import Value

Id = TypeVar("Id", bound=Hashable)

_MATCH = "x-match"
_WAYS = ("all", "any", "all-with-x", "any-with-x")


def check_arguments(arguments: Mapping[str, Value]) -> None:
    way = arguments.get(_MATCH, "all")
    if not isinstance(way, str) or way not in _WAYS:
        raise InvalidMatch(way)


class HeaderMatchRule(NamedTuple):
    """Headers that a binding requires."""

    pairs: tuple[tuple[str, Value], ...]
    is_any: bool

    def matches(self, headers: Mapping[str, Value]) -> bool:
        found = (name in headers and _is_equal(value, headers[name]) for name, value in self.pairs)
        return any(found) if self.is_any else all(found)


def read_match_rule(arguments: Mapping[str, Value]) -> HeaderMatchRule:
    """Parses the arguments of a binding. Without x-match, all headers must match. A void argument matches any value of
    that header."""
    way = arguments.get(_MATCH, "all")
    with_x = way in ("all-with-x", "any-with-x")
    pairs = tuple(
        (name, value) for name, value in arguments.items() if name != _MATCH and (with_x or not name.startswith("x-"))
    )
    return HeaderMatchRule(pairs, way in ("any", "any-with-x"))


def matches(arguments: Mapping[str, Value], headers: Mapping[str, Value]) -> bool:
    return read_match_rule(arguments).matches(headers)


_IndexKey = tuple[Hashable, ...]


class HeaderIndex(Generic[Id]):
    """Index of bindings: finds the matching ones by checking only those that share a header with the message."""

    def __init__(self) -> None:
        self._wanted: dict[Id, tuple[int, HeaderMatchRule, tuple[_IndexKey, ...]]] = {}
        self._by_index_key: dict[_IndexKey, dict[Id, None]] = {}
        self._always: dict[Id, None] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._wanted)

    def add(self, id: Id, arguments: Mapping[str, Value]) -> None:
        self.remove(id)
        wanted = read_match_rule(arguments)
        index_keys = [_index_key(name, value) for name, value in wanted.pairs]
        if not wanted.is_any and index_keys:  # all must match: the rarest suffices
            index_keys = [min(index_keys, key=lambda index_key: len(self._by_index_key.get(index_key, ())))]
        self._added += 1
        self._wanted[id] = (self._added, wanted, tuple(index_keys))
        for index_key in index_keys:
            self._by_index_key.setdefault(index_key, {})[id] = None
        if not index_keys and not wanted.is_any:
            self._always[id] = None

    def remove(self, id: Id) -> None:
        _, _, index_keys = self._wanted.pop(id, (0, None, ()))
        self._always.pop(id, None)
        for index_key in index_keys:
            ids = self._by_index_key.get(index_key, {})
            ids.pop(id, None)
            if not ids:
                self._by_index_key.pop(index_key, None)

    def match(self, headers: Mapping[str, Value]) -> list[Id]:
        """Returns the matching ids in the order in which they were added."""
        found = dict(self._always)
        for name, value in headers.items():
            for index_key in {(name,), _index_key(name, value)}:
                for id in self._by_index_key.get(index_key, ()):
                    if id not in found and self._wanted[id][1].matches(headers):
                        found[id] = None
        return sorted(found, key=lambda id: self._wanted[id][0])


def _index_key(name: str, value: Value) -> _IndexKey:
    """Returns a key that equal values of a header share. For void and unhashable values, it is the name alone."""
    if value is None:
        return (name,)
    kind = "bool" if isinstance(value, bool) else "float" if isinstance(value, float) else ""
    try:
        hash(value)
    except TypeError:
        return (name,)
    return (name, kind, value)


def _is_equal(wanted: Value, found: Value) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, float) or isinstance(found, float):
        return isinstance(wanted, float) and isinstance(found, float) and wanted == found
    return wanted == found  # integers of all widths compare equal
