"""Tasks of the Celery tests, and the worker that runs them: `celery_tasks.py URL QUEUE_TYPE [flags]`."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import kombu
from celery import Celery
from celery.exceptions import Reject

QUEUES: dict[str, dict[str, Any]] = {
    "topic": {},
    "classic": {"task_queue_max_priority": 10},
    # Native delayed delivery needs topic exchanges; Celery detects by itself that the queue is a quorum queue.
    "quorum": {
        "task_default_queue_type": "quorum",
        "task_create_missing_queue_type": "quorum",
        "task_default_exchange_type": "topic",
        "worker_detect_quorum_queues": True,
        "broker_native_delayed_delivery_queue_type": "quorum",
        "broker_transport_options": {"confirm_publish": True},
    },
}


def make_app(url: str, queue_type: str) -> Any:
    app = Celery("tasks", broker=url, backend="rpc://", set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=1,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        **QUEUES[queue_type],
    )
    _define(app)
    return app


def _define(app: Any) -> None:
    turns = itertools.count()

    @app.task(name="add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="turn", shared=False)
    def turn() -> int:
        """Returns how many of these tasks this worker has run before."""
        return next(turns)

    @app.task(name="flaky", shared=False, bind=True, max_retries=3)
    def flaky(self: Any, fails: int, wait_s: float) -> int:
        if self.request.retries < fails:
            raise self.retry(countdown=wait_s)
        return int(self.request.retries)

    @app.task(name="deadly", shared=False, bind=True)
    def deadly(self: Any, mark: str) -> bool:
        """Kills the worker that runs it first. Returns whether the message is marked as redelivered."""
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            return bool(self.request.delivery_info["redelivered"])
        os._exit(1)

    @app.task(name="echo", shared=False)
    def echo(text: str) -> str:
        return text

    @app.task(name="refused", shared=False)
    def refused() -> None:
        raise Reject("nobody wants it", requeue=False)

    @app.task(name="came again", shared=False, bind=True)
    def came_again(self: Any) -> bool:
        return bool(self.request.delivery_info["redelivered"])

    @app.task(name="left", shared=False)
    def left(queue: str) -> int:
        """Returns the number of messages left in the queue."""
        with app.connection_for_read() as connection:
            return int(connection.default_channel.queue_declare(queue, passive=True).message_count)

    @app.task(name="fail", shared=False)
    def fail() -> None:
        raise KeyError("nothing there")


def ranked_queue() -> kombu.Queue:
    """Queue that has no consumer until a worker is asked to consume it."""
    return kombu.Queue("ranked", kombu.Exchange("ranked"), routing_key="ranked", max_priority=10)


if __name__ == "__main__":
    make_app(sys.argv[1], sys.argv[2]).worker_main(["worker", *sys.argv[3:]])
