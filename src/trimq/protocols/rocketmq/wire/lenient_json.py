"""JSON as Java clients (fastjson) write it: keys of objects may be numbers without quotes, or objects. Reads this form
and strict JSON; writes this form where clients need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

# Limit for text that is not strict JSON: parsing it blocks the event loop for 0.5 ms per 1,000 of the shortest values.
# Requests of Java clients are strict JSON. Only two texts are not: a client's response about the queues that it pulls
# (1,700 queues fit into the limit), and the registration of a broker with static topics (1,000 topics fit).
LENIENT_BYTES = 128 * 1024

# Possessive quantifiers: only the alternatives that start with a bracket can fail after reading ahead, so each
# character is read at most twice, whatever the text.
_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_BLANK = r"[ \t\r\n]*+"
_TOKEN = re.compile(
    rf"""
      {_STRING}
    | (?P<nested>[{{\[] (?:[^{{}}\[\]"]++|{_STRING})*+ [}}\]]) (?= {_BLANK} : )
    | (?P<word>[A-Za-z0-9_$.+-]++) (?P<key> {_BLANK} : )?
    | [{{\[] {_BLANK} ,
    | , {_BLANK} (?P<end>[}}\]])
    """,
    re.DOTALL | re.VERBOSE,
)


class BadJson(ValueError):
    """The text is neither strict JSON nor JSON as Java clients write it."""


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_json(data: bytes, lenient_bytes: int | None = LENIENT_BYTES) -> Any:
    """Decodes strict or lenient JSON. An object used as a key becomes its JSON text; it cannot contain other objects.
    Raises BadJson if the text is malformed, or if it is not strict JSON and longer than `lenient_bytes` (None: no
    limit)."""
    try:
        return msgspec.json.decode(data)
    except _UNREADABLE as error:
        if lenient_bytes is not None and len(data) > lenient_bytes:
            reason = f"{error}; {len(data)} bytes are not strict JSON, the limit is {lenient_bytes} bytes"
            raise BadJson(reason) from None
    return _read_leniently(data)


def _read_leniently(data: bytes) -> Any:
    try:
        return msgspec.json.decode(_TOKEN.sub(_as_strict, data.decode()))
    except _UNREADABLE as error:
        raise BadJson(str(error)) from None


def _as_strict(token: re.Match[str]) -> str:
    """Returns a token as strict JSON: quotes a key, drops a trailing comma."""
    kind = token.lastgroup
    if kind == "key":
        return f'"{token["word"]}":'
    if kind == "nested":
        return _quoted(token["nested"])
    return token["end"] if kind == "end" else token[0]


def _quoted(key: str) -> str:
    return _encode(_encode(read_json(key.encode())).decode()).decode()


def write_object_keyed(items: Iterable[tuple[Any, Any]]) -> bytes:
    """Encodes a map with objects or numbers as keys, in the form that all versions of Java clients read."""
    return b"{" + b",".join(_encode(key) + b":" + _encode(value) for key, value in items) + b"}"


_encode = msgspec.json.Encoder().encode
