"""TCP proxy between a client and a broker, which a test can cut; ignores the content of the traffic."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_CHUNK = 1 << 16


class Cable:
    def __init__(self, far: str, port: int = 0) -> None:
        host, _, far_port = far.rpartition(":")
        self._far = host, int(far_port)
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def cut(self) -> None:
        """Cuts all connections without a goodbye to either side. New connections are forwarded again."""
        for end in tuple(self._ends):  # without connections that are opened meanwhile
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()  # no connection is forwarded afterwards
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._ends.append(near)
                try:
                    far = socket.create_connection(self._far)
                except OSError:  # the broker is down
                    near.shutdown(socket.SHUT_RDWR)
                    continue
                self._ends.append(far)
                self._start(_carry, near, far)
                self._start(_carry, far, near)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def cable_to(address: str) -> Iterator[Cable]:
    cable = Cable(address)
    try:
        yield cable
    finally:
        cable.close()
