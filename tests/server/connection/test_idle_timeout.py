"""Connections that do not move."""

from __future__ import annotations

import pytest

from trimq.clock import ManualTime
from trimq.server.connection.idle_timeout import IdleTimeout

LIMIT_MS = 1000


def pass_time(time: ManualTime, until_ms: int) -> None:
    while time.step(until_ms):
        pass


@pytest.mark.parametrize("moved_ms", [0, 1, 249, 250, 251, 499, 700])
def test_it_expires_between_one_limit_and_a_quarter_more_after_the_last_move(moved_ms: int) -> None:
    time, expired = ManualTime(0), []
    idleness = IdleTimeout(time, LIMIT_MS, lambda: expired.append(time.now_ms()))
    idleness.start()
    pass_time(time, moved_ms)
    idleness.activity_count += 1
    pass_time(time, 5000)
    assert LIMIT_MS <= expired[0] - moved_ms <= LIMIT_MS * 5 // 4


def test_what_has_expired_expires_again_after_another_limit() -> None:
    time, expired = ManualTime(0), []
    idleness = IdleTimeout(time, LIMIT_MS, lambda: expired.append(time.now_ms()))
    idleness.start()
    pass_time(time, 3 * LIMIT_MS)
    assert expired == [1000, 2000, 3000]


def test_nothing_is_left_when_it_is_stopped() -> None:
    time, expired = ManualTime(0), []
    idleness = IdleTimeout(time, LIMIT_MS, lambda: expired.append(1))
    idleness.stop()
    idleness.start()
    idleness.stop()
    assert time.next_due_ms() is None


def test_a_timer_that_ends_the_connection_is_not_left_behind() -> None:
    time = ManualTime(0)
    idleness = IdleTimeout(time, LIMIT_MS, lambda: idleness.stop())
    idleness.start()
    pass_time(time, 2 * LIMIT_MS)
    assert time.next_due_ms() is None
