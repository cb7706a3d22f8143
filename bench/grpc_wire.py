"""gRPC for the load generator: HTTP/2 frames over a plain socket, header fields by their index after the first use, and
a minimum of response parsing. A real client library costs several times as much CPU as a broker. Independent of the
broker's codec, so that an error in one is not hidden by the same error in the other."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from bench.pipelined_load import DRAINED_BYTES, WireFailed, connect

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_HEAD = struct.Struct(">IBI")
_PREFIX = struct.Struct(">BI")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FIRST_DYNAMIC_INDEX = 62
_WINDOW_BYTES = 1 << 30

Fields = tuple[tuple[str, str], ...]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def message(raw: bytes) -> bytes:
    return _PREFIX.pack(0, len(raw)) + raw


class _Headers:
    """Encodes header blocks: each field literally once, then by its index in the dynamic table."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._indexed: list[tuple[str, str]] = []
        self._blocks: dict[str, bytes] = {}

    def block(self, path: str) -> bytes:
        if path not in self._blocks:
            fields = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "bench"), *self._fields)
            indexed = len(self._indexed)
            first = b"".join(map(self._field, fields))
            if len(self._indexed) > indexed:
                self._blocks.clear()  # all indexes have changed
            self._blocks[path] = b"".join(map(self._field, fields))
            return first
        return self._blocks[path]

    def _field(self, field: tuple[str, str]) -> bytes:
        if field in self._indexed:
            return bytes((0x80 | _FIRST_DYNAMIC_INDEX + len(self._indexed) - 1 - self._indexed.index(field),))
        self._indexed.append(field)
        name, value = (text.encode() for text in field)
        return bytes((0x40, len(name))) + name + bytes((len(value),)) + value


class GrpcConnection:
    """One connection to a service. `fields` are sent with every call."""

    def __init__(self, address: tuple[str, int], service: str, fields: Fields) -> None:
        self._socket = connect(address)
        self._service = service
        self._headers = _Headers((("te", "trailers"), ("content-type", "application/grpc"), *fields))
        self._stream = -1
        self._kept = b""
        windows = struct.pack(">HI", 4, _WINDOW_BYTES), struct.pack(">I", _WINDOW_BYTES)
        self._socket.sendall(_PREFACE + frame(SETTINGS, 0, 0, windows[0]) + frame(WINDOW, 0, 0, windows[1]))

    def __enter__(self) -> GrpcConnection:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _begin(self, method: str, raw: bytes, flags: int = _END_STREAM) -> bytes:
        self._stream += 2
        block = self._headers.block(f"/{self._service}/{method}")
        return frame(HEADERS, _END_HEADERS, self._stream, block) + frame(DATA, flags, self._stream, message(raw))

    def ask(self, method: str, raw: bytes) -> list[bytes]:
        """Makes one call and returns the messages of the response."""
        self._socket.sendall(self._begin(method, raw))
        stream, data = self._stream, b""
        while True:
            for kind, flags, number, payload in self._receive():
                if number == stream and kind == DATA:
                    data += payload
                if number == stream and flags & _END_STREAM and kind in (DATA, HEADERS):
                    return _messages(data)

    def open(self, method: str, raw: bytes) -> bytes:
        """Begins a call that stays open and returns its first response message."""
        self._socket.sendall(self._begin(method, raw, 0))
        while True:
            for kind, _, number, payload in self._receive():
                if number == self._stream and kind == DATA:
                    return _messages(payload)[0]

    def flood(
        self, method: str, requests: Sequence[bytes], count: int, depth: int, is_good: Callable[[bytes], bool]
    ) -> int:
        """Makes `count` unary calls with `depth` calls in flight. Each response must be one DATA frame that `is_good`
        accepts."""
        sent = ended = good = 0
        while ended < count:
            batch = range(sent, min(count, ended + depth))
            if batch:
                self._socket.sendall(b"".join(self._begin(method, requests[at % len(requests)]) for at in batch))
                sent += len(batch)
            for kind, flags, _, payload in self._receive():
                if kind == DATA and payload:
                    good += is_good(payload[_PREFIX.size :])
                if flags & _END_STREAM and kind in (DATA, HEADERS):
                    ended += 1
        if good != count:
            raise WireFailed(f"{count - good} of {count} calls of {method} were refused")
        return count

    def _receive(self) -> list[tuple[int, int, int, bytes]]:
        arrived = self._socket.recv(DRAINED_BYTES)
        if not arrived:
            raise WireFailed("the broker closed the connection")
        data, at, found, acks = self._kept + arrived, 0, [], b""
        while len(data) - at >= _HEAD.size:
            length_and_kind, flags, number = _HEAD.unpack_from(data, at)
            finish = at + _HEAD.size + (length_and_kind >> 8)
            if finish > len(data):
                break
            kind, payload = length_and_kind & 0xFF, data[at + _HEAD.size : finish]
            at = finish
            if kind in (RESET, GOAWAY):
                raise WireFailed(f"a call was ended: {payload!r}")
            if kind in (SETTINGS, PING) and not flags & _ACK:
                acks += frame(kind, _ACK, 0, payload if kind == PING else b"")
            found.append((kind, flags, number, payload))
        self._kept = data[at:]
        if acks:
            self._socket.sendall(acks)
        return found


def _messages(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        _, size = _PREFIX.unpack_from(data, at)
        at += _PREFIX.size
        found.append(data[at : at + size])
        at += size
    return found
