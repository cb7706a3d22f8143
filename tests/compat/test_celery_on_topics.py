"""Celery workers run the tasks of a Kafka topic, and of a RocketMQ topic, as those of a queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from compat.celery_workers import PATIENCE_S, Workshop, url_of

from trimq.testing import Broker


@pytest.mark.parametrize("home", ["partition-log", "commit-log"])
def test_workers_share_the_tasks_of_a_topic(tmp_path: Path, home: str) -> None:
    with Broker() as broker:
        broker.create_topic("celery", 3, home=home)
        shop = Workshop(tmp_path, url_of(broker.addresses["amqp"]), "topic")
        try:
            for name in ("first@here", "second@here"):
                shop.start_worker(name)
            results = [shop.send("add", number, 1) for number in range(20)]
            assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))
            assert shop.done("flaky", 2, 0.1) == 2, "a retry is another message"
        finally:
            shop.close()
        # 20 tasks, and three messages of the task that was retried
        assert sum(len(broker.records("celery", number)) for number in range(3)) == 23
