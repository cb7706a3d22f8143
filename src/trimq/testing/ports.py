"""Reserves ports while a broker is down, so that it restarts at the addresses that its clients know."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from trimq.config import Address, Settings
from trimq.testing.keywords import address_of, listeners, with_address


class ReservedPorts:
    """Reserves each port by a socket that is bound but never listens: the broker can still listen on the port, and the
    kernel gives it to no other process."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def choose(self, settings: Settings) -> Settings:
        """Returns the settings with a reserved port for every listener with port 0."""
        for listener in listeners():
            address = address_of(settings, listener)
            if address is not None and address.port == 0:
                settings = with_address(settings, listener, Address(address.host, self._hold(address.host)))
        return settings

    def _hold(self, host: str) -> int:
        family, kind, protocol, _, bound = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        held = self._held.enter_context(socket.socket(family, kind, protocol))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(bound)
        port: int = held.getsockname()[1]
        return port

    def release(self) -> None:
        self._held.close()
