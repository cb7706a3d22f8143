"""Durations and deadlines."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.client.timing import Deadlines, to_milliseconds
from trimq.clock import ManualTime


def test_durations_are_timedeltas_or_seconds() -> None:
    assert to_milliseconds(timedelta(minutes=2)) == 120_000
    assert to_milliseconds(0.25) == 250
    with pytest.raises(ValueError, match="negative"):
        to_milliseconds(-1)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=50))
def test_each_deadline_is_reported_once_not_early_and_at_most_10_ms_late(due: list[int]) -> None:
    time = ManualTime(0)
    seen: list[tuple[int, int]] = []
    deadlines = Deadlines(time, lambda number: seen.append((number, time.now_ms())))
    for number, due_ms in enumerate(due):
        deadlines.add(due_ms, number)
    while time.step(1000):
        pass
    assert sorted(number for number, _ in seen) == list(range(len(due)))
    assert all(due[number] <= at_ms <= due[number] + 10 for number, at_ms in seen)


def test_a_deadline_that_is_added_when_another_expires_is_kept() -> None:
    time = ManualTime(0)
    seen: list[int] = []

    def expired(number: int) -> None:
        seen.append(number)
        if number < 3:
            deadlines.add(time.now_ms() + 50, number + 1)

    deadlines = Deadlines(time, expired)
    deadlines.add(10, 1)
    while time.step(1000):
        pass
    assert seen == [1, 2, 3]


def test_nothing_is_reported_after_the_end() -> None:
    time = ManualTime(0)
    deadlines = Deadlines(time, lambda number: pytest.fail("reported"))
    deadlines.add(10, 1)
    deadlines.close()
    time.step(1000)
    assert time.next_due_ms() is None
