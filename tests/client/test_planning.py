"""Capacity of consumers: arithmetic, and times of a handler."""

from __future__ import annotations

import hashlib
import time

import pytest

from trimq.client.planning import Capacity, capacity, measure, seconds_to_drain


def test_threads_and_nodes_follow_from_the_times_of_a_message() -> None:
    assert capacity(4, 2, 18, 5000) == Capacity(4, 2, 18, 40, 2000, 5000, 3)
    assert capacity(1, 5, 0, 0).threads == 1
    assert capacity(1, 5, 0, 0).nodes == 1
    assert capacity(4, 2, 18, 5000, node_rate=500).nodes == 10


@pytest.mark.parametrize("figures", [(0, 1, 0, 0), (1, 0, 0, 0), (1, 1, -1, 0), (1, 1, 0, -1)])
def test_impossible_figures_are_refused(figures: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="cores"):
        capacity(*figures)


def test_a_backlog_drains_by_the_surplus() -> None:
    assert seconds_to_drain(0, 0, 10) == 0
    assert seconds_to_drain(1000, 150, 50) == 10
    assert seconds_to_drain(1000, 50, 50) is None


def test_the_times_of_a_handler_tell_work_from_waiting() -> None:
    def work(body: bytes) -> None:
        for _ in range(3000):
            body = hashlib.sha256(body).digest()

    def wait(body: bytes) -> None:
        time.sleep(0.005)

    busy, waiting = measure(work, [b"x"] * 10), measure(wait, [b"x"] * 10)
    assert busy.busy_ms > 0.5
    assert waiting.busy_ms < waiting.waiting_ms
    assert waiting.waiting_ms >= 4.5
    with pytest.raises(ValueError, match="no message"):
        measure(work, [])
