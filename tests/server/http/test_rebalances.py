"""Rebalances of a group of real Kafka consumers, over HTTP, in the commands and in the metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer

from trimq.clock import monotonic_seconds
from trimq.testing import Broker

PATIENCE_S = 60


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def get(broker: Broker, target: str) -> str:
    with urlopen(f"http://{broker.addresses['http']}{target}", timeout=PATIENCE_S) as response:
        received: bytes = response.read()
    return received.decode()


def rebalances(broker: Broker) -> Any:
    return json.loads(get(broker, "/api/groups/billing"))["rebalances"]


def poll_until_divided(consumers: list[Consumer], expected: list[int]) -> None:
    give_up = monotonic_seconds() + PATIENCE_S
    while sorted(len(consumer.assignment()) for consumer in consumers) != expected:
        assert monotonic_seconds() < give_up
        for consumer in consumers:
            consumer.poll(0.05)


def wait_until_stable(broker: Broker, consumers: list[Consumer]) -> None:
    give_up = monotonic_seconds() + PATIENCE_S
    while json.loads(get(broker, "/api/groups/billing"))["state"] != "stable":
        assert monotonic_seconds() < give_up
        for consumer in consumers:
            consumer.poll(0.05)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_second_consumer_causes_a_rebalance_that_is_shown(broker: Broker, protocol: str) -> None:
    broker.create_topic("orders", partitions=4)
    settings = {
        "bootstrap.servers": broker.addresses["kafka"],
        "group.id": "billing",
        "group.protocol": protocol,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(Consumer(settings))) for _ in range(2))
        first.subscribe(["orders"])
        poll_until_divided([first], [4])
        wait_until_stable(broker, [first])
        before = rebalances(broker)
        assert (before["last_moved"], before["running_ms"]) == (0, None)
        second.subscribe(["orders"])
        poll_until_divided([first, second], [2, 2])
        wait_until_stable(broker, [first, second])
        after = rebalances(broker)
        assert after["completed"] > before["completed"]
        assert after["total_moved"] == 2
        metrics = get(broker, "/metrics").splitlines()
        assert f'trimq_group_rebalances_total{{group="billing"}} {after["completed"]}.0' in metrics
        assert 'trimq_group_moved_streams_total{group="billing"} 2.0' in metrics
