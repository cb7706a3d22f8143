"""Durations of callers, and many deadlines on one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from heapq import heappop, heappush

from trimq.clock import Timeline, Timer

Duration = timedelta | float
"""A timedelta, or seconds."""

_GRAIN_MS = 10


def to_milliseconds(duration: Duration) -> int:
    """Returns whole milliseconds. Raises ValueError for a negative duration."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if seconds < 0:
        raise ValueError(f"a duration must not be negative: {duration!r}")
    return round(seconds * 1000)


async def pause(timeline: Timeline, milliseconds: int) -> None:
    """Sleeps on a timeline."""
    woken = asyncio.Event()
    timer = timeline.call_at(timeline.now_ms() + milliseconds, woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()


class Deadlines:
    """Deadlines of numbered requests, rounded up to 10 ms so that requests of the same moment share one entry of the
    timer. A finished request is not removed: its number is reported and must be ignored."""

    __slots__ = ("_due", "_expired", "_numbers", "_timeline", "_timer", "_timer_due_ms")

    def __init__(self, timeline: Timeline, expired: Callable[[int], object]) -> None:
        self._timeline = timeline
        self._expired = expired
        self._numbers: dict[int, list[int]] = {}
        self._due: list[int] = []
        self._timer: Timer | None = None
        self._timer_due_ms = 0

    def add(self, due_ms: int, number: int) -> None:
        due_ms += -due_ms % _GRAIN_MS
        numbers = self._numbers.get(due_ms)
        if numbers is not None:
            numbers.append(number)
            return
        self._numbers[due_ms] = [number]
        heappush(self._due, due_ms)
        if self._timer is None or due_ms < self._timer_due_ms:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = self._due[0]
        self._timer = self._timeline.call_at(self._timer_due_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._timeline.now_ms()
        while self._due and self._due[0] <= now_ms:
            for number in self._numbers.pop(heappop(self._due)):
                self._expired(number)
        if self._due and self._timer is None:
            self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._numbers.clear()
        self._due.clear()
