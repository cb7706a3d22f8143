"""Fast path for the properties of plain messages: those without a delay, a transaction, a TTL or properties that the
broker sets. Messages of one producer mostly differ in the unique key alone, so the text around it is parsed once."""

from __future__ import annotations

from collections.abc import Collection

from trimq.formats.rocketmq_unit.properties import (
    KEYS,
    NAME_ENDS,
    TAGS,
    UNIQUE_KEY,
    VALUE_ENDS,
    read_plain_properties,
    tags_code,
)
from trimq.protocols.rocketmq.wire.responses import is_quotable

_MARK = f"{UNIQUE_KEY}{NAME_ENDS}"

# Limits of the cache, for all producers together: more or longer texts would rarely be seen again.
_MAX_SHAPES = 1024
_LONGEST_TEXT = 1024


PlainProperties = tuple[str, bytes, int, str | None]
"""Unique key, stored properties, tags code, and the other keys if any. A plain tuple, since nearly every message needs
one."""


class PropertyTemplates:
    """Cache of the texts before and after the unique key. The broker adds the properties `added` to every message. A
    message with one of the `special` properties is not plain."""

    def __init__(self, added: str, special: Collection[str]) -> None:
        self._added = added
        self._special = frozenset(special)
        self._templates: dict[tuple[str, str], tuple[bytes, bytes, int]] = {}

    def read(self, text: str) -> PlainProperties | None:
        """Fast path of `read_properties` and `write_properties`. Returns None when the message is not plain; the caller
        then falls back to them."""
        at = text.find(_MARK)
        if at < 0:
            return None
        begin = at + len(_MARK)
        end = text.find(VALUE_ENDS, begin)
        if end < 0:
            end = len(text)
        unique = text[begin:end]
        if not unique or not is_quotable(unique):
            return None
        around = text[:at], text[end:]
        shape = self._templates.get(around)
        if shape is None:
            return self._parse(text, unique, around)
        before, after, code = shape
        return unique, before + unique.encode() + after, code, None

    def _parse(self, text: str, unique: str, around: tuple[str, str]) -> PlainProperties | None:
        properties = read_plain_properties(text)
        # The marker may be the end of a longer property name.
        if properties is None or properties.get(UNIQUE_KEY) != unique or (around[0] and around[0][-1] != VALUE_ENDS):
            return None
        if not self._special.isdisjoint(properties):
            return None
        code = tags_code(properties[TAGS]) if TAGS in properties else 0
        separator = "" if text.endswith(VALUE_ENDS) else VALUE_ENDS
        before, after = f"{around[0]}{_MARK}".encode(), f"{around[1]}{separator}{self._added}".encode()
        keys = properties.get(KEYS)
        if keys is None and len(text) <= _LONGEST_TEXT:
            if len(self._templates) >= _MAX_SHAPES:
                self._templates.clear()
            self._templates[around] = before, after, code
        return unique, before + unique.encode() + after, code, keys
