"""Offload: the thread for blocking calls."""

from __future__ import annotations

import asyncio
import threading

import pytest
from doubles import ManualOffload

from trimq.errors import Busy
from trimq.offload import BoundedOffload, ThreadOffload


def test_work_is_done_off_the_loop_in_order_and_its_outcome_comes_back_to_the_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        offload = ThreadOffload("test", loop)
        outcomes: list[object] = []
        threads: set[str] = set()
        over = asyncio.Event()

        def work(number: int) -> int:
            threads.add(threading.current_thread().name)
            return number

        def done(result: object, error: BaseException | None) -> None:
            assert asyncio.get_running_loop() is loop
            outcomes.append(result if error is None else error)
            if len(outcomes) == 100:
                over.set()

        for number in range(100):
            offload(lambda number=number: work(number), done)
        await over.wait()
        assert outcomes == list(range(100))
        assert threads == {"test"}
        assert offload.stop()

    asyncio.run(main())


@pytest.mark.parametrize("error", [OSError(5, "planted"), SystemExit(3), KeyboardInterrupt()])
def test_a_failure_is_reported_and_the_next_work_is_done(error: BaseException) -> None:
    async def main() -> None:
        offload = ThreadOffload("test", asyncio.get_running_loop())
        outcomes: list[tuple[object, BaseException | None]] = []
        over = asyncio.Event()

        def fail() -> None:
            raise error

        offload(fail, lambda *outcome: outcomes.append(outcome))
        offload(lambda: "next", lambda *outcome: (outcomes.append(outcome), over.set()))
        await over.wait()
        assert outcomes == [(None, error), ("next", None)]
        assert offload.stop()

    asyncio.run(main())


def test_submitted_work_is_finished_before_the_thread_ends() -> None:
    async def main() -> None:
        offload = ThreadOffload("test", asyncio.get_running_loop())
        finished: list[int] = []
        for number in range(100):
            offload(lambda number=number: finished.append(number), lambda result, error: None)
        assert offload.stop()
        assert finished == list(range(100))

    asyncio.run(main())


def test_work_that_hangs_does_not_keep_a_stop_waiting_for_ever() -> None:
    async def main() -> None:
        offload = ThreadOffload("test", asyncio.get_running_loop())
        release = threading.Event()
        offload(release.wait, lambda result, error: None)
        assert not offload.stop(timeout_s=0.05)
        release.set()
        assert offload.stop()

    asyncio.run(main())


def test_work_that_outlives_the_loop_ends_quietly() -> None:
    release = threading.Event()

    async def main() -> ThreadOffload:
        offload = ThreadOffload("test", asyncio.get_running_loop())
        offload(release.wait, lambda result, error: None)
        return offload

    offload = asyncio.run(main())
    release.set()
    assert offload.stop()


def test_a_bounded_offload_refuses_work_over_its_limit_until_some_is_done() -> None:
    inner = ManualOffload()
    offload = BoundedOffload(inner, 2, "checks")
    results: list[object] = []
    for number in (1, 2):
        offload(lambda number=number: number, lambda result, error: results.append(result))  # type: ignore[misc]
    with pytest.raises(Busy, match="2 checks wait already"):
        offload(lambda: 3, lambda result, error: results.append(result))
    inner.run_one()
    offload(lambda: 3, lambda result, error: results.append(result))
    assert offload.count == 2
    inner.run_all()
    assert (results, offload.count) == ([1, 2, 3], 0)
