"""The only access to time. Two timelines: *message time* (delays, expiry, retention), which a test may control, and
*liveness* (heartbeats, sessions, long polls), which follows real time unless a simulation drives it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

Callback = Callable[[], None]

# The longest sleep of a timer before it reads the wall clock again: the wall clock may be adjusted.
_WALL_RECHECK_MS = 60_000

# Event loops reject or miscalculate a sleep of centuries.
_LONGEST_SLEEP_MS = 86_400_000


class Timer(Protocol):
    def cancel(self) -> None:
        """Prevents the callback from running. No effect if it has already run."""


class Timeline(Protocol):
    """Time in whole milliseconds, and timers on it."""

    def now_ms(self) -> int: ...

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        """Runs `callback` once, on the event loop, when `now_ms() >= due_ms`. Never inside this call."""


class Clock(NamedTuple):
    message: Timeline
    liveness: Timeline


def _done() -> None:
    """Callback of a timer that has fired or was cancelled."""


class _LoopTimer:
    """Timer on the running event loop that checks its timeline again before it fires."""

    __slots__ = ("_callback", "_due_ms", "_handle", "_recheck_ms", "_timeline")

    def __init__(self, timeline: Timeline, due_ms: int, callback: Callback, recheck_ms: int) -> None:
        self._timeline = timeline
        self._recheck_ms = recheck_ms
        self._due_ms = due_ms
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._wait()

    def _wait(self) -> None:
        wait_ms = min(max(self._due_ms - self._timeline.now_ms(), 0), self._recheck_ms)
        self._handle = asyncio.get_running_loop().call_later(wait_ms / 1000, self._wake)

    def _wake(self) -> None:
        if self._timeline.now_ms() < self._due_ms:
            self._wait()
        else:
            callback = self._callback
            self._end()
            callback()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._end()

    def _end(self) -> None:
        """Drops the callback, so that a finished timer does not keep its owner alive (reference cycle)."""
        self._handle = None
        self._callback = _done


class WallTime:
    """Milliseconds since 1970."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        return _LoopTimer(self, due_ms, callback, _WALL_RECHECK_MS)


class LoopTime:
    """The event loop's own monotonic time: real in production, simulated in a simulation."""

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        return _LoopTimer(self, due_ms, callback, _LONGEST_SLEEP_MS)


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualTime:
    """Timeline that advances only by `step`."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._order = itertools.count()
        self._timers: list[tuple[int, int, _ManualTimer]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (due_ms, next(self._order), timer))
        return timer

    def next_due_ms(self) -> int | None:
        """Returns the due time of the earliest pending timer, which may be in the past, or None if no timer is
        pending."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def step(self, until_ms: int) -> bool:
        """Advances to the next timer due by `until_ms` and runs it. If no timer is due, advances to `until_ms` and
        returns False."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > until_ms:
            self._now_ms = max(self._now_ms, until_ms)
            return False
        self._now_ms = max(self._now_ms, due_ms)
        callback = heapq.heappop(self._timers)[2].callback
        if callback is not None:
            callback()
        return True


def system_clock() -> Clock:
    """Returns a clock whose timelines both follow the machine."""
    return Clock(message=WallTime(), liveness=LoopTime())


def cpu_seconds() -> float:
    """Processor time of this process, for reports."""
    return time.process_time()


def thread_cpu_seconds() -> float:
    """Processor time of the calling thread, for reports."""
    return time.thread_time()


def monotonic_seconds() -> float:
    """Real elapsed time, for reports and for command-line tools that wait outside an event loop."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Sleeps outside an event loop: only for command-line tools and the thread that owns an embedded broker."""
    time.sleep(seconds)
