from __future__ import annotations

import logging

import pytest

from trimq.core.scheduling.waiters import Waiters, Watch


def test_waiters_are_woken_once_in_the_order_of_registration() -> None:
    waiters, woken = Waiters(), list[str]()
    for name in "abc":
        waiters.watch(lambda name=name: woken.append(name))  # type: ignore[misc]
    waiters.wake()
    waiters.wake()
    assert woken == ["a", "b", "c"]
    assert len(waiters) == 0


def test_a_waiter_that_watches_again_during_a_wake_up_waits_for_the_next_one() -> None:
    waiters, woken = Waiters(), list[int]()

    def wait_again() -> None:
        woken.append(len(woken))
        waiters.watch(wait_again)

    waiters.watch(wait_again)
    waiters.wake()
    assert woken == [0]
    waiters.wake()
    assert woken == [0, 1]


def test_a_cancelled_watch_is_not_woken_and_uses_no_memory() -> None:
    waiters, woken = Waiters(), list[str]()
    watch = waiters.watch(lambda: woken.append("cancelled"))
    waiters.watch(lambda: woken.append("kept"))
    watch.cancel()
    assert len(waiters) == 1
    waiters.wake()
    watch.cancel()
    assert woken == ["kept"]


def test_a_woken_waiter_may_cancel_later_ones() -> None:
    waiters, woken = Waiters(), list[str]()
    behind: list[Watch] = []
    waiters.watch(lambda: behind[0].cancel())
    behind.append(waiters.watch(lambda: woken.append("behind")))
    waiters.watch(lambda: woken.append("last"))
    waiters.wake()
    assert woken == ["last"]


def test_a_waiter_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    waiters, woken = Waiters(), list[str]()

    def fail() -> None:
        raise RuntimeError("planted")

    waiters.watch(fail)
    waiters.watch(lambda: woken.append("other"))
    with caplog.at_level(logging.ERROR):
        waiters.wake()
    assert woken == ["other"]
    assert "planted" in caplog.text
