"""Queues with messages that no handler took yet. Serves the queues of a level in turn, and the levels by their shares,
so that none starves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from trimq.client.errors import Closed

R = TypeVar("R")


class Source(Protocol[R]):
    """Queue from which messages are taken."""

    @property
    def has_ready(self) -> bool:
        """Whether a message may be taken now."""
        ...

    @property
    def level(self) -> int:
        """Level of the queue: 0 is the most urgent."""
        ...

    def take(self, limit: int) -> list[R]:
        """Takes up to `limit` messages; may return none."""
        ...


class Inbox(Generic[R]):
    """`shares`: how many times each level is served in one round, if all have messages."""

    def __init__(self, shares: Sequence[int] = (1,)) -> None:
        self._shares = tuple(shares)
        self._left = list(shares)
        self._levels: tuple[dict[Source[R], None], ...] = tuple({} for _ in shares)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def add(self, source: Source[R]) -> None:
        """The source may have messages now."""
        if source.has_ready:
            self._levels[source.level][source] = None
            self._wake()

    def remove(self, source: Source[R]) -> None:
        self._levels[source.level].pop(source, None)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def take(self, limit: int = 1) -> list[R]:
        """Returns at least one message, up to `limit`, all of one queue. Raises Closed when nothing comes any more."""
        while True:
            while (ready := self._next_level()) is not None:
                source = next(iter(ready))
                del ready[source]
                found = source.take(limit)
                if source.has_ready:
                    ready[source] = None
                if any(self._levels):
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

    def _next_level(self) -> dict[Source[R], None] | None:
        """Returns the most urgent level that has messages and a share left in this round."""
        if len(self._levels) == 1:
            return self._levels[0] or None
        for _ in range(2):
            for number, ready in enumerate(self._levels):
                if ready and self._left[number]:
                    self._left[number] -= 1
                    return ready
            self._left = list(self._shares)
        return None

    def close(self) -> None:
        self._is_closed = True
        for ready in self._levels:
            ready.clear()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
