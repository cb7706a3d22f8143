"""Queues with messages that no handler took yet. Serves the queues in turn, so that none starves."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar

from trimq.client.errors import Closed

R = TypeVar("R")


class Source(Protocol[R]):
    """Queue from which messages are taken."""

    @property
    def has_ready(self) -> bool:
        """Whether a message may be taken now."""
        ...

    def take(self, limit: int) -> list[R]:
        """Takes up to `limit` messages; may return none."""
        ...


class Inbox(Generic[R]):
    def __init__(self) -> None:
        self._ready: dict[Source[R], None] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def add(self, source: Source[R]) -> None:
        """The source may have messages now."""
        if source.has_ready:
            self._ready[source] = None
            self._wake()

    def remove(self, source: Source[R]) -> None:
        self._ready.pop(source, None)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def take(self, limit: int = 1) -> list[R]:
        """Returns at least one message, up to `limit`, all of one queue. Raises Closed when nothing comes any more."""
        while True:
            while self._ready:
                source = next(iter(self._ready))
                del self._ready[source]
                found = source.take(limit)
                if source.has_ready:
                    self._ready[source] = None
                if self._ready:
                    self._wake()
                if found:
                    return found
            if self._is_closed:
                raise Closed("the consumer is closed")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # passes its turn on
                raise

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
