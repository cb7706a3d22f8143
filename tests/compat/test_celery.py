"""Celery on classic queues, with worker processes: results by RPC, retries, countdowns, priorities, events, control."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import celery
import kombu
import pytest
from celery.exceptions import TaskRevokedError
from compat.cables import cable_to
from compat.celery_tasks import ranked_queue
from compat.celery_workers import PATIENCE_S, Workshop, url_of, workshop


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop(tmp_path_factory, "classic") as shop:
        yield shop


def test_results_are_returned(shop: Workshop) -> None:
    results = [shop.send("add", number, 1) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))


def test_tasks_are_chained_and_grouped(shop: Workshop) -> None:
    add = shop.app.tasks["add"]
    assert celery.chain(add.s(1, 2), add.s(3))().get(timeout=PATIENCE_S) == 6
    assert celery.group(add.s(number, 1) for number in range(5))().get(timeout=PATIENCE_S) == [1, 2, 3, 4, 5]


def test_an_exception_of_a_task_is_raised_by_its_result(shop: Workshop) -> None:
    with pytest.raises(KeyError, match="nothing there"):
        shop.done("fail")


def test_a_task_that_fails_is_retried(shop: Workshop) -> None:
    assert shop.done("flaky", 2, 0.1) == 2


@pytest.mark.parametrize("form", ["countdown", "eta"])
def test_a_task_with_a_countdown_is_delayed(shop: Workshop, form: str) -> None:
    begun = time.monotonic()
    when: dict[str, Any] = {"countdown": {"countdown": 1}, "eta": {"eta": datetime.now(UTC) + timedelta(seconds=1)}}
    assert shop.done("add", 1, 2, **when[form]) == 3
    assert time.monotonic() - begun >= 0.9


def test_tasks_run_by_priority(shop: Workshop) -> None:
    """Remote control makes the worker consume the queue once all tasks are in it."""
    queue = ranked_queue()
    priorities = [0, 5, 9, 3]
    results = [shop.send("turn", queue=queue, priority=priority) for priority in priorities]
    (answer,) = shop.app.control.add_consumer(
        queue.name,
        exchange="ranked",
        routing_key="ranked",
        options={"max_priority": 10},
        reply=True,
        timeout=PATIENCE_S,
        limit=1,
    )
    assert "ok" in answer["first@here"]
    turns = [result.get(timeout=PATIENCE_S) for result in results]
    assert [priority for _, priority in sorted(zip(turns, priorities, strict=True))] == [9, 5, 3, 0]
    shop.app.control.cancel_consumer(queue.name, reply=True, timeout=PATIENCE_S, limit=1)


def test_workers_answer_remote_control(shop: Workshop) -> None:
    inspect = shop.app.control.inspect(timeout=PATIENCE_S, limit=1)
    assert inspect.ping() == {"first@here": {"ok": "pong"}}
    assert {queue["name"] for queue in inspect.active_queues()["first@here"]} == {"celery"}
    assert "add" in inspect.registered()["first@here"]


def test_a_revoked_task_is_not_run(shop: Workshop) -> None:
    result = shop.send("add", 1, 1, countdown=2)
    shop.app.control.revoke(result.id, reply=True, timeout=PATIENCE_S, limit=1)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE_S)


def test_workers_send_events(shop: Workshop) -> None:
    seen: list[tuple[str, str | None]] = []
    shop.app.control.enable_events(reply=True, timeout=PATIENCE_S, limit=1)
    with shop.app.connection_for_read() as connection:
        result_id: list[str] = []

        def note(event: dict[str, Any]) -> None:
            if result_id and event.get("uuid") == result_id[0]:
                seen.append((event["type"], event.get("result")))
                receiver.should_stop = event["type"] == "task-succeeded"

        receiver = shop.app.events.Receiver(connection, handlers={"*": note})
        consumer = receiver.itercapture(limit=None, timeout=PATIENCE_S, wakeup=True)
        next(consumer)  # events are received from here on
        result_id.append(shop.send("add", 20, 22).id)
        for _ in consumer:
            pass
    assert seen == [("task-received", None), ("task-started", None), ("task-succeeded", "42")]


def test_waiting_tasks_are_purged(shop: Workshop) -> None:
    queue = ranked_queue()
    for number in range(3):
        shop.send("add", number, 1, queue=queue)
    with shop.app.connection_for_write() as connection:
        assert queue(connection.default_channel).purge() == 3


@pytest.mark.parametrize("size", [0, 1, 131_064, 3_000_000])
def test_arguments_of_any_size_survive_a_round_trip(shop: Workshop, size: int) -> None:
    assert shop.done("echo", "x" * size) == "x" * size


def test_a_rejected_task_is_dead_lettered(shop: Workshop) -> None:
    dead = kombu.Queue("dead", kombu.Exchange("dead", "fanout"))
    to = {"x-dead-letter-exchange": "dead"}
    queue = kombu.Queue("unwanted", kombu.Exchange("unwanted"), "unwanted", queue_arguments=to, max_priority=10)
    came: list[Any] = []
    with shop.app.connection_for_write() as connection, connection.Consumer(dead, on_message=came.append):
        shop.send("refused", queue=queue)
        shop.app.control.add_consumer(
            queue.name, exchange="unwanted", routing_key="unwanted", options={"queue_arguments": to}
        )
        connection.drain_events(timeout=PATIENCE_S)
        shop.app.control.cancel_consumer(queue.name, reply=True, timeout=PATIENCE_S, limit=1)
    assert came[0].headers["task"] == "refused"
    assert came[0].headers["x-first-death-reason"] == "rejected"


def test_a_worker_takes_no_more_than_its_prefetch(shop: Workshop) -> None:
    """The prefetch is one: of three tasks, the others stay in the queue while one runs."""
    results = [shop.send("left", "patient", queue="patient") for _ in range(3)]
    with shop.worker("patient@here", "-Q", "patient", "-c", "1"):
        assert [result.get(timeout=PATIENCE_S) for result in results] == [2, 1, 0]


def test_a_worker_whose_connection_is_cut_gets_its_task_again(shop: Workshop) -> None:
    """The connection is lost after the delivery, while the worker holds the task for its countdown."""
    with cable_to(shop.address) as cable, shop.worker("cut@here", "-Q", "cut", url=url_of(cable.address)):
        assert shop.done("add", 1, 1, queue="cut") == 2  # the worker is ready
        result = shop.send("came again", queue="cut", countdown=4)
        inspect = shop.app.control.inspect(["cut@here"], timeout=PATIENCE_S, limit=1)
        while not (waiting := inspect.scheduled()["cut@here"]):
            pass
        assert [task["request"]["name"] for task in waiting] == ["came again"]
        cable.cut()
        assert result.get(timeout=PATIENCE_S) is True


def test_the_task_of_a_dead_worker_is_run_by_another(shop: Workshop, tmp_path: Path) -> None:
    result = shop.send("deadly", str(tmp_path / "mark"), queue="dangerous")
    with shop.worker("doomed@here", "-Q", "dangerous") as doomed:
        assert doomed.wait(PATIENCE_S) == 1
    with shop.worker("second@here", "-Q", "dangerous"):
        assert result.get(timeout=PATIENCE_S) is True
