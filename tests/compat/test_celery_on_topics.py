"""Celery workers run the tasks of a Kafka topic, and of a RocketMQ topic, as those of a queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat.celery_workers import PATIENCE_S, Workshop, url_of

from trimq.testing import Broker


@pytest.fixture(scope="module", params=["partition-log", "commit-log"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Workshop]]:
    """A broker with the topic `celery`, and two workers."""
    with Broker() as broker:
        broker.create_topic("celery", 3, home=request.param)
        shop = Workshop(tmp_path_factory.mktemp("workers"), url_of(broker.addresses["amqp"]), "topic")
        try:
            for name in ("first@here", "second@here"):
                shop.start_worker(name)
            assert shop.done("add", 1, 1) == 2  # opens the connections of this process
            yield broker, shop
        finally:
            shop.close()


def test_workers_share_the_tasks_of_a_topic(place: tuple[Broker, Workshop]) -> None:
    broker, shop = place
    results = [shop.send("add", number, 1) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))
    assert shop.done("flaky", 2, 0.1) == 2
    # 21 tasks, and three messages of the task that was retried twice
    assert sum(len(broker.records("celery", number)) for number in range(3)) == 24
