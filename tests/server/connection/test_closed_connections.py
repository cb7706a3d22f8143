"""Partly received data is freed at once when the connection closes: a client that reconnects repeatedly must not fill
the memory until the next garbage collection."""

from __future__ import annotations

import gc
import socket
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from amqp import Connection

from trimq.clock import monotonic_seconds, pause
from trimq.protocols.grpc.frames import END_HEADERS, PREFACE, FrameType, frame, settings
from trimq.protocols.grpc.hpack import encode
from trimq.testing import Broker

UNFINISHED = 6_000_000
PATIENCE_S = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(rocketmq_grpc_listen="127.0.0.1:0") as running:
        yield running


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def plug(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def kafka(broker: Broker) -> tuple[socket.socket, bytes]:
    head = struct.pack(">ihhih", 40_000_000, 0, 9, 1, -1)
    return plug(broker.kafka), head + bytes(UNFINISHED)


def remoting(broker: Broker) -> tuple[socket.socket, bytes]:
    return plug(broker.addresses["rocketmq_broker"]), struct.pack(">ii", 15_000_000, 100) + bytes(UNFINISHED)


def http(broker: Broker) -> tuple[socket.socket, bytes]:
    head = b"POST /api/topics HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n"
    return plug(broker.http), head + bytes(900_000)


def grpc(broker: Broker) -> tuple[socket.socket, bytes]:
    path = b"/apache.rocketmq.v2.MessagingService/SendMessage"
    fields = {":method": b"POST", ":scheme": b"http", ":path": path, "content-type": b"application/grpc"}
    message = struct.pack(">BI", 0, 3_000_000) + bytes(UNFINISHED)
    calls = b"".join(
        frame(FrameType.HEADERS, END_HEADERS, number, encode(fields.items()))
        + b"".join(frame(FrameType.DATA, 0, number, message[at : at + 16_000]) for at in range(0, 48_000, 16_000))
        for number in range(1, 41, 2)
    )
    return plug(broker.rocketmq_grpc), PREFACE + settings({}) + calls


def amqp(broker: Broker) -> tuple[socket.socket, bytes]:
    client = Connection(urlsplit(broker.amqp).netloc.rpartition("@")[2])
    client.connect()
    client.channel()
    own = socket.socket(fileno=client.transport.sock.detach())  # bypasses the client
    own.setblocking(True)

    def piece(kind: int, payload: bytes) -> bytes:
        return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"

    publish = struct.pack(">HHH", 60, 40, 0) + b"\x00" + b"\x01q" + b"\x00"
    body = [piece(3, bytes(100_000))] * (UNFINISHED // 100_000)
    return own, b"".join((piece(1, publish), piece(2, struct.pack(">HHQH", 60, 0, 100_000_000, 0)), *body))


@pytest.mark.parametrize("begin", [kafka, remoting, http, grpc, amqp])
def test_partly_received_data_is_freed_with_its_connection(
    broker: Broker, begin: Callable[[Broker], tuple[socket.socket, bytes]]
) -> None:
    plugged, sent = begin(broker)
    with without_collector():
        before, _ = tracemalloc.get_traced_memory()
        plugged.sendall(sent)
        await_memory(lambda now: now > before + min(len(sent), 900_000) // 2)
        plugged.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plugged.close()
        await_memory(lambda now: now < before + 150_000)


def await_memory(is_reached: Callable[[int], bool]) -> None:
    until_s = monotonic_seconds() + PATIENCE_S
    while not is_reached(tracemalloc.get_traced_memory()[0]):
        assert monotonic_seconds() < until_s, f"{tracemalloc.get_traced_memory()[0]:,} bytes are held"
        pause(0.01)
