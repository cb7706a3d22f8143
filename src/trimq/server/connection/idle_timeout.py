"""Notices that a connection has not moved for too long. One timer per connection, which counts instead of reading the
clock: nothing is added to the path of a message but an addition."""

from __future__ import annotations

from collections.abc import Callable

from trimq.clock import Timeline, Timer

# It is looked so many times per limit: a connection ends between one limit and a quarter more after it last moved.
_LOOKS = 4


class IdleTimeout:
    """`activity_count` is increased by the owner whenever the connection does something."""

    __slots__ = ("_expired", "_interval_ms", "_quiet_looks", "_seen", "_timeline", "_timer", "activity_count")

    def __init__(self, timeline: Timeline, limit_ms: int, expired: Callable[[], None]) -> None:
        self._timeline = timeline
        self._interval_ms = -(-limit_ms // _LOOKS)
        self._expired = expired
        self._timer: Timer | None = None
        self._seen = 0
        self._quiet_looks = 0
        self.activity_count = 0

    def start(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.start()
        if self.activity_count != self._seen:
            self._seen = self.activity_count
            self._quiet_looks = 0
            return
        self._quiet_looks += 1
        if self._quiet_looks >= _LOOKS:
            self._quiet_looks = 0
            self._expired()
