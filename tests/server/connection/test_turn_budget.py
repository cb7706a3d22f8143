"""What a connection may take of one loop pass."""

from __future__ import annotations

from trimq.clock import ManualTime
from trimq.server.connection.turn_budget import EVENTS, MANY_REQUESTS, MILLISECONDS, TurnBudget


def test_a_share_ends_with_its_last_event() -> None:
    share = TurnBudget(ManualTime(7))
    for _ in range(2):
        share.begin()
        assert [share.is_used_up(1) for _ in range(EVENTS)] == [False] * (EVENTS - 1) + [True]


def test_a_share_ends_with_many_requests_that_came_together() -> None:
    share = TurnBudget(ManualTime(7))
    share.begin()
    assert share.is_used_up(MANY_REQUESTS)
    share.begin()
    assert not share.is_used_up(MANY_REQUESTS - 1)
    assert not share.is_used_up(1)
    assert share.is_used_up(MANY_REQUESTS)


def test_a_share_ends_when_its_time_is_over_however_long_the_first_event_took() -> None:
    time = ManualTime(0)
    share = TurnBudget(time)
    share.begin()
    time.step(5000)
    assert not share.is_used_up(1)
    assert not share.is_used_up(1)
    time.step(time.now_ms() + MILLISECONDS - 1)
    assert not share.is_used_up(1)
    time.step(time.now_ms() + 1)
    assert share.is_used_up(1)


def test_after_a_turn_that_took_its_time_the_next_may_take_it_once() -> None:
    time = ManualTime(0)
    share = TurnBudget(time)
    share.begin()
    share.is_used_up(1)
    share.is_used_up(1)
    time.step(600)
    assert share.is_used_up(1)
    for _ in range(3):
        share.begin()
        time.step(time.now_ms() + 600)
        assert share.is_used_up(1)
    share.begin()
    assert not share.is_used_up(1)
    share.begin()
    time.step(time.now_ms() + 600)
    assert not share.is_used_up(1)
