"""RocketMQ remoting for the load generator: frames that are encoded before the measurement starts, pipelines that send
them and read as little of a response as possible, and a synchronous client. Independent of the broker's codec, so that
an error in one is not hidden by the same error in the other."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.pipelined_load import DRAINED_BYTES, Pipeline, WireFailed, connect, receive_exactly

SEND_V2, PULL, CREATE_TOPIC, CREATE_TOPICS, MAX_OFFSET, CREATE_GROUP, DELETE_TOPIC = 310, 11, 17, 18, 30, 200, 215
NOT_SUPPORTED = 3
NOT_FOUND = (19, 20, 21)

_LENGTHS = struct.Struct(">iI")
_SUCCESS = b'{"code":0,'
_BUSY = b'{"code":2,'
_HEAD_BYTES = _LENGTHS.size + len(_SUCCESS)

# Layout of a key: 20 digits of the producer as a client generates them, 8 zeros, then the number of the request.
_KEY_BEGINS = b"7F000001"
_ROUND_AT = 20

Properties = Mapping[str, object]


def encode(code: int, fields: Mapping[str, object], body: bytes = b"", opaque: int = 1) -> bytes:
    """Encodes a whole frame, with a header as the Java client writes it."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    header: dict[str, object] = {"code": code, "extFields": texts, "flag": 0, "language": "JAVA", "opaque": opaque}
    header |= {"serializeTypeCurrentRPC": "JSON", "version": 493}
    raw = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(4 + len(raw) + len(body), len(raw)) + raw + body


