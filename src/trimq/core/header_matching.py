"""How the headers of a message match the arguments of a binding. Pure: two tables in, yes or no out."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.queue_refusals import InvalidMatch
from trimq.formats.field_tables import Value

_MATCH = "x-match"
_WAYS = ("all", "any", "all-with-x", "any-with-x")


def check_arguments(arguments: Mapping[str, Value]) -> None:
    way = arguments.get(_MATCH, "all")
    if not isinstance(way, str) or way not in _WAYS:
        raise InvalidMatch(way)


def matches(arguments: Mapping[str, Value], headers: Mapping[str, Value]) -> bool:
    """Without x-match all must match. A void argument matches any value of that header."""
    way = arguments.get(_MATCH, "all")
    with_x = way in ("all-with-x", "any-with-x")
    wanted = [
        (name, value) for name, value in arguments.items() if name != _MATCH and (with_x or not name.startswith("x-"))
    ]
    found = (name in headers and _is_equal(value, headers[name]) for name, value in wanted)
    return any(found) if way in ("any", "any-with-x") else all(found)


def _is_equal(wanted: Value, found: Value) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, float) or isinstance(found, float):
        return isinstance(wanted, float) and isinstance(found, float) and wanted == found
    return wanted == found  # numbers of every width alike
