"""JSON as Java clients write it: keys of objects may be numbers without quotes, or objects themselves. Reads both that
and what is strictly JSON; writes the former where clients need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

# What is not strictly JSON takes half a millisecond for each thousand of its shortest values, and everybody waits. Java
# clients write none in what they ask: it is only what they answer of the queues that they pull, of 1,700 of them in so
# many bytes, and what a broker with 1,000 static topics registers.
LENIENT_BYTES = 128 * 1024

# Each alternative takes what it has looked at, but for brackets: however a text goes on, it is looked at twice at most.
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
    """It is not JSON, not even as Java writes it."""


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_json(data: bytes, lenient_bytes: int | None = LENIENT_BYTES) -> Any:
    """Objects that are keys become their own JSON text; they hold no others. BadJson: it cannot be read, or it is not
    strictly JSON and longer than `lenient_bytes`; None: it may have any length."""
    try:
        return msgspec.json.decode(data)
    except _UNREADABLE as error:
        if lenient_bytes is not None and len(data) > lenient_bytes:
            reason = f"{error}; {len(data)} bytes that are not strictly JSON, where {lenient_bytes} are allowed"
            raise BadJson(reason) from None
    return _read_leniently(data)


def _read_leniently(data: bytes) -> Any:
    try:
        return msgspec.json.decode(_TOKEN.sub(_as_strict, data.decode()))
    except _UNREADABLE as error:
        raise BadJson(str(error)) from None


def _as_strict(token: re.Match[str]) -> str:
    """What stands before a colon is a key and gets its quotes; a comma before the end of a list is left out."""
    kind = token.lastgroup
    if kind == "key":
        return f'"{token["word"]}":'
    if kind == "nested":
        return _quoted(token["nested"])
    return token["end"] if kind == "end" else token[0]


def _quoted(key: str) -> str:
    return _encode(_encode(read_json(key.encode())).decode()).decode()


def write_object_keyed(items: Iterable[tuple[Any, Any]]) -> bytes:
    """A map whose keys are objects or numbers, in the form that Java clients of every age read."""
    return b"{" + b",".join(_encode(key) + b":" + _encode(value) for key, value in items) + b"}"


_encode = msgspec.json.Encoder().encode
