"""Refuses writes while the disk falls behind with syncs, and accepts them again when it has caught up: a client that
gets an error can use another broker, one that waits cannot. Knows passes, never the data."""

from __future__ import annotations

import logging

from trimq.clock import Timeline, Timer
from trimq.errors import Busy
from trimq.storage.group_commit.passes import Passes

log = logging.getLogger(__name__)

# If the event loop itself was blocked, the report of a finished sync may be queued after the timer.
RECHECK_AFTER_MS = 100


class SlowDiskGuard:
    """Watches one pass at a time: the first one written after the previous one was found durable."""

    __slots__ = ("_awaited", "_busy_after_ms", "_is_stalled", "_passes", "_timeline", "_timer")

    def __init__(self, passes: Passes, timeline: Timeline, busy_after_ms: int) -> None:
        self._passes = passes
        self._timeline = timeline
        self._busy_after_ms = busy_after_ms
        self._awaited = 0
        self._is_stalled = False
        self._timer: Timer | None = None

    def check(self) -> None:
        """Raises Busy if data written `busy_after_ms` ago or earlier is not on disk yet."""
        if self._is_stalled:
            if not self._has_synced():
                raise Busy(f"the disk has not synced for more than {self._busy_after_ms} ms")
            log.warning("disk: syncs again, accepting writes")
            self._is_stalled = False
        if self._timer is None:
            self._awaited = self._passes.current
            self._timer = self._timeline.call_at(self._timeline.now_ms() + self._busy_after_ms, self._check)

    def stop(self) -> None:
        """Stops the timer. The next check starts to watch again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if not self._has_synced():
            self._timer = self._timeline.call_at(self._timeline.now_ms() + RECHECK_AFTER_MS, self._check_again)

    def _check_again(self) -> None:
        self._timer = None
        if not self._has_synced():
            log.warning("disk: refusing writes (no sync for more than %d ms)", self._busy_after_ms)
            self._is_stalled = True

    def _has_synced(self) -> bool:
        return self._passes.durable >= self._awaited or self._passes.is_idle
