"""A minimal Kafka client for load generation: requests are encoded before the measurement starts. Knows only the few
messages that it needs, and no broker."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

from bench.pipelined_load import DRAINED_BYTES, PATIENCE_S, Pipeline, WireFailed, connect, drive, receive_exactly
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record

_CLIENT = b"\x00\x05bench"


def encode_batch(batch_bytes: int, record_bytes: int) -> bytes:
    """One batch of about `batch_bytes` of records with bodies of `record_bytes`; at least one record."""
    count = max(batch_bytes // (record_bytes + 10), 1)
    body = bytes(range(256)) * (record_bytes // 256 + 1)
    now_ms = time.time_ns() // 1_000_000
    return bytes(from_records([Record(body[:record_bytes], timestamp_ms=now_ms)] * count))


def encode_produce(topic: str, partition: int, batch: bytes, acks: int) -> bytes:
    """Produce request, version 9: names topics, and every current broker supports it."""
    name = topic.encode()
    body = struct.pack(">bhiB", 0, acks, 30_000, 2) + _varint(len(name) + 1) + name
    body += struct.pack(">Bi", 2, partition) + _varint(len(batch) + 1) + batch + bytes(3)
    return _frame(0, 9, b"\x00" + body)


def encode_fetch(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    """Fetch request, version 12, without a fetch session: up to `max_bytes` of one partition."""
    name = topic.encode()
    body = struct.pack(">iiiibii", -1, 500, 1, max_bytes, 0, 0, -1) + b"\x02" + _varint(len(name) + 1) + name
    body += struct.pack(">Biiqiqi", 2, partition, -1, offset, -1, -1, max_bytes) + bytes(2) + b"\x01\x01\x00"
    return _frame(1, 12, b"\x00" + body)


def encode_metadata(topic: str) -> bytes:
    """Metadata request, version 4, which creates a missing topic."""
    name = topic.encode()
    return _frame(3, 4, struct.pack(">ih", 1, len(name)) + name + b"\x01")


def produce_error(answer: bytes, topic: str) -> int:
    """Returns the error code of a produce response (without its length)."""
    return int(struct.unpack_from(">h", answer, _error_at(topic) - 4)[0])


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Sends one request and returns the response frame without its length."""
    connection.sendall(request)
    return receive_exactly(connection, struct.unpack(">i", receive_exactly(connection, 4))[0])


def await_leader(address: tuple[str, int], topic: str, partition: int) -> None:
    """Waits until a record is accepted: a broker may announce a new topic before it is ready for it."""
    request = encode_produce(topic, partition, encode_batch(1, 1), acks=1)
    until_s = time.perf_counter() + PATIENCE_S
    with connect(address) as connection:
        while error := produce_error(ask(connection, request), topic):
            if time.perf_counter() > until_s:
                raise WireFailed(f"partition {partition} of {topic} is refused with {error}")
            time.sleep(0.005)


def produce_until(
    address: tuple[str, int], topic: str, requests: Sequence[bytes], depth: int, count: int, seconds: float
) -> int:
    """Sends each request on a connection of its own with `depth` requests in flight, until `count` are answered or
    `seconds` have passed. Returns the number of answered requests, which is the number of sent ones."""
    pipelines = [_ProducePipeline(address, topic, request, depth) for request in requests]
    return drive(pipelines, count, seconds)


def fetch_until(
    address: tuple[str, int], requests: Sequence[bytes], connections: int, depth: int, count: int, seconds: float
) -> tuple[int, int]:
    """Like `produce_until`, but each connection sends all requests in turn, and responses are discarded. Returns the
    number of answered requests and of received bytes."""
    pipelines = [_FetchPipeline(address, requests, depth) for _ in range(connections)]
    answered = drive(pipelines, count, seconds)
    return answered, sum(pipeline.received_bytes for pipeline in pipelines)


class _ProducePipeline(Pipeline):
    """Checks that every response has the same length and no error."""

    def __init__(self, address: tuple[str, int], topic: str, request: bytes, depth: int) -> None:
        super().__init__(address, [request], depth)
        self._error_at = _error_at(topic)
        # frame up to the error code, error code, three offsets, empty record errors and message, tagged fields,
        # throttle time
        self._answer_bytes = self._error_at + 2 + 24 + 2 + 2 + 4 + 1
        self._kept = b""

    def receive(self) -> int:
        arrived = self.connection.recv(DRAINED_BYTES)
        if not arrived:
            raise WireFailed("the broker closed the connection")
        data = self._kept + arrived
        count, rest = divmod(len(data), self._answer_bytes)
        end = len(data) - rest
        if any(data[self._error_at : end : self._answer_bytes]) or any(
            data[self._error_at + 1 : end : self._answer_bytes]
        ):
            raise WireFailed(f"a produce request was refused: {data[: self._answer_bytes]!r}")
        self._kept = data[end:]
        return count


class _FetchPipeline(Pipeline):
    """Reads only the length and the error code of a response; the kernel discards the rest."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], depth: int) -> None:
        super().__init__(address, requests, depth)
        self._head = b""
        self._left_bytes = 0
        self._drain = bytearray(DRAINED_BYTES)
        self.received_bytes = 0

    def receive(self) -> int:
        if not self._left_bytes:
            # length, correlation id, empty tagged fields, throttle time, error code
            self._head += self._checked(self.connection.recv(15 - len(self._head)))
            if len(self._head) < 15:
                return 0
            size, error = struct.unpack_from(">i9xh", self._head)
            if error or size < 200:
                raise WireFailed(f"a fetch of {size} bytes with error {error}")
            self._head = b""
            self._left_bytes = size - 11
            self.received_bytes += size
        try:
            dropped = self.connection.recv_into(
                self._drain, min(self._left_bytes, DRAINED_BYTES), socket.MSG_TRUNC | socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return 0
        self._left_bytes -= dropped
        return int(dropped > 0 and not self._left_bytes)

    @staticmethod
    def _checked(arrived: bytes) -> bytes:
        if not arrived:
            raise WireFailed("the broker closed the connection")
        return arrived


def _error_at(topic: str) -> int:
    """Position of the error code in a frame: after length, correlation id, tagged fields, one topic with its name, one
    partition with its index."""
    return 4 + 4 + 1 + 1 + len(_varint(len(topic) + 1)) + len(topic) + 1 + 4


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    framed = struct.pack(">hhi", api_key, version, 1) + _CLIENT + body
    return struct.pack(">i", len(framed)) + framed


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
