"""Both timelines of a clock, driven by the simulated loop."""

from __future__ import annotations

from simulated_loop import SimulatedLoop

from trimq.clock import Callback, Clock, Timer

MESSAGE_EPOCH_MS = 1_700_000_000_000


class SimulatedTimeline:
    def __init__(self, loop: SimulatedLoop, epoch_ms: int) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        return self._epoch_ms + self._loop.now_us // 1000

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        return self._loop.call_at_us(max((due_ms - self._epoch_ms) * 1000, self._loop.now_us), callback)


def simulated_clock(loop: SimulatedLoop) -> Clock:
    return Clock(message=SimulatedTimeline(loop, MESSAGE_EPOCH_MS), liveness=SimulatedTimeline(loop, 0))
