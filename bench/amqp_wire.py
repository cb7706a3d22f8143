"""AMQP 0-9-1 for the load generator: frames that are encoded before the measurement starts, and a synchronous client.
Independent of the broker's codec, so that an error in one is not hidden by the same error in the other."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import cache
from struct import Struct

METHOD, HEADER, BODY = 1, 2, 3
CHANNEL = 1
PATIENCE_S = 60
PERSISTENT = 2

_PREFIX = Struct(">BHI")
_METHOD_ID = Struct(">HH")
_CONTENT = Struct(">HHQHB")  # class, weight, size, flags, delivery mode
_DELIVERY_MODE = 1 << 12
_TUNING = Struct(">HIH")
_COUNTS = Struct(">II")
_CONFIRM = Struct(">QB")
_END = b"\xce"

MethodId = tuple[int, int]

_CLOSES: set[MethodId] = {(10, 50), (20, 40)}


class WireFailed(Exception):
    """The broker refused a request or closed the connection."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _PREFIX.pack(kind, channel, len(payload)) + payload + _END


def method(channel: int, id: MethodId, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, _METHOD_ID.pack(*id) + arguments)


def short(text: str) -> bytes:
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded


def long(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def table(fields: Mapping[str, str]) -> bytes:
    return long(b"".join(short(name) + b"S" + long(value.encode()) for name, value in fields.items()))


def encode_publish(queue: str, body: bytes) -> bytes:
    """Encodes one persistent message to the queue, through the default exchange."""
    content = _CONTENT.pack(60, 0, len(body), _DELIVERY_MODE, PERSISTENT)
    start = method(CHANNEL, (60, 40), b"\0\0" + short("") + short(queue) + b"\0")
    return start + frame(HEADER, CHANNEL, content) + frame(BODY, CHANNEL, body)


def encode_consume(queue: str) -> bytes:
    """Encodes basic.consume with no-wait, so that the broker sends only deliveries."""
    return method(CHANNEL, (60, 20), b"\0\0" + short(queue) + short("c") + b"\x08" + table({}))


ACK_BYTES = 21


@cache
def encode_acks(count: int) -> memoryview:
    """Encodes one basic.ack frame per delivery tag, from tag 1 on."""
    return memoryview(b"".join(method(CHANNEL, (60, 80), _CONFIRM.pack(tag, 0)) for tag in range(1, count + 1)))


class Client:
    """A synchronous client: one connection with one open channel."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        try:
            self._open()
        except BaseException:
            self.socket.close()
            raise

    def _open(self) -> None:
        self._call(b"AMQP\x00\x00\x09\x01", (10, 10))
        login = table({"product": "bench"}) + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")
        tuning = self._call(method(0, (10, 11), login), (10, 30))
        channels, frame_bytes, _ = _TUNING.unpack_from(tuning)
        self.socket.sendall(method(0, (10, 31), _TUNING.pack(channels, frame_bytes, 0)))
        self._call(method(0, (10, 40), short("/") + b"\0\0"), (10, 41))
        self._call(method(CHANNEL, (20, 10), b"\0"), (20, 11))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _call(self, request: bytes, answer: MethodId) -> bytes:
        self.socket.sendall(request)
        return self.await_method(answer)

    def await_method(self, wanted: MethodId) -> bytes:
        """Returns the arguments of the next method; fails if it is another one."""
        while True:
            if len(self._received) >= _PREFIX.size:
                kind, _, length = _PREFIX.unpack_from(self._received)
                end = _PREFIX.size + length
                if len(self._received) > end:
                    payload, self._received = self._received[_PREFIX.size : end], self._received[end + 1 :]
                    found = _METHOD_ID.unpack_from(payload) if kind == METHOD else (0, 0)
                    if found != wanted:
                        raise WireFailed(f"{wanted} was expected, {found} was received: {payload[:200]!r}")
                    return payload[_METHOD_ID.size :]
            received = self.socket.recv(65536)
            if not received:
                raise WireFailed("the broker closed the connection")
            self._received += received

    def declare(self, queue: str, kind: str, is_passive: bool = False) -> int:
        """Declares a durable queue and returns the number of messages in it."""
        bits = bytes([is_passive | 2])
        arguments = table({} if is_passive else {"x-queue-type": kind})
        answer = self._call(method(CHANNEL, (50, 10), b"\0\0" + short(queue) + bits + arguments), (50, 11))
        count, _ = _COUNTS.unpack_from(answer, 1 + answer[0])
        return int(count)

    def declare_exclusive(self) -> None:
        """Declares an exclusive queue with a name generated by the broker."""
        self._call(method(CHANNEL, (50, 10), b"\0\0" + short("") + b"\x04" + table({})), (50, 11))

    def count(self, queue: str) -> int:
        return self.declare(queue, "", is_passive=True)

    def delete(self, queue: str) -> None:
        self._call(method(CHANNEL, (50, 40), b"\0\0" + short(queue) + b"\0"), (50, 41))

    def select_confirms(self) -> None:
        self._call(method(CHANNEL, (85, 10), b"\0"), (85, 11))

    def limit(self, prefetch: int) -> None:
        """Sets the prefetch. The response also shows that the broker has processed all earlier frames."""
        self._call(method(CHANNEL, (60, 10), Struct(">IHB").pack(0, prefetch, 0)), (60, 11))

    def close_connection(self) -> None:
        self._call(method(0, (10, 50), b"\0\xc8" + short("") + b"\0\0\0\0"), (10, 51))


def check_confirm_frame(length: int, id: MethodId, end: int, data: bytes) -> None:
    if length != 13 or id != (60, 80) or end != _END[0]:
        raise WireFailed(f"no confirm: {id} of {length} bytes in {data[:200]!r}")


def delivery_bytes(data: bytes) -> int | None:
    """Returns the length of the delivery at the start of `data`; None if it is incomplete."""
    position, missing = 0, -1
    while missing:
        if len(data) < position + _PREFIX.size:
            return None
        kind, _, length = _PREFIX.unpack_from(data, position)
        start = position + _PREFIX.size
        position = start + length + 1
        if len(data) < position:
            return None
        if kind == METHOD and _METHOD_ID.unpack_from(data, start) != (60, 60):
            raise WireFailed(f"no delivery: {data[start:position]!r}")
        if kind == HEADER:
            missing = int.from_bytes(data[start + 4 : start + 12], "big")
        elif kind == BODY:
            missing -= length
    return position
