"""Keeps one connection of the broker to another server: connects at start, and again a while after it failed or ended.
Knows no protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trimq.clock import Timeline, Timer
from trimq.config import Address
from trimq.server.connection.session import Session

log = logging.getLogger(__name__)

_RETRY_MS = 5_000
_CONNECT_S = 5.0


class Connector:
    def __init__(
        self,
        name: str,
        address: Address,
        make_session: Callable[[Callable[[Session], None]], Session],
        liveness: Timeline,
    ) -> None:
        self.name = name
        self.address = address
        self._make_session = make_session
        self._liveness = liveness
        self._session: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry: Timer | None = None
        self._is_stopped = False
        self._is_failing = False
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def connections(self) -> int:
        return 0 if self._session is None else 1

    @property
    def is_quiet(self) -> bool:
        return self._session is None or self._session.is_quiet

    def start(self) -> None:
        self._retry = None
        if not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        session = self._make_session(self._session_ended)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                await loop.create_connection(lambda: self._use(session), *self.address)
        except (OSError, TimeoutError) as error:
            if not self._is_failing:  # logged once until it succeeds
                log.warning(
                    "%s %s: cannot connect, will be tried again (%s)", self.name, self.address, error or "timeout"
                )
            self._is_failing = True
            self._schedule()
        else:
            log.info("%s %s: connected", self.name, self.address)
            self._is_failing = False

    def _use(self, session: Session) -> Session:
        self._session = session
        self._ended.clear()
        return session

    def _session_ended(self, session: Session) -> None:
        self._session = None
        self._ended.set()
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_stopped and self._retry is None:
            self._retry = self._liveness.call_at(self._liveness.now_ms() + _RETRY_MS, self.start)

    def stop(self) -> None:
        """Opens no further connection."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None and self._session is None:
            self._task.cancel()

    def close_session(self) -> None:
        """Closes the connection after the message by which the protocol announces a shutdown."""
        if self._session is not None:
            self._session.close_for_shutdown()

    async def closed(self) -> None:
        """Returns when the connection has ended."""
        await self._ended.wait()

    def abort(self) -> None:
        if self._session is not None:
            self._session.abort()
