"""Refuses writes while the disk falls behind with syncs, and accepts them again when it has caught up: a client that
gets an error can use another broker, one that waits cannot. Knows passes, never the data."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from trimq.clock import Timeline, Timer
from trimq.errors import DiskStalled
from trimq.storage.group_commit.passes import Passes

log = logging.getLogger(__name__)

# If the event loop itself was blocked, the report of a finished sync may be queued after the timer.
RECHECK_AFTER_MS = 100

# Passes are watched from the beginning of each of so many parts of the limit: a pass waits at most one part longer.
_PARTS = 4


class SlowDiskGuard:
    """Watches passes while there are any that are not safe. An idle broker is not woken."""

    __slots__ = ("_busy_after_ms", "_is_stalled", "_limit_ms", "_passes", "_safe", "_timeline", "_timer", "_watched")

    def __init__(
        self, passes: Passes, timeline: Timeline, busy_after_ms: int, safe: Callable[[], int], delay_ms: int = 0
    ) -> None:
        """`safe`: returns the number of the last pass that is as safe as it must be. `delay_ms`: how long a pass may
        wait before the disk is asked to make it safe."""
        self._passes = passes
        self._timeline = timeline
        self._busy_after_ms = busy_after_ms
        self._limit_ms = busy_after_ms + delay_ms
        self._safe = safe
        self._watched: deque[tuple[int, int]] = deque()
        """Number of a pass that may not be safe yet, and the time until which it may wait."""
        self._is_stalled = False
        self._timer: Timer | None = None

    def check(self) -> None:
        """Raises DiskStalled if data written `busy_after_ms` ago or earlier is not safe yet."""
        if self._is_stalled:
            self._forget_safe()
            if self._watched:
                raise DiskStalled(self._busy_after_ms)
            log.warning("disk: syncs again, accepting writes")
            self._is_stalled = False
        if self._timer is None:
            self._watch(self._passes.current, self._timeline.now_ms())

    def stop(self) -> None:
        """Stops the timer. The next check starts to watch again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, number: int, now_ms: int) -> None:
        self._watched.append((number, now_ms + self._limit_ms))
        next_ms = min(now_ms + -(-self._limit_ms // _PARTS), self._watched[0][1])
        self._timer = self._timeline.call_at(next_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        self._forget_safe()
        if self._passes.is_idle or self._safe() >= self._passes.written:
            return
        now_ms = self._timeline.now_ms()
        if self._watched and self._watched[0][1] <= now_ms:
            self._timer = self._timeline.call_at(now_ms + RECHECK_AFTER_MS, self._look_again)
        else:
            self._watch(self._passes.written, now_ms)

    def _look_again(self) -> None:
        self._timer = None
        self._forget_safe()
        if self._passes.is_idle or self._safe() >= self._passes.written:
            return
        now_ms = self._timeline.now_ms()
        if self._watched and self._watched[0][1] + RECHECK_AFTER_MS <= now_ms:
            log.warning("disk: refusing writes (no sync for more than %d ms)", self._busy_after_ms)
            self._is_stalled = True
        else:  # the one that waited too long is safe now
            self._watch(self._passes.written, now_ms)

    def _forget_safe(self) -> None:
        """Forgets the watched passes that are safe."""
        if self._passes.is_idle:
            self._watched.clear()
        safe = self._safe()
        while self._watched and self._watched[0][0] <= safe:
            self._watched.popleft()
