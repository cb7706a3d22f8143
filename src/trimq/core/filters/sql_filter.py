"""SQL filters: expressions over message properties, with comparisons, ranges, lists, IS NULL, AND, OR and NOT. A
comparison with an absent property is neither true nor false; a message matches only if the expression is true. Knows
properties, no protocol. The grammar is loaded with the first expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

Properties = Mapping[str, str]
Matches = Callable[[Properties], bool]

_REMEMBERED = 256


class InvalidSqlFilter(ValueError):
    """Text that is not a valid expression, or an expression over the size limits."""


@lru_cache(maxsize=_REMEMBERED)
def compile_sql_filter(text: str, max_bytes: int, max_operators: int) -> Matches:
    """Returns a predicate on the properties of a message. Raises InvalidSqlFilter if the text is not valid."""
    size = len(text.encode("utf-8", "replace"))
    if size > max_bytes:
        raise InvalidSqlFilter(f"an expression of {size} bytes (limit: {max_bytes} bytes)")
    # Imported here, since it loads a parser generator that only SQL filters need.
    from trimq.core.filters.sql_grammar import parse

    return parse(text, max_operators)