def encode_send(topic: str, queue: int, body: bytes, number: int, properties: Properties | None = None) -> bytes:
    """Encodes a send request. Requests with numbers below 10,000 have equal length and different keys."""
    more: Properties = {"UNIQ_KEY": f"7F0000010000{number:020X}", "WAIT": "true", **(properties or {})}
    text = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
    fields: dict[str, object] = {"a": "bench", "b": topic, "c": "TBW102", "d": 8, "e": queue, "f": 0}
    fields |= {"g": time.time_ns() // 1_000_000, "h": 0, "i": text, "j": 0, "k": False, "m": False}
    return encode(SEND_V2, fields, body, 10_000 + number)


def encode_pipelines(
    topic: str, queues: int, pipelines: int, body_bytes: int, properties: Properties | None = None
) -> list[list[bytes]]:
    """Encodes requests for several connections, 8,192 together, all with different keys."""
    body = b"x" * body_bytes
    each = 8192 // pipelines
    return [
        [encode_send(topic, pipeline % queues, body, pipeline * each + number, properties) for number in range(each)]
        for pipeline in range(pipelines)
    ]


def encode_pull(topic: str, queue: int, offset: int, count: int, wait_ms: int = 0) -> bytes:
    """Encodes a pull request. Requests with offsets below 10^12 have equal length."""
    fields: dict[str, object] = {"consumerGroup": "bench-pull", "topic": topic, "queueId": queue, "queueOffset": offset}
    fields |= {"maxMsgNums": count, "sysFlag": 6 if wait_ms else 4, "commitOffset": 0, "suspendTimeoutMillis": wait_ms}
    fields |= {"subscription": "*", "subVersion": 0, "expressionType": "TAG", "pad": "x" * (12 - len(str(offset)))}
    return encode(PULL, fields)


class SendPipeline(Pipeline):
    """Checks that every response is a success. Apache RocketMQ refuses requests when it is overloaded; these are
    counted."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], depth: int) -> None:
        super().__init__(address, requests, depth)
        self._kept = b""
        self.busy = 0

    def receive(self) -> int:
        arrived = self.connection.recv(DRAINED_BYTES)
        if not arrived:
            raise WireFailed("the broker closed the connection")
        data = self._kept + arrived
        at = count = 0
        while len(data) - at >= 4 and (end := at + 4 + int.from_bytes(data[at : at + 4], "big")) <= len(data):
            if data.startswith(_BUSY, at + _LENGTHS.size):
                self.busy += 1
            elif not data.startswith(_SUCCESS, at + _LENGTHS.size):
                raise WireFailed(f"a send was refused: {data[at:end]!r}")
            at = end
            count += 1
        self._kept = data[at:]
        return count


class UniqueKeyPipeline(SendPipeline):
    """Sends no request twice: after each round over all requests their keys get the number of the next round, for which
    `encode_send` leaves room."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], depth: int, rounds: int) -> None:
        super().__init__(address, requests, depth)
        self.rounds = rounds
        self._keyed = bytearray(b"".join(requests))
        self._block = memoryview(self._keyed)
        self._number_at = requests[0].index(_KEY_BEGINS) + _ROUND_AT
        self.restart()

    def restart(self) -> None:
        self.rounds += 1
        number = b"%08X" % self.rounds
        for at in range(self._number_at, len(self._keyed), self._size):
            self._keyed[at : at + len(number)] = number


class PullPipeline(Pipeline):
    """Checks only the start of a response, and that it is long enough for the requested messages; the kernel discards
    the rest."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], min_bytes: int) -> None:
        super().__init__(address, requests, 1)
        self._min_bytes = min_bytes
        self._head = b""
        self._left_bytes = 0
        self._drain = bytearray(DRAINED_BYTES)

    def receive(self) -> int:
        if not self._left_bytes:
            arrived = self.connection.recv(_HEAD_BYTES - len(self._head))
            if not arrived:
                raise WireFailed("the broker closed the connection")
            self._head += arrived
            if len(self._head) < _HEAD_BYTES:
                return 0
            size = int.from_bytes(self._head[:4], "big")
            if not self._head.endswith(_SUCCESS) or size < self._min_bytes:
                raise WireFailed(f"a pull was answered with {size} bytes: {self._head!r}")
            self._head = b""
            self._left_bytes = 4 + size - _HEAD_BYTES
        try:
            dropped = self.connection.recv_into(
                self._drain, min(self._left_bytes, DRAINED_BYTES), socket.MSG_TRUNC | socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return 0
        self._left_bytes -= dropped
        return int(dropped > 0 and not self._left_bytes)


class Client:
    """A synchronous client: one connection, one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = connect(address)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        """Returns header and body of the response."""
        self.socket.sendall(request)
        (length,) = struct.unpack(">i", receive_exactly(self.socket, 4))
        found = receive_exactly(self.socket, length)
        size = int.from_bytes(found[:4], "big") & 0xFFFFFF
        return json.loads(found[4 : 4 + size]), found[4 + size :]

    def done(self, request: bytes) -> dict[str, Any]:
        """Returns the fields of the response, which must be a success."""
        header, _ = self.ask(request)
        if header["code"] != 0:
            raise WireFailed(f"refused: {header}")
        fields: dict[str, Any] = header.get("extFields") or {}
        return fields

    def create_topic(self, name: str, queues: int) -> None:
        fields: dict[str, object] = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": queues}
        fields |= {"writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
        self.done(encode(CREATE_TOPIC, {**fields, "order": False, "attributes": "+message.type=NORMAL"}))

    def create_topics(self, names: Sequence[str], queues: int) -> None:
        """Creates all topics in one request if the broker supports it: Apache RocketMQ rewrites the list of all topics
        for each single creation."""
        config = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        listed = [{"topicName": name, "topicSysFlag": 0, "order": False, **config} for name in names]
        body = json.dumps({"topicConfigList": listed}).encode()
        header, _ = self.ask(encode(CREATE_TOPICS, {}, body))
        if header["code"] == NOT_SUPPORTED:
            for name in names:
                self.create_topic(name, queues)
        elif header["code"] != 0:
            raise WireFailed(f"refused: {header}")

    def create_group(self, name: str) -> None:
        self.done(encode(CREATE_GROUP, {}, json.dumps({"groupName": name}).encode()))

    def delete_topic(self, name: str) -> None:
        self.done(encode(DELETE_TOPIC, {"topic": name}))

    def end(self, topic: str, queue: int) -> int:
        return int(self.done(encode(MAX_OFFSET, {"topic": topic, "queueId": queue}))["offset"])
