"""Accepts connections for one front-end: binds, counts, limits, and closes them in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from trimq.errors import StartupError
from trimq.metrics import Counter
from trimq.server.connection.certificates import Certificates
from trimq.server.connection.session import Session
from trimq.server.connection.tls_detection import TlsDetector

log = logging.getLogger(__name__)

_BACKLOG = 1024

# How often a free port is looked for that all addresses of a host name have.
_ATTEMPTS = 10


class _Refused(asyncio.Protocol):
    """A connection over the limit: closed as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class AnyListener(Protocol):
    """What a node asks of a listener, whoever carries its bytes."""

    host: str
    port: int

    @property
    def connections(self) -> int: ...

    @property
    def is_quiet(self) -> bool: ...

    @property
    def address(self) -> str: ...

    async def serve(self) -> None: ...

    def stop_accepting(self) -> None: ...

    def close_sessions(self) -> None: ...

    async def closed(self) -> None: ...

    def abort_sessions(self) -> None: ...


class Listener:
    """One bound address and the sessions that came through it."""

    def __init__(
        self,
        name: str,
        make_session: Callable[[Callable[[Session], None]], Session],
        max_connections: int,
        refused: Counter,
        certificates: Certificates | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`certificates`: clients may encrypt. `has_room` says whether the process can take one more connection, by
        whichever listener."""
        self.name = name
        self._has_room = has_room
        self._certificates = certificates
        self._make_session = make_session
        self._max_connections = max_connections
        self._refused = refused
        # A dict, not a set: closing happens in the order of arrival, on every run.
        self._sessions: dict[Session, None] = {}
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

    async def start(self, host: str, port: int) -> None:
        """Take the address. Connections are accepted once `serve` has been called."""
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
            # A name with several addresses, and a port of its own was picked for each: try the first for all of them.
            server.close()
            await server.wait_closed()
            try:
                return await self._create(host, min(ports))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, "no port is free on all addresses of that name")

    async def _create(self, host: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(self._accept, host, port, backlog=_BACKLOG, start_serving=False)

    async def serve(self) -> None:
        assert self._server is not None
        try:
            for bound in self._server.sockets:
                _listen(bound)
            await self._server.start_serving()
        except OSError as error:  # two programs may take an address at once, but only one can listen on it
            raise StartupError(explain_taken(self.name, self.host, self.port, error)) from None

    def _accept(self) -> asyncio.BaseProtocol:
        if not self._is_accepting:  # it came in the pass in which the listener was closed
            return _Refused()
        if len(self._sessions) >= self._max_connections:
            self._refuse(f"the limit of {self._max_connections} connections is reached")
            return _Refused()
        if not self._has_room():
            self._refuse("all listeners together have as many connections as the open files of the process allow")
            return _Refused()
        self._is_full = False
        session = self._make_session(self._forget)
        self._sessions[session] = None
        self._empty.clear()
        return session if self._certificates is None else TlsDetector(session, self._certificates)

    def _refuse(self, reason: str) -> None:
        self._refused.value += 1
        if not self._is_full:  # said once: those who are turned away may come again very often
            self._is_full = True
            log.warning("%s: %s; new ones are closed", self.name, reason)

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session, None)
        if not self._sessions:
            self._empty.set()

    def stop_accepting(self) -> None:
        self._is_accepting = False
        if self._server is not None:
            # asyncio forgets the socket of a connection whose server closes while it is accepted. A timer runs after
            # this pass has accepted, and what it calls soon after those connections were made.
            loop = asyncio.get_running_loop()
            loop.call_later(0, loop.call_soon, self._server.close)

    def close_sessions(self) -> None:
        """Each delivers the replies that it owes, then closes."""
        for session in list(self._sessions):
            session.close_for_shutdown()

    async def closed(self) -> None:
        """Return when the last session is gone."""
        await self._empty.wait()

    def abort_sessions(self) -> None:
        for session in list(self._sessions):
            session.abort()


def _listen(bound: socket.socket) -> None:
    """OSError: somebody else does. uvloop, which listens once more, would not tell, and never close again."""
    if bound.fileno() >= 0:
        with socket.fromfd(bound.fileno(), bound.family, bound.type) as twin:
            twin.listen(_BACKLOG)


async def is_free(host: str, port: int) -> bool:
    """Whether nobody has this port, on any address of the host; who has only taken it, and does not listen yet, has it
    as well."""
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
        if name == "rocketmq_vip":  # which has no flag: it is where it is because of the broker's
            return f"{taken}; choose another address with --rocketmq-broker-listen, or set --rocketmq-old-clients false"
        return f"{taken}; choose another address with --{name.replace('_', '-')}-listen"
    return f"{name}: cannot listen on {host}:{port}: {error.strerror or error}"
