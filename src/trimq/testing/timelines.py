"""Timelines of an embedded broker: message time, which advances only by the test, and liveness, which follows the event
loop and can be shifted ahead. Knows timers, but not their purpose."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from trimq.clock import Callback, ManualTime, Timer


class MessageTime(ManualTime):
    """Timeline that stands still. A timer that is already due when created runs in the next iteration of the loop, as
    on every timeline; during `stepping` it waits for `step`."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self._loop = asyncio.get_running_loop()
        self._is_stepping = False
        self._is_armed = False
        self._is_closed = False

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        timer = super().call_at(due_ms, callback)
        self._arm()
        return timer

    @property
    def is_due(self) -> bool:
        due_ms = self.next_due_ms()
        return due_ms is not None and due_ms <= self.now_ms()

    def _arm(self) -> None:
        if self.is_due and not (self._is_armed or self._is_stepping or self._is_closed):
            self._is_armed = True
            self._loop.call_soon(self._run_due)

    def _run_due(self) -> None:
        self._is_armed = False
        if self._is_stepping or self._is_closed or not self.is_due:
            return
        try:
            self.step(self.now_ms())
        finally:
            self._arm()

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Context in which timers run only by `step`."""
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False
            self._arm()

    def close(self) -> None:
        """Stops all timers."""
        self._is_closed = True


class _ShiftedTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class ShiftedTime:
    """Time of the event loop plus a shift."""

    def __init__(self, shift_ms: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._shift_ms = shift_ms
        self._order = itertools.count()
        self._timers: list[tuple[int, int, _ShiftedTimer]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def shift_ms(self) -> int:
        return self._shift_ms

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000) + self._shift_ms

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        timer = _ShiftedTimer(callback)
        heapq.heappush(self._timers, (due_ms, next(self._order), timer))
        if self._timers[0][2] is timer:
            self._arm()
        return timer

    def next_due_ms(self) -> int | None:
        """Returns the due time of the earliest pending timer, which may be in the past, or None if no timer is
        pending."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def shift(self, by_ms: int) -> None:
        """Shifts the time ahead and runs the timers that are due then, in order."""
        self._shift_ms += by_ms
        self._run_due()

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due_ms = self.next_due_ms()
        if due_ms is not None and not self._is_closed:
            self._alarm = self._loop.call_later(max(due_ms - self.now_ms(), 0) / 1000, self._run_due)

    def _run_due(self) -> None:
        now_ms = self.now_ms()
        due: list[_ShiftedTimer] = []
        while (due_ms := self.next_due_ms()) is not None and due_ms <= now_ms:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            # Each in its own call, so that a failing timer does not prevent the others from running.
            self._loop.call_soon(self._run, timer)
        self._arm()

    def _run(self, timer: _ShiftedTimer) -> None:
        callback, timer.callback = timer.callback, None
        if callback is not None and not self._is_closed:
            callback()

    def close(self) -> None:
        """Stops all timers."""
        self._is_closed = True
        self._arm()


async def advance(
    message: MessageTime, liveness: ShiftedTime | None, by_ms: int, wait_until_idle: Callable[[], Awaitable[None]]
) -> None:
    """Steps `message`, and in lockstep `liveness` if given, from one due timer to the next. Waits until the broker is
    idle before each next timer."""
    with message.stepping():
        await wait_until_idle()
        until_ms = message.now_ms() + by_ms
        while message.now_ms() < until_ms or message.is_due:
            step_ms = until_ms - message.now_ms()
            for timeline in (message, liveness):
                due_ms = timeline.next_due_ms() if timeline is not None else None
                if timeline is not None and due_ms is not None:
                    step_ms = min(step_ms, max(due_ms - timeline.now_ms(), 0))
            if liveness is not None:
                liveness.shift(step_ms)
            message.step(message.now_ms() + step_ms)
            await wait_until_idle()
