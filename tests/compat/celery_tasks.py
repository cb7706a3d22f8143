"""What the Celery worker of test_celery.py does."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

app = Celery("tasks", broker=os.environ["TRIMQ_TEST_AMQP"], backend="rpc://")
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_queue_max_priority=10,
    worker_prefetch_multiplier=1,
    task_acks_late=True,
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task(bind=True, max_retries=3, default_retry_delay=0.1)
def flaky(self: Any, fails: int) -> int:
    if self.request.retries < fails:
        raise self.retry()
    return int(self.request.retries)
