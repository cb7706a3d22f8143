"""A broker under attack: how long others wait for a small request meanwhile."""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from protocols.kafka.frames import request_frame

from trimq.protocols.kafka.messages.schema import RequestMessage
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import APIS, response_class

P99_S = 0.100
MAX_S = 0.250

# A machine that is busy with something else makes everything slow, the attack too: a wait counts only if it is also a
# good part of the attack's own time, and if it is seen in each attempt.
P99_PART = 0.10
MAX_PART = 0.15
ATTEMPTS = 3


class Health:
    """Asks for /healthz again and again, on one connection, and keeps the times of the answers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Health:
        self._begin_s = time.monotonic()
        self._interval_s = sys.getswitchinterval()
        sys.setswitchinterval(0.0002)  # or this thread would measure how it waits for the attacking one
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._attack_s = time.monotonic() - self._begin_s
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._interval_s)

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        while not self._stop.wait(0.002):
            begin = time.monotonic()
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() is not None
            self.seconds.append(time.monotonic() - begin)
        connection.close()

    @property
    def is_good(self) -> bool:
        times = sorted(self.seconds)
        p99_s, max_s = times[int(len(times) * 0.99)], times[-1]
        return p99_s < max(P99_S, P99_PART * self._attack_s) and max_s < max(MAX_S, MAX_PART * self._attack_s)

    def __repr__(self) -> str:
        times = sorted(self.seconds)
        p99_s = times[int(len(times) * 0.99)]
        return f"{len(times)} answers in {self._attack_s:.1f} s, p99 {p99_s:.3f} s, at most {times[-1]:.3f} s"


def others_are_served(http: str, attack: Callable[[], object]) -> None:
    """Runs the attack, and fails if others have to wait for long in each of the attempts."""
    seen = []
    for _ in range(ATTEMPTS):
        with Health(http) as health:
            attack()
        if health.is_good:
            return
        seen.append(health)
    raise AssertionError(f"others wait during the attack: {seen}")


def connect(address: str, timeout_s: float = 60) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=timeout_s)


@contextmanager
def kafka(address: str) -> Iterator[Callable[[RequestMessage, int], Any]]:
    """Yields a call that sends one request and returns its response."""
    with connect(address) as connection:
        yield lambda message, version: ask(connection, message, version)


def ask(connection: socket.socket, message: RequestMessage, version: int) -> Any:
    connection.sendall(request_frame(message, version))
    (size,) = struct.unpack(">i", receive(connection, 4))
    body = 5 if version >= APIS[message.API_KEY].flexible_from else 4
    if message.API_KEY == 18:
        body = 4
    return codec.decode(response_class(message.API_KEY), version, receive(connection, size), body)


def receive(connection: socket.socket, count: int) -> bytes:
    """Receives exactly so many bytes; fewer if the connection ends."""
    parts = bytearray()
    while len(parts) < count and (part := connection.recv(count - len(parts))):
        parts += part
    return bytes(parts)


def is_closed(connection: socket.socket, within_s: float) -> bool:
    """Whether the broker closes the connection in time; what it sends before is dropped."""
    connection.settimeout(within_s)
    try:
        while connection.recv(65536):
            continue
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
