"""Celery on quorum queues, where the broker delays tasks (native delayed delivery)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from compat.celery_workers import PATIENCE_S, Workshop, workshop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop(tmp_path_factory, "quorum") as shop:
        yield shop


def waiting(shop: Workshop, level: int) -> int:
    """Number of tasks that the broker delays at this level, which is 2**level seconds."""
    with shop.app.connection_for_write() as connection:
        name = f"celery_delayed_{level}"
        return int(connection.default_channel.queue_declare(name, passive=True).message_count)


def test_results_are_returned(shop: Workshop) -> None:
    results = [shop.send("add", number, 1) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))


def test_the_worker_logged_nothing(shop: Workshop) -> None:
    complaints = shop.complaints("first@here")
    assert "delayed delivery" not in complaints
    assert "Traceback" not in complaints


def test_a_countdown_is_delayed_by_the_broker(shop: Workshop) -> None:
    begun = time.monotonic()
    result = shop.send("add", 1, 2, countdown=3)
    assert (waiting(shop, 1), waiting(shop, 0)) == (1, 0)
    assert result.get(timeout=PATIENCE_S) == 3
    assert 2.9 <= time.monotonic() - begun < 20
    assert (waiting(shop, 1), waiting(shop, 0)) == (0, 0)


def test_an_eta_is_waited_for(shop: Workshop) -> None:
    begun = time.monotonic()
    assert shop.done("add", 2, 2, eta=datetime.now(UTC) + timedelta(seconds=2.5)) == 4
    assert time.monotonic() - begun >= 2


def test_a_far_eta_is_delayed_at_the_level_of_its_highest_bit(shop: Workshop) -> None:
    shop.send("add", 1, 1, countdown=2**27)
    assert waiting(shop, 27) == 1


def test_a_task_that_fails_is_retried_later(shop: Workshop) -> None:
    begun = time.monotonic()
    assert shop.done("flaky", 2, 1) == 2
    assert time.monotonic() - begun >= 1.9


def test_the_task_of_a_dead_worker_is_run_by_another(shop: Workshop, tmp_path: Path) -> None:
    result = shop.send("deadly", str(tmp_path / "mark"), queue="dangerous")
    with shop.worker("doomed@here", "-Q", "dangerous") as doomed:
        assert doomed.wait(PATIENCE_S) == 1
    with shop.worker("second@here", "-Q", "dangerous"):
        assert result.get(timeout=PATIENCE_S) is True
