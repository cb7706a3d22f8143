"""JSON as Java clients write it: keys of objects may be numbers without quotes, or objects themselves. Reads both that
and what is strictly JSON; writes the former where clients need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

MAX_DEPTH = 64

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"', re.DOTALL)
_BARE = re.compile(r"[A-Za-z0-9_$.+-]+")


class BadJson(ValueError):
    """It is not JSON, not even as Java writes it."""


def read_json(data: bytes) -> Any:
    """Objects that are keys become their own JSON text. BadJson: it cannot be read."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadJson(str(error)) from None
    value, at = _Reader(text).value(_skip(text, 0), 0)
    if _skip(text, at) != len(text):
        raise BadJson(f"more than one value, at {at}")
    return value


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        if depth > MAX_DEPTH:
            raise BadJson(f"deeper than {MAX_DEPTH}")
        first = self._text[at : at + 1]
        if first == "{":
            return self._object(at + 1, depth)
        if first == "[":
            return self._array(at + 1, depth)
        return self._scalar(at)

    def _scalar(self, at: int) -> tuple[Any, int]:
        found = _STRING.match(self._text, at) or _BARE.match(self._text, at)
        if found is None:
            raise BadJson(f"no value at {at}")
        try:
            return msgspec.json.decode(found.group()), found.end()
        except msgspec.MsgspecError:
            raise BadJson(f"no value at {at}") from None

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = _skip(self._text, at)
        while self._text[at : at + 1] != "}":
            key, at = self._key(at, depth)
            at = self._expect(":", _skip(self._text, at))
            found[key], at = self.value(at, depth + 1)
            at = self._comma_or("}", at)
        return found, at + 1

    def _key(self, at: int, depth: int) -> tuple[str, int]:
        first = self._text[at : at + 1]
        if first == '"':
            key, at = self._scalar(at)
            return str(key), at
        if first in ("{", "["):
            key, at = self.value(at, depth + 1)
            return msgspec.json.encode(key).decode(), at
        bare = _BARE.match(self._text, at)
        if bare is None:
            raise BadJson(f"no key at {at}")
        return bare.group(), bare.end()

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        found = []
        at = _skip(self._text, at)
        while self._text[at : at + 1] != "]":
            value, at = self.value(at, depth + 1)
            found.append(value)
            at = self._comma_or("]", at)
        return found, at + 1

    def _comma_or(self, end: str, at: int) -> int:
        at = _skip(self._text, at)
        return at if self._text[at : at + 1] == end else self._expect(",", at)

    def _expect(self, character: str, at: int) -> int:
        if self._text[at : at + 1] != character:
            raise BadJson(f"no {character!r} at {at}")
        return _skip(self._text, at + 1)


def write_object_keyed(items: Iterable[tuple[Any, Any]]) -> bytes:
    """A map whose keys are objects or numbers, in the form that Java clients of every age read."""
    return b"{" + b",".join(_encode(key) + b":" + _encode(value) for key, value in items) + b"}"


_encode = msgspec.json.Encoder().encode
