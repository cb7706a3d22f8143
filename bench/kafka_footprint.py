"""Footprint of TriMQ and Apache Kafka: time from start to the first acknowledged record, and memory when idle and with
many topics."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.figures import Figure, at_most_times_floor
from bench.kafka_brokers import KAFKA, Broker
from bench.kafka_peer import kafka_in
from bench.kafka_sizes import KafkaSizes
from bench.kafka_wire import WireFailed, ask, connect, encode_batch, encode_metadata, encode_produce, produce_error
from bench.processes import ChildFailed, broker_in, resident_mb

TOPIC = "first"
PATIENCE_S = 60
TOPICS_PER_REQUEST = 100

Start = Callable[[Path], AbstractContextManager[tuple[Broker, float]]]
"""Starts a broker in a new folder, which is removed at the end. Returns the broker and the start time of its
process."""


@contextmanager
def start_kafka(folder: Path) -> Iterator[tuple[Broker, float]]:
    with kafka_in(folder) as peer:
        yield Broker(KAFKA, "127.0.0.1", peer.port, peer.pid), peer.started_s


@contextmanager
def start_ours(folder: Path) -> Iterator[tuple[Broker, float]]:
    try:
        with broker_in(folder) as broker:
            host, port = broker.addresses["kafka"].rsplit(":", 1)
            yield Broker("ours", host, int(port), broker.pid), broker.started_s
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(sizes: KafkaSizes, folder: Path, start_peer: Start = start_kafka) -> Iterator[Figure]:
    starts: dict[str, Start] = {"ours": start_ours, KAFKA: start_peer}
    first_s: dict[str, list[float]] = {name: [] for name in starts}
    memory_mb: dict[str, tuple[float, float]] = {}
    for number in range(sizes.starts):
        for name, start in starts.items():
            with start(folder / "start") as (broker, started_s):
                _await_first(broker)
                first_s[name].append(time.perf_counter() - started_s)
                if number == sizes.starts - 1:
                    memory_mb[name] = _memory(sizes, broker)
    note = f"wall clock from the start of the process, median of {sizes.starts}; the folder was made before"
    medians = {name: statistics.median(own) for name, own in first_s.items()}
    goal = at_most_times_floor(0.2)
    yield Figure("start to first acknowledged record", medians["ours"], "s", medians[KAFKA], goal, note, KAFKA)
    note = "VmRSS after the first record; Kafka's heap may grow to 512 MB"
    (idle_mb, full_mb), (kafka_idle_mb, kafka_full_mb) = memory_mb["ours"], memory_mb[KAFKA]
    yield Figure("RSS idle", idle_mb, "MB", kafka_idle_mb, goal, note, KAFKA)
    yield Figure(f"RSS with {sizes.topics:,} topics", full_mb, "MB", kafka_full_mb, None, note, KAFKA)


def _await_first(broker: Broker) -> None:
    """Waits until a record is acknowledged, in a topic created by a metadata request."""
    batch = encode_batch(1, 100)
    until_s = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < until_s:
        try:
            with connect(broker.address) as connection:
                ask(connection, encode_metadata(TOPIC))
                while time.perf_counter() < until_s:
                    answer = ask(connection, encode_produce(TOPIC, 0, batch, acks=1))
                    if not produce_error(answer, TOPIC):
                        return
                    time.sleep(0.005)
        except (OSError, WireFailed):
            time.sleep(0.005)
    raise ChildFailed(f"{broker.name} acknowledged nothing within {PATIENCE_S} s")


def _memory(sizes: KafkaSizes, broker: Broker) -> tuple[float, float]:
    """Returns the memory when idle and with many topics, in MB."""
    from confluent_kafka.admin import AdminClient, NewTopic

    time.sleep(sizes.settle_seconds)
    idle_mb = resident_mb(broker.pid)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for begin in range(0, sizes.topics, TOPICS_PER_REQUEST):
        numbers = range(begin, min(begin + TOPICS_PER_REQUEST, sizes.topics))
        made = admin.create_topics([NewTopic(f"many-{number}", 1, 1) for number in numbers], operation_timeout=30)
        for each in made.values():
            each.result(60)
    time.sleep(sizes.settle_seconds)
    return idle_mb, resident_mb(broker.pid)
