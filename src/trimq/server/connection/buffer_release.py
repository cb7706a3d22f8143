"""Frees the receive buffers of connections that were idle for a second after a large transfer. One timer serves all of
them, and runs only while there are any. Does not know sockets."""

from __future__ import annotations

from typing import Protocol

from trimq.clock import Timeline, Timer

# A connection without activity between two checks is idle.
LOOK_MS = 1000
_NOT_SEEN = -1


class BufferOwner(Protocol):
    @property
    def activity_count(self) -> int:
        """Changes whenever the connection has done something."""

    def release_memory(self) -> bool:
        """Frees the receive buffer. Returns False if it is still needed."""


class BufferReleaser:
    __slots__ = ("_timeline", "_timer", "_watched")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._timer: Timer | None = None
        # A dict, not a set: checked in the same order on every run.
        self._watched: dict[BufferOwner, int] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, busy: BufferOwner) -> None:
        """Watches a connection after a large transfer, and calls its `release_memory` once it is idle."""
        self._watched.setdefault(busy, _NOT_SEEN)
        self._arm()

    def forget(self, busy: BufferOwner) -> None:
        """Forgets a connection that has ended."""
        self._watched.pop(busy, None)
        if not self._watched and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        for busy, seen in list(self._watched.items()):
            if busy.activity_count != seen:
                self._watched[busy] = busy.activity_count
            elif busy.release_memory():
                del self._watched[busy]
        self._arm()

    def _arm(self) -> None:
        if self._watched and self._timer is None:
            self._timer = self._timeline.call_at(self._timeline.now_ms() + LOOK_MS, self._look)
