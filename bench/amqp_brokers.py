"""The compared brokers, RabbitMQ and TriMQ, and their figures. Knows AMQP only for declaring queues."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench import comparison
from bench.amqp_wire import Client
from bench.broker_rounds import Result
from bench.comparison import NO_GOALS, WorkGoals
from bench.figures import Figure, at_least_times_floor, at_most_times_floor

RABBITMQ = "rabbitmq"

QUEUES = {"async": "classic", "sync": "quorum"}
"""Flush mode of TriMQ: the RabbitMQ queue type with the nearest durability guarantee."""

HALF_THE_TIME = at_most_times_floor(0.5)
TWICE_THE_RATE = at_least_times_floor(2.0)

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker."""

    name: str
    host: str
    port: int
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class Brokers:
    """RabbitMQ, and TriMQ in one flush mode, with the same queue type."""

    flush: str
    rabbitmq: Broker
    ours: Broker

    @property
    def kind(self) -> str:
        return QUEUES[self.flush]

    def both(self) -> list[Broker]:
        return [self.rabbitmq, self.ours]


@contextmanager
def queue_on(broker: Broker, kind: str) -> Iterator[str]:
    """Declares a durable queue and deletes it at the end."""
    name = f"bench-{next(_numbers):06}"
    with Client(broker.address) as client:
        client.declare(name, kind)
        yield name
        client.delete(name)


def work_figures(name: str, results: dict[str, Result], has_goals: bool) -> Iterator[Figure]:
    goals = WorkGoals(HALF_THE_TIME, TWICE_THE_RATE) if has_goals else NO_GOALS
    return comparison.work_figures(name, results, RABBITMQ, "RabbitMQ", goals)
