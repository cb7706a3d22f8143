"""Celery with a worker process of its own: results by rpc, retries, countdowns, remote control, purge."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.broker import running

PATIENCE_S = 45
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module of tasks, with a worker that does them."""
    folder = tmp_path_factory.mktemp("broker")
    with running(folder, ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        url = f"pyamqp://guest:guest@{addresses['amqp']}//"
        environment = {**os.environ, "TRIMQ_TEST_AMQP": url}
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-P", "solo", "-l", "warning"]
        with (folder / "worker.log").open("wb") as log:
            worker = subprocess.Popen(command, cwd=HERE, env=environment, stdout=log, stderr=log)
        os.environ["TRIMQ_TEST_AMQP"] = url
        sys.path.insert(0, str(HERE))
        try:
            import celery_tasks

            # The connections that all tests share are made here, so that none of them seems to leak one.
            assert celery_tasks.add.delay(1, 1).get(timeout=PATIENCE_S) == 2
            assert celery_tasks.app.control.ping(timeout=5)
            yield celery_tasks
            celery_tasks.app.close()
        finally:
            sys.path.remove(str(HERE))
            del os.environ["TRIMQ_TEST_AMQP"]
            worker.terminate()
            worker.wait(PATIENCE_S)


def test_results_come_back(tasks: Any) -> None:
    results = [tasks.add.delay(number, 1) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))


def test_a_task_that_fails_is_tried_again(tasks: Any) -> None:
    assert tasks.flaky.delay(2).get(timeout=PATIENCE_S) == 2


def test_a_task_with_a_countdown_waits(tasks: Any) -> None:
    begun = time.monotonic()
    assert tasks.add.apply_async((1, 2), countdown=1).get(timeout=PATIENCE_S) == 3
    assert time.monotonic() - begun >= 0.9


def test_a_task_with_a_priority_is_done(tasks: Any) -> None:
    assert tasks.add.apply_async((2, 2), priority=9).get(timeout=PATIENCE_S) == 4


def test_workers_answer_remote_control(tasks: Any) -> None:
    (answer,) = tasks.app.control.ping(timeout=5)
    assert list(answer.values()) == [{"ok": "pong"}]
