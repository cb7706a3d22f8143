"""Celery workers run the tasks of a Kafka topic, and of a RocketMQ topic, as those of a queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat.celery_workers import PATIENCE_S, Workshop, url_of

from trimq.testing import Broker

# The name of the first is that of Celery's own queue.
HOMES = {"celery": "partition-log", "ledger": "commit-log"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Workshop]]:
    """A broker with a topic of each home, and two workers."""
    with Broker() as broker:
        for name, home in HOMES.items():
            broker.create_topic(name, 3, home=home)
        shop = Workshop(tmp_path_factory.mktemp("workers"), url_of(broker.addresses["amqp"]), "topic")
        try:
            for worker in ("first@here", "second@here"):
                shop.start_worker(worker, "-Q", ",".join(HOMES))
            assert shop.done("add", 1, 1) == 2  # opens the connections of this process
            yield broker, shop
        finally:
            shop.close()


@pytest.mark.parametrize("name", HOMES)
def test_workers_share_the_tasks_of_a_topic(place: tuple[Broker, Workshop], name: str) -> None:
    broker, shop = place
    before = count(broker, name)
    results = [shop.send("add", number, 1, queue=name) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))
    assert shop.done("flaky", 2, 0.1, queue=name) == 2
    # 20 tasks, and three messages of the task that was retried twice
    assert count(broker, name) - before == 23


def count(broker: Broker, name: str) -> int:
    return sum(len(broker.records(name, number)) for number in range(3))
