"""The properties of messages that ask for nothing but to be stored. Those of one producer mostly differ in the unique
key alone: what stands around it is looked at once."""

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

# So many are kept, of all producers, and none that is longer: more would not be met again soon.
_MOST_SHAPES = 1024
_LONGEST_TEXT = 1024


PlainProperties = tuple[str, bytes, int, str | None]
"""The unique key, what is stored, the code of the tags, and what other keys there are. A plain tuple, since one is made
for nearly every message."""


class PropertyTemplates:
    """`added` is what the broker adds to the properties of every message; what has one of the `special` properties is
    not plain."""

    def __init__(self, added: str, special: Collection[str]) -> None:
        self._added = added
        self._special = frozenset(special)
        self._templates: dict[tuple[str, str], tuple[bytes, bytes, int]] = {}

    def read(self, text: str) -> PlainProperties | None:
        """None: something in them must be looked at more closely."""
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
        # The mark may be the end of another name.
        if properties is None or properties.get(UNIQUE_KEY) != unique or (around[0] and around[0][-1] != VALUE_ENDS):
            return None
        if not self._special.isdisjoint(properties):
            return None
        code = tags_code(properties[TAGS]) if TAGS in properties else 0
        separator = "" if text.endswith(VALUE_ENDS) else VALUE_ENDS
        before, after = f"{around[0]}{_MARK}".encode(), f"{around[1]}{separator}{self._added}".encode()
        keys = properties.get(KEYS)
        if keys is None and len(text) <= _LONGEST_TEXT:
            if len(self._templates) >= _MOST_SHAPES:
                self._templates.clear()
            self._templates[around] = before, after, code
        return unique, before + unique.encode() + after, code, keys
