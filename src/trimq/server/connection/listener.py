"""Accepts connections for one front-end: binds the address, counts and limits connections, and closes them at shutdown.
Knows no protocol."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from trimq.errors import StartupError
from trimq.metrics import Counter
from trimq.server.connection.certificates import ListenerTls
from trimq.server.connection.handshakes import Handshakes
from trimq.server.connection.session import Session
from trimq.server.connection.tls_detection import TlsDetector

log = logging.getLogger(__name__)

_BACKLOG = 1024

# Attempts to find a port that is free on all addresses of a host name.
_ATTEMPTS = 10


class _Refused(asyncio.Protocol):
    """Closes a connection over the limit as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class AnyListener(Protocol):
    """Interface of a listener to the node, for any transport."""

    host: str
    port: int

    @property
    def connections(self) -> int: ...

    @property
    def is_quiet(self) -> bool: ...

    def sessions(self) -> list[tuple[Session, int]]: ...

    @property
    def address(self) -> str: ...

    async def serve(self) -> None: ...

    def stop_accepting(self) -> None: ...

    def close_sessions(self) -> None: ...

    async def closed(self) -> None: ...

    def abort_sessions(self) -> None: ...


class Listener:
    """One bound address and the sessions that it accepted."""

    def __init__(
        self,
        name: str,
        make_session: Callable[[Callable[[Session], None]], Session],
        max_connections: int,
        refused: Counter,
        tls: tuple[ListenerTls, Handshakes] | None = None,
        has_room: Callable[[], bool] = lambda: True,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`tls` None: no TLS. `has_room` returns whether the process can accept one more connection, counting
        all listeners. `now_ms`: the time that is shown as the beginning of a connection."""
        self.name = name
        self._has_room = has_room
        self._tls = tls
        self._make_session = make_session
        self._max_connections = max_connections
        self._refused = refused
        self._now_ms = now_ms
        # A dict, not a set: sessions are closed in the order of arrival, on every run.
        self._sessions: dict[Session, int] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self._server: asyncio.Server | None = None
        self._is_accepting = True
        self._is_full = False
        self.host = ""
        self.port = 0

    @property
    def connections(self) -> int:
        return len(self._sessions)

    @property
    def is_quiet(self) -> bool:
        return all(session.is_quiet for session in self._sessions)

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def sessions(self) -> list[tuple[Session, int]]:
        """Returns the sessions, each with the time at which it was accepted."""
        return list(self._sessions.items())

    async def start(self, host: str, port: int) -> None:
        """Binds the address. Connections are accepted once `serve` has been called."""
        try:
            self._server = await self._bind(host, port)
        except OSError as error:
            raise StartupError(explain_taken(self.name, host, port, error)) from None
        self.host = host
        self.port = self._server.sockets[0].getsockname()[1]

    async def _bind(self, host: str, port: int) -> asyncio.Server:
        for _ in range(_ATTEMPTS):
            server = await self._create(host, port)
            ports = {bound.getsockname()[1] for bound in server.sockets}
            if len(ports) == 1:
                return server
            # With port 0 and a name with several addresses, each got another port: try one of them for all.
            server.close()
            await server.wait_closed()
            try:
                return await self._create(host, min(ports))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, "no port is free on all addresses of this host name")

    async def _create(self, host: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(self._accept, host, port, backlog=_BACKLOG, start_serving=False)

    async def serve(self) -> None:
        assert self._server is not None
        try:
            for bound in self._server.sockets:
                _listen(bound)
            await self._server.start_serving()
        except OSError as error:  # two programs can bind the same address, but only one can listen on it
            raise StartupError(explain_taken(self.name, self.host, self.port, error)) from None

    def _accept(self) -> asyncio.BaseProtocol:
        if not self._is_accepting:  # accepted in the turn in which the listener was closed
            return _Refused()
        if len(self._sessions) >= self._max_connections:
            self._refuse(f"limit of {self._max_connections} connections reached")
            return _Refused()
        if not self._has_room():
            self._refuse("limit of open files reached by the connections of all listeners")
            return _Refused()
        self._is_full = False
        session = self._make_session(self._forget)
        self._sessions[session] = self._now_ms()
        self._empty.clear()
        return session if self._tls is None else TlsDetector(session, *self._tls)

    def _refuse(self, reason: str) -> None:
        self._refused.value += 1
        if not self._is_full:  # logged once: rejected clients may reconnect very often
            self._is_full = True
            log.warning("%s: %s; closing new connections", self.name, reason)

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session, None)
        if not self._sessions:
            self._empty.set()

    def stop_accepting(self) -> None:
        self._is_accepting = False
        if self._server is not None:
            # asyncio leaks the socket of a connection that is being accepted while the server closes. The timer runs
            # after the accepts of this turn, and its `call_soon` after their connections were made.
            loop = asyncio.get_running_loop()
            loop.call_later(0, loop.call_soon, self._server.close)

    def close_sessions(self) -> None:
        """Closes all sessions, each after its pending replies are sent."""
        for session in list(self._sessions):
            session.close_for_shutdown()

    async def closed(self) -> None:
        """Returns when the last session has ended."""
        await self._empty.wait()

    def abort_sessions(self) -> None:
        for session in list(self._sessions):
            session.abort()


def _listen(bound: socket.socket) -> None:
    """Listens, to detect an address in use. OSError: another program listens on it. uvloop, which listens again later,
    would not report that error, and its server would never close."""
    if bound.fileno() >= 0:
        with socket.fromfd(bound.fileno(), bound.family, bound.type) as twin:
            twin.listen(_BACKLOG)


async def is_free(host: str, port: int) -> bool:
    """True if the port is free on all addresses of the host. A port that is bound but not listening is not free."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
    except OSError:
        return False
    return True


def explain_taken(name: str, host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        taken = f"{name}: port {port} on {host} is taken by another program"
        if name == "rocketmq_vip":  # it has no flag of its own: its port follows from the broker's
            return f"{taken}; choose another address with --rocketmq-broker-listen, or set --rocketmq-old-clients false"
        return f"{taken}; choose another address with --{name.replace('_', '-')}-listen"
    return f"{name}: cannot listen on {host}:{port}: {error.strerror or error}"
