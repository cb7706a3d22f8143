"""Rules for texts in gRPC calls: blank and control characters as Java defines them."""

from __future__ import annotations

_CONTROL = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
# Python's white space without that which Character.isWhitespace leaves out: it does not break, or is a control.
_NOT_BLANK = frozenset("\u0085\u00a0\u2007\u202f")


def is_blank(text: str) -> bool:
    return not text or (text.isspace() and _NOT_BLANK.isdisjoint(text))


def has_control(text: str) -> bool:
    return not text.isprintable() and not _CONTROL.isdisjoint(text)
