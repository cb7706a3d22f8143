"""Refuses writes while the disk does not get on with the ones it has, and accepts them again when it does: a client
that hears a no can go elsewhere, one that waits cannot. Knows passes, never what is written."""

from __future__ import annotations

import logging

from trimq.clock import Timeline, Timer
from trimq.errors import Busy
from trimq.storage.group_commit.passes import Passes

log = logging.getLogger(__name__)

# Where the event loop itself was held up, the news of a sync may stand behind the timer.
RECHECK_AFTER_MS = 100


class SlowDiskGuard:
    """One pass is awaited at a time: the first that is written to after the last one was found durable."""

    __slots__ = ("_awaited", "_busy_after_ms", "_is_stalled", "_passes", "_timeline", "_timer")

    def __init__(self, passes: Passes, timeline: Timeline, busy_after_ms: int) -> None:
        self._passes = passes
        self._timeline = timeline
        self._busy_after_ms = busy_after_ms
        self._awaited = 0
        self._is_stalled = False
        self._timer: Timer | None = None

    def check(self) -> None:
        """Busy: what was written `busy_after_ms` ago or earlier is not on disk yet."""
        if self._is_stalled:
            if not self._has_synced():
                raise Busy(f"the disk has not synced for more than {self._busy_after_ms} ms")
            log.warning("the disk syncs again: writes are accepted")
            self._is_stalled = False
        if self._timer is None:
            self._awaited = self._passes.current
            self._timer = self._timeline.call_at(self._timeline.now_ms() + self._busy_after_ms, self._check)

    def stop(self) -> None:
        """Await nothing by itself; the next check does."""
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
            log.warning("writes are refused: the disk has not synced for more than %d ms", self._busy_after_ms)
            self._is_stalled = True

    def _has_synced(self) -> bool:
        return self._passes.durable >= self._awaited or self._passes.is_idle
