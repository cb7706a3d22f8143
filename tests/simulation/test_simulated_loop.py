"""The loop has asyncio's guarantees, and the seed decides the order that asyncio leaves open."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from simulated_loop import SimulatedLoop
from simulated_offload import DiskSpeed, SimulatedOffload
from simulated_time import MESSAGE_EPOCH_MS, simulated_clock
from simulated_trace import SimulationFailure, Trace


def make_loop(seed: int = 0) -> SimulatedLoop:
    return SimulatedLoop(Random(seed), Random(seed), Trace())


def test_ready_callbacks_run_in_their_order() -> None:
    loop, ran = make_loop(), []
    for number in range(20):
        loop.call_soon(ran.append, number)
    loop.run_until(lambda: len(ran) == 20, limit_s=1)
    assert ran == list(range(20))


def test_the_seed_decides_the_order_of_simultaneous_events() -> None:
    orders = set()
    for seed in range(10):
        loop, ran = make_loop(seed), []
        for number in range(5):
            loop.call_at(1, ran.append, number)
        loop.run_until(lambda ran=ran: len(ran) == 5, limit_s=10)
        assert sorted(ran) == list(range(5))
        orders.add(tuple(ran))
    assert len(orders) > 1


def test_time_jumps_over_hours_in_which_nothing_happens() -> None:
    loop = make_loop()

    async def sleep() -> float:
        await asyncio.sleep(36_000)
        return asyncio.get_running_loop().time()

    assert 36_000 <= loop.run_until_complete(sleep()) < 36_001


def test_a_cancelled_timer_neither_runs_nor_moves_time() -> None:
    loop = make_loop()
    loop.call_later(5000, pytest.fail).cancel()
    assert not loop.run_until(lambda: False, limit_s=10_000)
    assert loop.time() < 1


def test_an_exception_in_a_callback_ends_the_run() -> None:
    loop = make_loop()
    loop.call_soon(lambda: 1 // 0)
    with pytest.raises(SimulationFailure, match="ZeroDivisionError"):
        loop.run_until(lambda: False, limit_s=1)


def test_a_thread_without_the_offload_is_refused() -> None:
    with pytest.raises(SimulationFailure, match="offload"):
        make_loop().run_in_executor(None, print)


def test_timeouts_and_tasks_of_asyncio_work() -> None:
    async def wait() -> list[str]:
        results = []
        try:
            async with asyncio.timeout(3):
                await asyncio.Event().wait()
        except TimeoutError:
            results.append("late")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
            group.create_task(asyncio.sleep(2))
        return results

    assert make_loop().run_until_complete(wait()) == ["late"]


def test_a_killed_host_stops_and_the_others_continue() -> None:
    loop, ran = make_loop(), []

    async def live(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                ran.append(name)
        finally:
            ran.append(f"{name} tidied up")

    doomed, other = loop.host("doomed"), loop.host("other")
    tasks = [doomed.start(live("doomed")), other.start(live("other"))]
    loop.run_until(lambda: "doomed" in ran, limit_s=10)
    loop.kill(doomed)
    ran.clear()
    loop.run_until(lambda: len(ran) == 3, limit_s=10)
    assert ran == ["other"] * 3
    assert not any(task.done() for task in tasks)
    loop.end()


def test_timers_of_a_dead_host_do_not_advance_the_time() -> None:
    loop = make_loop()
    host = loop.host("doomed")
    host.run(loop.call_later, 5000, pytest.fail)
    loop.kill(host)
    assert not loop.run_until(lambda: False, limit_s=10_000)
    assert loop.time() < 1


def test_both_timelines_follow_the_loop() -> None:
    loop, ran = make_loop(), []
    clock = simulated_clock(loop)
    clock.message.call_at(MESSAGE_EPOCH_MS + 60_001, lambda: ran.append(clock.message.now_ms() - MESSAGE_EPOCH_MS))
    clock.liveness.call_at(60_001, lambda: ran.append(clock.liveness.now_ms()))
    loop.run_until(lambda: len(ran) == 2, limit_s=100)
    assert all(60_001 <= moment < 60_040 for moment in ran)


def test_offloaded_work_runs_later_in_order_and_returns_its_result() -> None:
    loop, results = make_loop(), []
    offload = SimulatedOffload(loop, Random(0), DiskSpeed())
    worked: list[int] = []
    for number in range(3):
        offload(lambda number=number: worked.append(number), lambda result, error: results.append(error))
    offload(lambda: 1 // 0, lambda result, error: results.append(error))
    assert worked == []
    loop.run_until(lambda: len(results) == 4, limit_s=10)
    assert worked == [0, 1, 2]
    assert [type(error) for error in results].count(ZeroDivisionError) == 1


def test_offloaded_work_dies_with_its_host() -> None:
    loop = make_loop()
    host = loop.host("doomed")
    host.run(SimulatedOffload(loop, Random(0), DiskSpeed()), pytest.fail, pytest.fail)
    loop.kill(host)
    assert not loop.run_until(lambda: False, limit_s=10)
