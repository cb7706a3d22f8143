"""Request headers of a gRPC call: method, metadata, deadline and compression. Decodes them; sends no answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trimq.protocols.contract import CallInfo
from trimq.protocols.grpc.hpack import Field, HeaderBlock
from trimq.protocols.grpc.statuses import ENCODINGS, CallRejected, Status

_UNITS_MS = {"H": 3_600_000.0, "M": 60_000.0, "S": 1000.0, "m": 1.0, "u": 1e-3, "n": 1e-6}
_MAX_DIGITS = 8
_CONTENT_TYPE = "application/grpc"
_CONTENT_TYPES = (f"{_CONTENT_TYPE}+", f"{_CONTENT_TYPE};")  # the suffix names the message format, which is ignored

_TIMEOUT = "grpc-timeout"
_PSEUDO = frozenset((":method", ":scheme", ":path", ":authority"))
_OF_A_CONNECTION = frozenset(("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"))
_DECIDING = _PSEUDO | {"content-type", "grpc-encoding", "te"}
_is_name = re.compile(r"[!-9;-@\[-~]+").fullmatch  # no blanks, colons, upper case or non-ASCII
_breaks_off = re.compile(r"[\0\r\n]").search

# Maximum number of different timeouts for which decoded headers are cached.
_MAX_TIMES = 16

METHOD_NOT_ALLOWED = 405
UNSUPPORTED_MEDIA_TYPE = 415


class GrpcMethod(NamedTuple):
    name: str
    is_stream: bool


class CallHeaders:
    """Decoded headers of a valid call. `is_compressed`: its messages may be compressed."""

    __slots__ = ("call_info", "is_compressed", "method")

    def __init__(self, method: GrpcMethod, call_info: CallInfo, is_compressed: bool) -> None:
        self.method = method
        self.call_info = call_info
        self.is_compressed = is_compressed


class NotHttp(Exception):
    """The headers are no HTTP request: the stream is reset."""


class NotGrpc(Exception):
    """The HTTP request is no gRPC call."""

    def __init__(self, http_status: int) -> None:
        super().__init__(f"status {http_status}")
        self.http_status = http_status


class _CachedHeaders:
    """Last headers of one method, with the decoded result. `by_time`: results for headers that differ only in the
    timeout, by milliseconds."""

    __slots__ = ("by_time", "fields", "head")

    def __init__(self, fields: tuple[Field, ...], head: CallHeaders) -> None:
        self.fields = fields
        self.head = head
        self.by_time = {head.call_info.remaining_ms: head}


class CallHeaderReader:
    """Header decoder of one connection. Calls of a client mostly differ in few values, such as a timeout or an id, so
    their common headers are decoded once. Calls that differ only in headers that neither `used_metadata` nor this
    module uses share one CallInfo."""

    def __init__(
        self, methods: Mapping[str, GrpcMethod], address: str, max_bytes: int, used_metadata: frozenset[str]
    ) -> None:
        self._methods = methods
        self._address = address
        self._max_bytes = max_bytes
        self._used_metadata = used_metadata
        self._deciding = _DECIDING | used_metadata
        self._known: dict[Field | None, _CachedHeaders] = {}
        self._path_at = 0

    def read(self, block: HeaderBlock) -> CallHeaders:
        """Decodes a header block. Raises NotHttp, NotGrpc or CallRejected if it is not a valid call."""
        if block.is_too_long:
            reason = f"the headers are longer than the {self._max_bytes} bytes allowed"
            raise CallRejected(Status.RESOURCE_EXHAUSTED, reason)
        fields = block.fields
        path = self._path(fields)
        known = self._known.get(path)
        if known is not None and len(known.fields) == len(fields) and not block.long_bytes:
            head = self._like(known, fields)
            if head is not None:
                return head
        head = self._read(fields)
        if not block.long_bytes:  # long headers are not cached: no one would count their memory
            self._known[path] = _CachedHeaders(fields, head)
        return head

    def _path(self, fields: Sequence[Field]) -> Field | None:
        """Returns the `:path` field, which is mostly at the same position."""
        if self._path_at < len(fields) and fields[self._path_at][0] == ":path":
            return fields[self._path_at]
        for at, field in enumerate(fields):
            if field[0] == ":path":
                self._path_at = at
                return field
        return None

    def _like(self, known: _CachedHeaders, fields: tuple[Field, ...]) -> CallHeaders | None:
        """Fast path of `_read` for headers that differ from known ones only in irrelevant values or the timeout.
        Returns None when they differ otherwise."""
        timeout = None
        for field, old in zip(fields, known.fields, strict=True):
            if field is not old and field != old:
                name, value = field
                if name != old[0] or name in self._deciding or (not value.isprintable() and _breaks_off(value)):
                    return None
                if name == _TIMEOUT:
                    timeout = value
        if timeout is not None:
            known.head = self._in_time(known, _milliseconds(timeout))
        known.fields = fields
        return known.head

    def _in_time(self, known: _CachedHeaders, remaining_ms: int) -> CallHeaders:
        head = known.by_time.get(remaining_ms)
        if head is None:
            method, call_info = known.head.method, known.head.call_info
            head = CallHeaders(
                method, CallInfo(call_info.address, call_info.metadata, remaining_ms), known.head.is_compressed
            )
            if len(known.by_time) >= _MAX_TIMES:
                known.by_time.clear()
            known.by_time[remaining_ms] = head
        return head

    def _read(self, fields: Sequence[Field]) -> CallHeaders:
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
            raise CallRejected(Status.UNIMPLEMENTED, f"unknown method {pseudo[':path']}")
        encoding = metadata.get("grpc-encoding", "identity")
        if encoding not in ENCODINGS:
            raise CallRejected(Status.UNIMPLEMENTED, f"unsupported grpc-encoding {encoding}")
        timeout = metadata.get(_TIMEOUT)
        told = {name: value for name, value in metadata.items() if name in self._used_metadata}
        call_info = CallInfo(self._address, told, None if timeout is None else _milliseconds(timeout))
        return CallHeaders(method, call_info, encoding != "identity")


def _divided(fields: Sequence[Field]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits fields into pseudo-headers and metadata. Joins repeated metadata with commas, as gRPC requires."""
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
    if unit not in _UNITS_MS or not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise CallRejected(Status.INVALID_ARGUMENT, f"{timeout[:20]!r} is not a valid grpc-timeout")
    return int(int(digits) * _UNITS_MS[unit])
