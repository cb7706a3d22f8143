"""Limits of one connection: its budget in a turn of the loop, and its idle time."""

from __future__ import annotations

import pytest

from trimq.clock import ManualTime
from trimq.server.connection.limits import MANY_REQUESTS, TURN_EVENTS, TURN_MS, IdleTimeout, TurnBudget

# --- the budget of a turn ---------------------------------------------------------------------------------------------


def test_a_budget_ends_with_its_last_event() -> None:
    budget = TurnBudget(ManualTime(7))
    for _ in range(2):
        budget.begin()
        assert [budget.is_used_up(1) for _ in range(TURN_EVENTS)] == [False] * (TURN_EVENTS - 1) + [True]


def test_a_budget_ends_with_many_requests_that_came_together() -> None:
    budget = TurnBudget(ManualTime(7))
    budget.begin()
    assert budget.is_used_up(MANY_REQUESTS)
    budget.begin()
    assert not budget.is_used_up(MANY_REQUESTS - 1)
    assert not budget.is_used_up(1)
    assert budget.is_used_up(MANY_REQUESTS)


def test_a_budget_ends_when_its_time_is_over_however_long_the_first_event_took() -> None:
    time = ManualTime(0)
    budget = TurnBudget(time)
    budget.begin()
    time.step(5000)
    assert not budget.is_used_up(1)
    assert not budget.is_used_up(1)
    time.step(time.now_ms() + TURN_MS - 1)
    assert not budget.is_used_up(1)
    time.step(time.now_ms() + 1)
    assert budget.is_used_up(1)


def test_after_a_turn_that_took_its_time_the_next_may_take_it_once() -> None:
    time = ManualTime(0)
    budget = TurnBudget(time)
    budget.begin()
    budget.is_used_up(1)
    budget.is_used_up(1)
    time.step(600)
    assert budget.is_used_up(1)
    for _ in range(3):
        budget.begin()
        time.step(time.now_ms() + 600)
        assert budget.is_used_up(1)
    budget.begin()
    assert not budget.is_used_up(1)
    budget.begin()
    time.step(time.now_ms() + 600)
    assert not budget.is_used_up(1)


# --- idle connections -------------------------------------------------------------------------------------------------

LIMIT_MS = 1000


def pass_time(time: ManualTime, until_ms: int) -> None:
    while time.step(until_ms):
        pass


@pytest.mark.parametrize("moved_ms", [0, 1, 249, 250, 251, 499, 700])
def test_it_expires_between_one_limit_and_a_quarter_more_after_the_last_move(moved_ms: int) -> None:
    time, expired = ManualTime(0), []
    idle_timeout = IdleTimeout(time, LIMIT_MS, lambda: expired.append(time.now_ms()))
    idle_timeout.start()
    pass_time(time, moved_ms)
    idle_timeout.activity_count += 1
    pass_time(time, 5000)
    assert LIMIT_MS <= expired[0] - moved_ms <= LIMIT_MS * 5 // 4


def test_an_idle_connection_expires_again_after_another_limit() -> None:
    time, expired = ManualTime(0), []
    idle_timeout = IdleTimeout(time, LIMIT_MS, lambda: expired.append(time.now_ms()))
    idle_timeout.start()
    pass_time(time, 3 * LIMIT_MS)
    assert expired == [1000, 2000, 3000]


def test_nothing_is_left_when_it_is_stopped() -> None:
    time, expired = ManualTime(0), []
    idle_timeout = IdleTimeout(time, LIMIT_MS, lambda: expired.append(1))
    idle_timeout.stop()
    idle_timeout.start()
    idle_timeout.stop()
    assert time.next_due_ms() is None


def test_a_timer_that_ends_the_connection_is_not_left_behind() -> None:
    time = ManualTime(0)
    idle_timeout = IdleTimeout(time, LIMIT_MS, lambda: idle_timeout.stop())
    idle_timeout.start()
    pass_time(time, 2 * LIMIT_MS)
    assert time.next_due_ms() is None
