"""Kafka: TriMQ beside Apache Kafka."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.kafka_peer import kafka_in
from differential import (
    kafka_assigned_group_steps,
    kafka_cluster_steps,
    kafka_group_steps,
    kafka_record_steps,
    kafka_setting_steps,
    kafka_topic_steps,
    kafka_transaction_steps,
)
from differential.kafka_driver import KafkaDriver
from differential.kafka_explained import EXPLAINED
from differential.kafka_world import World
from differential.sequences import Driver, Step
from tools.broker import running

__all__ = ["EXPLAINED", "PAGE", "brokers", "generate"]

PAGE = "docs/kafka.md"

Area = list[tuple[int, Callable[[World], None]]]
_AREAS: list[Area] = [
    kafka_record_steps.AREA,
    kafka_topic_steps.AREA,
    kafka_setting_steps.AREA,
    kafka_group_steps.AREA,
    kafka_assigned_group_steps.AREA,
    kafka_transaction_steps.AREA,
]
# Requests of these areas change nothing, so they are only mixed into the others.
_SIDE_AREAS: list[Area] = [kafka_cluster_steps.AREA]
_STEPS = 24
_SHOWN = {"log.segment.delete.delay.ms", "offsets.topic.num.partitions", "transaction.state.log.num.partitions"}

# TriMQ assigns partitions as soon as a group changes. Kafka waits a second after the last time, unless told otherwise.
_MORE = {"group.consumer.assignment.interval.ms": "0"}


def generate(source: random.Random) -> list[Step]:
    """Begins with topics and records. Most other steps are of one area, so that they depend on each other."""
    world = World(source)
    for _ in range(source.choice([1, 1, 2])):
        kafka_topic_steps.create_topic(world)
    if world.chance(0.7):
        kafka_record_steps.produce_one(world)
    main = source.choice(_AREAS)
    while len(world.steps) < _STEPS:
        area = main if world.chance(0.8) else source.choice([*_AREAS, *_SIDE_AREAS])
        weights = [weight for weight, _ in area]
        ((_, step),) = source.choices(area, weights)
        step(world)
    return world.steps


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """Both with the settings of bench/kafka_peer.py, except for those that a description would show."""
    (folder / "trimq").mkdir()
    with (
        running(folder / "trimq") as addresses,
        kafka_in(folder / "kafka", _SHOWN, _MORE) as peer,
    ):
        host, _, port = addresses["kafka"].rpartition(":")
        with (
            closing(KafkaDriver((host, int(port)), is_delayed=False)) as trimq,
            closing(KafkaDriver(("127.0.0.1", peer.port), is_delayed=True)) as kafka,
        ):
            yield trimq, kafka
