"""Load on several connections with several requests in flight on each, from one thread. Requests are encoded before the
measurement starts and sent repeatedly. Knows no protocol."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence

PATIENCE_S = 30
DRAINED_BYTES = 1 << 20


class WireFailed(Exception):
    """A broker sent an unexpected response or none."""


def connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise WireFailed("the broker closed the connection")
        received += part
    return bytes(received)


def drive(pipelines: Sequence[Pipeline], count: int, seconds: float) -> int:
    """Runs until `count` requests are answered or `seconds` have passed. Returns the number of answered requests, which
    is the number of sent ones."""
    until_s = time.perf_counter() + seconds
    answered = in_flight = 0
    with selectors.DefaultSelector() as selector:
        try:
            for pipeline in pipelines:
                pipeline.enqueue(pipeline.depth)
                in_flight += pipeline.depth
                selector.register(pipeline.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, pipeline)
            while in_flight:
                events = selector.select(PATIENCE_S)
                if not events:
                    raise WireFailed(f"nothing was answered for {PATIENCE_S} s")
                for key, ready in events:
                    pipeline = key.data
                    arrived = pipeline.receive() if ready & selectors.EVENT_READ else 0
                    answered += arrived
                    in_flight -= arrived
                    if arrived and answered + in_flight < count and time.perf_counter() < until_s:
                        pipeline.enqueue(arrived)
                        in_flight += arrived
                    pipeline.push()
                    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pipeline.unsent_bytes else 0)
                    if key.events != wanted:
                        selector.modify(pipeline.connection, wanted, pipeline)
        finally:
            for pipeline in pipelines:
                pipeline.connection.close()
    return answered


class Pipeline:
    """One connection on which requests of equal length are sent in turn, repeatedly, with up to `depth` in flight."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], depth: int) -> None:
        self.connection = connect(address)
        self.connection.setblocking(False)
        self.depth = depth
        self.unsent_bytes = 0
        # Several requests in one block, so that a short request needs no system call of its own.
        block = b"".join(requests)
        self._block = memoryview(block * max(1, min(depth, (1 << 20) // len(block))))
        self._size = len(requests[0])
        self._sent_bytes = 0

    def enqueue(self, count: int) -> None:
        self.unsent_bytes += count * self._size

    def push(self) -> None:
        while self.unsent_bytes:
            begin = self._sent_bytes % len(self._block)
            if not begin and self._sent_bytes:
                self.restart()
            try:
                sent = self.connection.send(self._block[begin : begin + self.unsent_bytes])
            except BlockingIOError:
                return
            self._sent_bytes += sent
            self.unsent_bytes -= sent

    def restart(self) -> None:
        """Called when all requests are sent, before they are sent again from the first on."""

    def receive(self) -> int:
        """Receives, and returns the number of complete responses."""
        raise NotImplementedError
