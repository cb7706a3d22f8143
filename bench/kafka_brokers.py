"""The compared brokers, Apache Kafka and TriMQ with both modes of record validation, and their figures. Knows Kafka's
protocol only for creating topics."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.broker_rounds import Result
from bench.figures import Figure, Goal

FLUSHES = ("async", "sync")
KAFKA = "kafka"

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker. `topic_settings` are used for its topics."""

    name: str
    host: str
    port: int
    pid: int
    topic_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Brokers:
    """Apache Kafka and TriMQ in one flush mode. `ours` is keyed by the mode of record validation: "full" or
    "header"."""

    flush: str
    kafka: Broker
    ours: Mapping[str, Broker]

    def all(self) -> list[Broker]:
        return [self.kafka, *self.ours.values()]


def cpu_figure(name: str, ours: Result, kafka: Result, unit: str, goal: Goal | None) -> Figure:
    """Figure by CPU time of the broker; the rate is in the note."""
    note = f"CPU of the broker, least of {len(ours.outcomes)}; median {ours.median_cpu_us:.3g}, Kafka's "
    note += f"{kafka.median_cpu_us:.3g}; by wall {ours.rate:,.0f}/s, Kafka {kafka.rate:,.0f}/s"
    return Figure(name, ours.cpu_us, f"us/{unit}", kafka.cpu_us, goal, note, KAFKA)


def rate_figure(name: str, ours: Result, kafka: Result, unit: str, goal: Goal | None) -> Figure:
    """Figure by wall clock; the CPU time is in the note."""
    note = f"wall clock, best of {len(ours.outcomes)}; median {ours.median_rate:,.0f}, Kafka's {kafka.median_rate:,.0f}"
    note += f"; CPU of the broker {ours.cpu_us:.3g} us each, Kafka's {kafka.cpu_us:.3g}"
    return Figure(name, ours.rate, f"{unit}/s", kafka.rate, goal, note, KAFKA)


@contextmanager
def topic_on(broker: Broker, partitions: int) -> Iterator[str]:
    """Creates a topic and deletes it at the end."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"bench-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    made = NewTopic(name, partitions, 1, config=dict(broker.topic_settings))
    admin.create_topics([made], operation_timeout=30)[name].result(60)
    while len(admin.list_topics(name, timeout=30).topics[name].partitions) < partitions:
        time.sleep(0.01)
    try:
        yield name
    finally:
        admin.delete_topics([name], operation_timeout=30)[name].result(60)
