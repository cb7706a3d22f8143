"""The small protocol of the simulation, without IO: requests and their frames.

request:   length u32 | id u32 | msgpack of the request
response:  length u32 | id u32 | 0 | msgpack of the value, or for a read: start i64 | readable end i64 | whole batches
                               | 1 | the name of the refusal
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from trimq.errors import ProtocolError, Refusal
from trimq.model import Buffer
from trimq.protocols.kafka.wire.frames import ReceivedFrames

FRAME_LIMIT = 4 << 20

_HEAD = struct.Struct(">II")
_ID = struct.Struct(">I")
_ENDS = struct.Struct(">qq")
_OK, _REFUSED = b"\0", b"\1"


class Create(msgspec.Struct, frozen=True, array_like=True, tag=True):
    name: str
    streams: int
    settings: dict[str, str]


class Delete(msgspec.Struct, frozen=True, array_like=True, tag=True):
    topic: bytes


class Append(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Records in a neutral form, without the bytes of a layout."""

    topic: bytes
    stream: int
    time_ms: int
    bodies: list[bytes]


class AppendBatch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One batch as it will be stored; it may have a producer id and a sequence."""

    topic: bytes
    stream: int
    batch: bytes


class Read(msgspec.Struct, frozen=True, array_like=True, tag=True):
    topic: bytes
    stream: int
    offset: int
    max_bytes: int
    wait_ms: int


class List(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A small request like a heartbeat, except for its padding."""

    padding: bytes = b""
    echo_bytes: int = 0


class Cut(msgspec.Struct, frozen=True, array_like=True, tag=True):
    topic: bytes
    stream: int
    offset: int


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    group: str
    topic: bytes
    stream: int
    offset: int


class FetchCursor(msgspec.Struct, frozen=True, array_like=True, tag=True):
    group: str
    topic: bytes
    stream: int


Request = Create | Delete | Append | AppendBatch | Read | List | Cut | Commit | FetchCursor

_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_value = msgspec.msgpack.Decoder().decode


class ReadAnswer(msgspec.Struct, frozen=True):
    start: int
    readable_end: int
    batches: bytes


class Refused(Exception):
    """A refusal of the broker, as the client gets it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class ServerConnection:
    """Parses received bytes into requests."""

    def __init__(self) -> None:
        self._received = ReceivedFrames(FRAME_LIMIT, 4096)
        self.get_buffer = self._received.get_buffer
        self.buffer_updated = self._received.buffer_updated

    def next_event(self) -> tuple[int, Request] | None:
        found = self._received.next_frame()
        if found is None:
            return None
        begin, end = found
        data = bytes(memoryview(self._received.data)[begin:end])
        try:
            (id,) = _ID.unpack_from(data)
            return id, _decode_request(data[_ID.size :])
        except (struct.error, msgspec.MsgspecError) as error:
            raise ProtocolError(f"no request of the small protocol: {error}") from error


def encode_request(id: int, request: Request) -> bytes:
    body = _encode(request)
    return _HEAD.pack(_ID.size + len(body), id) + body


def encode_value(id: int, value: object) -> list[Buffer]:
    return _frame(id, [_OK, _encode(value)])


def encode_read(id: int, start: int, readable_end: int, parts: list[memoryview]) -> list[Buffer]:
    return _frame(id, [_OK, _ENDS.pack(start, readable_end), *parts])


def encode_refusal(id: int, refusal: Refusal) -> list[Buffer]:
    return _frame(id, [_REFUSED, type(refusal).__name__.encode()])


def _frame(id: int, parts: list[Buffer]) -> list[Buffer]:
    return [_HEAD.pack(_ID.size + sum(map(len, parts)), id), *parts]


def split_responses(received: bytearray) -> Iterator[tuple[int, bytes]]:
    """Takes whole responses off the bytes that a client received: the id, and the payload."""
    while len(received) >= _HEAD.size:
        length, id = _HEAD.unpack_from(received)
        if len(received) < 4 + length:
            return
        body = bytes(received[_HEAD.size : 4 + length])
        del received[: 4 + length]
        yield id, body


def decode_response(request: Request, body: bytes) -> object:
    """Returns the value; raises Refused."""
    if body[:1] == _REFUSED:
        raise Refused(body[1:].decode())
    if isinstance(request, Read):
        start, readable_end = _ENDS.unpack_from(body, 1)
        return ReadAnswer(start, readable_end, body[1 + _ENDS.size :])
    return _decode_value(body[1:])
