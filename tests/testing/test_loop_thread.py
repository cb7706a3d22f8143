"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from trimq.testing.loop_thread import LoopThread


class Failures(list[BaseException]):
    """Failures that the thread reported."""


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def thread(failures: Failures) -> Iterator[LoopThread]:
    thread = LoopThread("test-loop", failures.append)
    yield thread
    thread.close()


async def current_thread() -> int:
    return threading.get_ident()


def test_a_call_runs_on_the_thread(thread: LoopThread) -> None:
    assert thread.call(current_thread) == thread.ident != threading.get_ident()


def test_an_exception_of_a_call_is_raised_to_the_caller(thread: LoopThread) -> None:
    async def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        thread.call(fail)


def test_a_time_out_inside_a_call_is_not_taken_for_one_of_the_wait(thread: LoopThread) -> None:
    async def time_out() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        thread.call(time_out)


def test_a_failure_in_a_callback_is_reported(thread: LoopThread, failures: Failures) -> None:
    def fail() -> None:
        raise LookupError("no")

    async def set_off() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0)

    thread.call(set_off)
    assert [str(error) for error in failures] == ["no"]


def test_a_loop_that_is_torn_down_fails_the_calls(thread: LoopThread, failures: Failures) -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def set_off() -> None:
        asyncio.get_running_loop().call_soon(leave)
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="the broker's event loop has ended"):
        thread.call(set_off)
    thread.close()
    with pytest.raises(RuntimeError, match="the broker's event loop has ended"):
        thread.call(current_thread)
    assert [type(error) for error in failures] == [SystemExit]


def test_a_call_from_the_loop_itself_is_refused(thread: LoopThread) -> None:
    async def nested() -> None:
        thread.call(current_thread)

    with pytest.raises(RuntimeError, match="call it from another thread"):
        thread.call(nested)


def test_a_closed_thread_is_gone(thread: LoopThread) -> None:
    thread.close()
    assert thread.ident not in [each.ident for each in threading.enumerate()]
    thread.close()
