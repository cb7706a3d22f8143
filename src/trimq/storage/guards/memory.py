"""Refuses writes while the process uses more memory than allowed, and accepts them again when it has freed some. Says
before that how short memory is. Knows sizes, never the users of the memory."""

from __future__ import annotations

import logging

from trimq.clock import Timeline, Timer
from trimq.errors import MemoryFull
from trimq.storage.io.files import Files

log = logging.getLogger(__name__)

REFRESH_MS = 1000

# Writes are accepted again only well below the limit at which they were refused, so that the two states do not
# alternate.
_RECOVERY_PERCENT = 95


class MemoryGuard:
    """Queries the system once a second while there are writes."""

    __slots__ = (
        "_files",
        "_is_refusing",
        "_limit_percent",
        "_throttle_percent",
        "_timeline",
        "_timer",
        "_used_bytes",
        "_writable_bytes",
        "shortage",
    )

    def __init__(self, files: Files, timeline: Timeline, limit_percent: int, throttle_percent: int) -> None:
        self._files = files
        self._timeline = timeline
        self._limit_percent = limit_percent
        self._throttle_percent = throttle_percent
        self._is_refusing = False
        self.shortage = 0.0
        """At the last query: 0 below `throttle_percent` of the limit, rising to 1 at the limit; 1 while writes are
        refused."""
        self._used_bytes = self._writable_bytes = 0
        self._timer: Timer | None = None

    def check(self) -> None:
        """Raises MemoryFull if memory use is above the limit, or was above it and has not yet fallen well below it."""
        if self._timer is None:
            self._refresh()
        if self._is_refusing:
            raise MemoryFull(self._used_bytes, max(self._writable_bytes, 0))

    def change_limit(self, limit_percent: int) -> None:
        """Sets another limit. The next check queries the system."""
        self._limit_percent = limit_percent
        self.stop()

    def stop(self) -> None:
        """Stops the timer. The next check queries the system."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refresh(self) -> None:
        # The next write sets the timer again: an idle broker is not woken.
        self._timer = self._timeline.call_at(self._timeline.now_ms() + REFRESH_MS, self._expire)
        memory = self._files.memory()
        self._used_bytes = memory.used_bytes
        limit_bytes = memory.total_bytes * self._limit_percent // 100 if self._limit_percent else -1  # 0: refuse all
        self._writable_bytes = limit_bytes * _RECOVERY_PERCENT // 100
        if not self._is_refusing and memory.used_bytes > limit_bytes:
            log.warning("memory: refusing writes (%s bytes used, limit %s)", memory.used_bytes, limit_bytes)
            self._is_refusing = True
        elif self._is_refusing and memory.used_bytes <= self._writable_bytes:
            log.warning("memory: accepting writes again (%s bytes used)", memory.used_bytes)
            self._is_refusing = False
        throttled_from = limit_bytes * self._throttle_percent // 100
        if self._is_refusing:
            self.shortage = 1.0
        elif memory.used_bytes <= throttled_from:
            self.shortage = 0.0
        else:
            self.shortage = (memory.used_bytes - throttled_from) / (limit_bytes - throttled_from)

    def _expire(self) -> None:
        self._timer = None
