"""The door to time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq import clock
from trimq.clock import LoopTime, ManualTime, WallTime, system_clock


def in_loop(main: Callable[[], object], loop: asyncio.AbstractEventLoop | None = None) -> None:
    async def call() -> None:
        await main()  # type: ignore[misc]

    with asyncio.Runner(loop_factory=(lambda: loop) if loop else None) as runner:
        runner.run(call())


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that the test moves: timers become due without waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.sleeps: list[float] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, *args: object, **options: object) -> asyncio.TimerHandle:
        self.sleeps.append(delay)
        return super().call_later(delay, *args, **options)  # type: ignore[arg-type]

    async def jump(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_message_time_is_the_wall_clock_and_liveness_the_loops_own() -> None:
    async def main() -> None:
        message, liveness = system_clock()
        assert abs(message.now_ms() - time.time() * 1000) < 1000
        assert liveness.now_ms() == 1_000_000
        loop.now += 0.0019
        assert liveness.now_ms() == 1_000_001

    loop = JumpingLoop()
    in_loop(main, loop)


def test_a_timer_runs_once_when_it_is_due_and_never_inside_the_call() -> None:
    async def main() -> None:
        fired: list[int] = []
        timeline = LoopTime()
        timeline.call_at(timeline.now_ms() + 500, lambda: fired.append(500))
        timeline.call_at(timeline.now_ms() - 500, lambda: fired.append(0))
        assert fired == []
        await loop.jump(0.499)
        assert fired == [0]
        await loop.jump(0.001)
        assert fired == [0, 500]
        await loop.jump(10)
        assert fired == [0, 500]

    loop = JumpingLoop()
    in_loop(main, loop)


def test_a_cancelled_timer_does_not_run() -> None:
    async def main() -> None:
        fired: list[int] = []
        timer = LoopTime().call_at(LoopTime().now_ms() + 10, lambda: fired.append(1))
        timer.cancel()
        timer.cancel()
        await loop.jump(1)
        late = LoopTime().call_at(LoopTime().now_ms() + 10, lambda: fired.append(2))
        await loop.jump(1)
        late.cancel()
        assert fired == [2]

    loop = JumpingLoop()
    in_loop(main, loop)


def test_a_timer_of_the_loop_sleeps_through_unless_it_is_years() -> None:
    async def main() -> None:
        timeline = LoopTime()
        timeline.call_at(timeline.now_ms() + 3_600_000, lambda: None)
        assert loop.sleeps == [3600]
        timeline.call_at(2**63 - 1, lambda: None)
        assert loop.sleeps == [3600, 86_400]
        await loop.jump(86_400)
        assert loop.sleeps == [3600, 86_400, 86_400]

    loop = JumpingLoop()
    in_loop(main, loop)


def test_a_wall_timer_follows_a_wall_clock_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_ns = [10**18]
    monkeypatch.setattr(clock.time, "time_ns", lambda: wall_ns[0])

    async def main() -> None:
        fired: list[int] = []
        timeline = WallTime()
        timeline.call_at(timeline.now_ms() + 3_600_000, lambda: fired.append(1))
        wall_ns[0] += 3_600_000 * 10**6  # the clock is set an hour ahead
        await loop.jump(59.9)
        assert fired == []
        await loop.jump(0.2)
        assert fired == [1]
        timeline.call_at(timeline.now_ms() + 1000, lambda: fired.append(2))
        wall_ns[0] -= 500 * 10**6  # and slightly back
        await loop.jump(1)
        assert fired == [1]
        wall_ns[0] += 1500 * 10**6
        await loop.jump(1.5)
        assert fired == [1, 2]

    loop = JumpingLoop()
    in_loop(main, loop)


due_times = st.lists(st.integers(0, 100), max_size=30)


@given(due_times, st.integers(0, 100))
def test_manual_time_runs_what_is_due_in_order_and_stops_at_the_end(due: list[int], until: int) -> None:
    timeline = ManualTime(50)
    fired: list[tuple[int, int]] = []
    for place, due_ms in enumerate(due):
        timeline.call_at(due_ms, lambda due_ms=due_ms, place=place: fired.append((due_ms, place)))
    while timeline.step(until):
        assert timeline.now_ms() == max(50, fired[-1][0])
    assert fired == sorted((due_ms, place) for place, due_ms in enumerate(due) if due_ms <= until)
    assert timeline.now_ms() == max(50, until)
    left = [due_ms for due_ms in due if due_ms > until]
    assert timeline.next_due_ms() == (min(left) if left else None)


def test_a_manual_timer_that_is_cancelled_is_forgotten() -> None:
    timeline = ManualTime(0)
    fired: list[int] = []
    first = timeline.call_at(10, lambda: fired.append(1))
    timeline.call_at(20, lambda: fired.append(2))
    first.cancel()
    assert timeline.next_due_ms() == 20
    assert timeline.step(100)
    assert fired == [2]
    assert timeline.now_ms() == 20
    assert not timeline.step(100)
    assert timeline.now_ms() == 100
    first.cancel()


def test_a_timer_set_by_a_timer_runs_in_the_same_step_only_if_it_is_asked_for() -> None:
    timeline = ManualTime(0)
    fired: list[int] = []
    timeline.call_at(10, lambda: timeline.call_at(10, lambda: fired.append(timeline.now_ms())))
    assert timeline.step(10)
    assert fired == []
    assert timeline.step(10)
    assert fired == [10]
    assert not timeline.step(10)


def test_readings_for_reports_go_forward() -> None:
    before = clock.monotonic_seconds(), clock.cpu_seconds()
    sum(range(100_000))
    assert clock.monotonic_seconds() > before[0]
    assert clock.cpu_seconds() >= before[1]
