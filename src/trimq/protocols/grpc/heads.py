"""What the headers of a call say: which method, by whom, how long it is waited for and how its messages are packed.
Reads them; answers nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trimq.protocols.contract import CallerFacts
from trimq.protocols.grpc.hpack import Field, HeaderBlock
from trimq.protocols.grpc.statuses import ENCODINGS, Rejection, Status

_UNITS_MS = {"H": 3_600_000.0, "M": 60_000.0, "S": 1000.0, "m": 1.0, "u": 1e-3, "n": 1e-6}
_MOST_DIGITS = 8
_CONTENT_TYPE = "application/grpc"
_CONTENT_TYPES = (f"{_CONTENT_TYPE}+", f"{_CONTENT_TYPE};")  # which the messages are of is agreed on elsewhere

_TIMEOUT = "grpc-timeout"
_PSEUDO = frozenset((":method", ":scheme", ":path", ":authority"))
_OF_A_CONNECTION = frozenset(("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"))
_DECIDING = _PSEUDO | {"content-type", "grpc-encoding", "te"}
_is_name = re.compile(r"[!-9;-@\[-~]+").fullmatch  # no blanks, no colon, no capitals, nothing beyond ASCII
_breaks_off = re.compile(r"[\0\r\n]").search

# Longer ones are not kept for those that follow: nobody counts them.
_USUAL_BYTES = 4096

METHOD_NOT_ALLOWED = 405
UNSUPPORTED_MEDIA_TYPE = 415


class Method(NamedTuple):
    name: str
    is_stream: bool


class Head:
    """Of a call that may be made. `is_packed`: its messages may be compressed."""

    __slots__ = ("facts", "is_packed", "method")

    def __init__(self, method: Method, facts: CallerFacts, is_packed: bool) -> None:
        self.method = method
        self.facts = facts
        self.is_packed = is_packed


class NotHttp(Exception):
    """The headers are none of a request: its stream is reset."""


class NotGrpc(Exception):
    """A request that is not one of gRPC."""

    def __init__(self, http_status: int) -> None:
        super().__init__(f"status {http_status}")
        self.http_status = http_status


class HeadReader:
    """Of one connection. The calls of a client mostly differ in few values, such as a time or an id: what they share is
    looked at once."""

    def __init__(self, methods: Mapping[str, Method], address: str, most_bytes: int) -> None:
        self._methods = methods
        self._address = address
        self._most_bytes = most_bytes
        self._known: dict[Field | None, tuple[tuple[Field, ...], Head]] = {}

    def read(self, block: HeaderBlock) -> Head:
        """NotHttp, NotGrpc, Rejection: it is no call that may be made."""
        if block.is_too_long:
            reason = f"the headers are longer than the {self._most_bytes} bytes allowed"
            raise Rejection(Status.RESOURCE_EXHAUSTED, reason)
        fields = block.fields
        path = next((field for field in fields if field[0] == ":path"), None)
        known = self._known.get(path)
        if known is not None and len(known[0]) == len(fields):
            head = _like(known, fields)
            if head is not None:
                return head
        head = self._read(fields)
        told = sum(field[0][:1] != ":" for field in fields)
        if told == len(head.facts.metadata) and block.size <= _USUAL_BYTES:  # nothing was said twice, or left out
            self._known[path] = fields, head
        return head

    def _read(self, fields: Sequence[Field]) -> Head:
        pseudo, metadata = _divided(fields)
        if not pseudo.get(":method") or not pseudo.get(":path") or not pseudo.get(":scheme"):
            raise NotHttp
        if pseudo[":method"] != "POST":
            raise NotGrpc(METHOD_NOT_ALLOWED)
        if (
            not metadata.get("content-type", "").startswith(_CONTENT_TYPES)
            and metadata.get("content-type") != _CONTENT_TYPE
        ):
            raise NotGrpc(UNSUPPORTED_MEDIA_TYPE)
        method = self._methods.get(pseudo[":path"])
        if method is None:
            raise Rejection(Status.UNIMPLEMENTED, f"there is no method {pseudo[':path']}")
        encoding = metadata.get("grpc-encoding", "identity")
        if encoding not in ENCODINGS:
            raise Rejection(Status.UNIMPLEMENTED, f"messages cannot be read that are compressed as {encoding}")
        timeout = metadata.get(_TIMEOUT)
        facts = CallerFacts(self._address, metadata, None if timeout is None else _milliseconds(timeout))
        return Head(method, facts, encoding != "identity")


def _like(known: tuple[tuple[Field, ...], Head], fields: Sequence[Field]) -> Head | None:
    """The head of a call that differs from a known one only in values that decide nothing here. None: it does not."""
    before, head = known
    changed = {}
    for field, old in zip(fields, before, strict=True):
        if field is not old and field != old:
            name, value = field
            if name != old[0] or name in _DECIDING or (not value.isprintable() and _breaks_off(value)):
                return None
            changed[name] = value
    facts = head.facts
    remaining_ms = _milliseconds(changed[_TIMEOUT]) if _TIMEOUT in changed else facts.remaining_ms
    return Head(head.method, CallerFacts(facts.address, {**facts.metadata, **changed}, remaining_ms), head.is_packed)


def _divided(fields: Sequence[Field]) -> tuple[dict[str, str], dict[str, str]]:
    """What HTTP/2 itself needs, and the rest. What is said twice is joined, as gRPC has it."""
    pseudo: dict[str, str] = {}
    metadata: dict[str, str] = {}
    has_begun = False
    for name, value in fields:
        if not value.isprintable() and _breaks_off(value):
            raise NotHttp
        if name[:1] == ":":
            if has_begun or name in pseudo or name not in _PSEUDO:
                raise NotHttp
            pseudo[name] = value
            continue
        has_begun = True
        if not _is_name(name) or name in _OF_A_CONNECTION or (name == "te" and value != "trailers"):
            raise NotHttp
        if name[-4:] != "-bin":
            metadata[name] = f"{metadata[name]},{value}" if name in metadata else value
    return pseudo, metadata


def _milliseconds(timeout: str) -> int:
    digits, unit = timeout[:-1], timeout[-1:]
    if unit not in _UNITS_MS or not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise Rejection(Status.INVALID_ARGUMENT, f"{timeout[:20]!r} is no time to wait")
    return int(int(digits) * _UNITS_MS[unit])
