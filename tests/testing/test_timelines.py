"""Message time that a test moves, and liveness that it can advance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trimq.clock import Timer
from trimq.testing.timelines import MessageTime, ShiftedTime, advance


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


async def passes(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def settle() -> None:
    await passes(2)


def test_message_time_does_not_move_by_itself() -> None:
    async def test() -> None:
        time, fired = MessageTime(1000), []
        time.call_at(1001, lambda: fired.append(1001))
        await passes()
        assert time.now_ms() == 1000
        assert fired == []

    run(test)


def test_what_is_due_already_runs_in_the_next_pass_and_in_order() -> None:
    async def test() -> None:
        time, fired = MessageTime(1000), []
        time.call_at(1000, lambda: fired.append("second"))
        time.call_at(999, lambda: fired.append("first"))
        assert fired == []
        await passes()
        assert fired == ["first", "second"]

    run(test)


def test_a_timer_that_always_reschedules_itself_starves_no_other() -> None:
    async def test() -> None:
        time, count = MessageTime(1000), 0

        def again() -> None:
            nonlocal count
            count += 1
            time.call_at(1000, again)

        again()
        await passes(10)
        time.close()
        assert 5 <= count <= 12

    run(test)


def test_a_timer_that_fails_does_not_keep_the_next_from_running() -> None:
    async def test() -> None:
        time, fired, failures = MessageTime(1000), [], []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

        def fail() -> None:
            raise ValueError("no")

        time.call_at(1000, fail)
        time.call_at(1000, lambda: fired.append(1))
        await passes()
        assert fired == [1]
        assert [str(error) for error in failures] == ["no"]

    run(test)


def test_advancing_steps_from_timer_to_timer_and_settles_after_each() -> None:
    async def test() -> None:
        time, seen = MessageTime(1000), []

        async def settle() -> None:
            seen.append("settled")

        def see() -> None:
            seen.append(time.now_ms())

        def see_and_repeat() -> None:
            see()
            time.call_at(time.now_ms() + 40, see)
            time.call_at(time.now_ms(), see)

        time.call_at(1010, see)
        time.call_at(1010, see_and_repeat)
        time.call_at(1100, see)
        time.call_at(1101, see)
        cancelled = time.call_at(1020, see)
        cancelled.cancel()
        await advance(time, None, 100, settle)
        assert [step for step in seen if step != "settled"] == [1010, 1010, 1010, 1050, 1100]
        assert all(seen[place + 1] == "settled" for place, step in enumerate(seen) if step != "settled")
        assert time.now_ms() == 1100

    run(test)


def test_advancing_by_nothing_only_settles() -> None:
    async def test() -> None:
        time, fired = MessageTime(1000), []
        time.call_at(1000, lambda: fired.append(1))
        await advance(time, None, 0, settle)
        assert (time.now_ms(), fired) == (1000, [1])

    run(test)


def test_after_a_failed_advance_what_is_due_still_runs() -> None:
    async def test() -> None:
        time, fired = MessageTime(1000), []

        def fail() -> None:
            raise ValueError("no")

        time.call_at(1010, fail)
        time.call_at(1010, lambda: fired.append(1))
        with pytest.raises(ValueError, match="no"):
            await advance(time, None, 100, settle)
        await passes()
        assert (time.now_ms(), fired) == (1010, [1])

    run(test)


def test_liveness_follows_the_loop() -> None:
    async def test() -> None:
        time, fired = ShiftedTime(), asyncio.Event()
        before_ms = time.now_ms()
        time.call_at(before_ms + 20, fired.set)
        await fired.wait()
        assert time.now_ms() >= before_ms + 20

    run(test)


def test_liveness_that_is_shifted_runs_what_is_due_then_in_order() -> None:
    async def test() -> None:
        time, fired = ShiftedTime(), []
        now_ms = time.now_ms()
        for after_ms in (60_000, 20_000, 90_000, 20_001):
            time.call_at(now_ms + after_ms, lambda after_ms=after_ms: fired.append(after_ms))
        time.call_at(now_ms + 1000, lambda: fired.append(1000)).cancel()
        time.shift(60_000)
        assert fired == []
        await passes()
        assert fired == [20_000, 20_001, 60_000]
        time.close()

    run(test)


def test_a_timer_cancelled_by_another_of_the_same_moment_does_not_run() -> None:
    async def test() -> None:
        time, fired = ShiftedTime(), []
        timers: list[Timer] = []
        timers.append(time.call_at(time.now_ms() + 1000, lambda: timers[1].cancel()))
        timers.append(time.call_at(time.now_ms() + 1000, lambda: fired.append(1)))
        time.shift(2000)
        await passes()
        assert fired == []

    run(test)


def test_without_liveness_only_message_time_moves() -> None:
    async def test() -> None:
        message, liveness, fired = MessageTime(1000), ShiftedTime(), []
        liveness.call_at(liveness.now_ms() + 60_000, lambda: fired.append(1))
        await advance(message, None, 3_600_000, settle)
        assert fired == []
        liveness.close()

    run(test)


def test_both_timelines_move_in_lockstep() -> None:
    async def test() -> None:
        message, liveness, fired = MessageTime(1000), ShiftedTime(), []

        def beat() -> None:
            fired.append("beat")
            liveness.call_at(liveness.now_ms() + 3000, beat)

        liveness.call_at(liveness.now_ms() + 3000, beat)
        message.call_at(1000 + 4000, lambda: fired.append("message at 4 s"))
        message.call_at(1000 + 8000, lambda: fired.append("message at 8 s"))
        before_ms = liveness.now_ms()
        await advance(message, liveness, 10_000, settle)
        assert fired == ["beat", "message at 4 s", "beat", "message at 8 s", "beat"]
        assert message.now_ms() == 11_000
        assert liveness.now_ms() >= before_ms + 10_000
        liveness.close()

    run(test)


def test_closed_timelines_run_nothing() -> None:
    async def test() -> None:
        message, liveness, fired = MessageTime(1000), ShiftedTime(), []
        message.call_at(1000, lambda: fired.append("message"))
        liveness.call_at(liveness.now_ms(), lambda: fired.append("liveness"))
        liveness.shift(10)
        message.close()
        liveness.close()
        await passes()
        assert fired == []

    run(test)
