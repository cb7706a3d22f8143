"""Which messages a reader wants, told by an expression over their properties: comparisons, ranges, lists, tests for
absence, and, or, not. A property that is absent makes a comparison neither true nor false; only what is true is wanted.
Knows properties, no protocol. The grammar is loaded with the first expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

Properties = Mapping[str, str]
Matches = Callable[[Properties], bool]

_REMEMBERED = 256


class InvalidSqlFilter(ValueError):
    """A text that is no expression over properties, or one that is larger than the limits."""


@lru_cache(maxsize=_REMEMBERED)
def compile_sql_filter(text: str, max_bytes: int, max_operators: int) -> Matches:
    """Whether a message with these properties is wanted. BadSelector: the text cannot be read."""
    size = len(text.encode("utf-8", "replace"))
    if size > max_bytes:
        raise InvalidSqlFilter(f"an expression of {size} bytes, where {max_bytes} are allowed")
    # It brings a parser generator with it, which only they need who ask for it.
    from trimq.core.filters.sql_grammar import parse

    return parse(text, max_operators)
