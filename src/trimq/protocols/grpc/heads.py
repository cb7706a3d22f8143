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

_PSEUDO = frozenset((":method", ":scheme", ":path", ":authority"))
_OF_A_CONNECTION = frozenset(("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"))
_is_name = re.compile(r"[!-9;-@\[-~]+").fullmatch  # no blanks, no colon, no capitals, nothing beyond ASCII
_breaks_off = re.compile(r"[\0\r\n]").search

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


def read_head(block: HeaderBlock, methods: Mapping[str, Method], address: str, most_bytes: int) -> Head:
    """NotHttp, NotGrpc, Rejection: it is no call that may be made."""
    if block.is_too_long:
        raise Rejection(Status.RESOURCE_EXHAUSTED, f"the headers are longer than the {most_bytes} bytes allowed")
    pseudo, metadata = _divided(block.fields)
    if not pseudo.get(":method") or not pseudo.get(":path") or not pseudo.get(":scheme"):
        raise NotHttp
    if pseudo[":method"] != "POST":
        raise NotGrpc(METHOD_NOT_ALLOWED)
    if (
        not metadata.get("content-type", "").startswith(_CONTENT_TYPES)
        and metadata.get("content-type") != _CONTENT_TYPE
    ):
        raise NotGrpc(UNSUPPORTED_MEDIA_TYPE)
    method = methods.get(pseudo[":path"])
    if method is None:
        raise Rejection(Status.UNIMPLEMENTED, f"there is no method {pseudo[':path']}")
    encoding = metadata.get("grpc-encoding", "identity")
    if encoding not in ENCODINGS:
        raise Rejection(Status.UNIMPLEMENTED, f"messages cannot be read that are compressed as {encoding}")
    timeout = metadata.get("grpc-timeout")
    facts = CallerFacts(address, metadata, None if timeout is None else _milliseconds(timeout))
    return Head(method, facts, encoding != "identity")


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
