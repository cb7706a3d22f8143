"""Received messages of one queue until they are finished. What may be committed is the lowest unfinished offset. Knows
neither brokers nor handlers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """Limits of the unfinished messages of one queue; no more are pulled beyond one of them. `span`: distance between
    the lowest and the highest offset."""

    messages: int = 1000
    bytes: int = 100 * 1024 * 1024
    span: int | None = 2000


class Buffered(Protocol):
    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...


M = TypeVar("M", bound=Buffered)


class ProcessQueue(Generic[M]):
    """`waiting` has the messages that no handler took yet. `next_offset` is the next one to pull."""

    __slots__ = ("_limits", "_unfinished", "bytes", "next_offset", "waiting")

    def __init__(self, next_offset: int, limits: BufferLimits) -> None:
        self._limits = limits
        self._unfinished: dict[int, M] = {}
        self.waiting: deque[M] = deque()
        self.next_offset = next_offset
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._unfinished)

    def put(self, messages: Iterable[M], next_offset: int) -> None:
        """Adds pulled messages, in order."""
        for message in messages:
            self._unfinished[message.offset] = message
            self.bytes += message.size
            self.waiting.append(message)
        self.next_offset = next_offset

    def finish(self, offset: int) -> bool:
        """Removes a message. Returns False if it was removed before."""
        message = self._unfinished.pop(offset, None)
        if message is None:
            return False
        self.bytes -= message.size
        return True

    def unfinished(self) -> list[M]:
        return list(self._unfinished.values())

    @property
    def committable(self) -> int:
        """Offset that may be committed: all messages before it are finished."""
        return next(iter(self._unfinished), self.next_offset)

    @property
    def is_full(self) -> bool:
        limits, count = self._limits, len(self._unfinished)
        if not count:
            return False
        if count >= limits.messages or self.bytes >= limits.bytes:
            return True
        return limits.span is not None and self.next_offset - self.committable >= limits.span

    def restart(self, offset: int) -> None:
        """Forgets all messages and continues at another offset."""
        self._unfinished.clear()
        self.waiting.clear()
        self.bytes = 0
        self.next_offset = offset
