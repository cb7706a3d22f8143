"""Reading from Apache Kafka and TriMQ: with fetch requests and discarded responses, and with a group of one
librdkafka consumer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

from bench.broker_rounds import Outcome, run_rounds, timed
from bench.figures import Figure, at_least_times_floor, at_most_times_floor
from bench.kafka_brokers import Broker, Brokers, cpu_figure, rate_figure, topic_on
from bench.kafka_produce import FLUSH_PATIENCE_S, ClientSettings, make_producer, send
from bench.kafka_sizes import KafkaSizes
from bench.kafka_wire import await_leader, encode_batch, encode_fetch, encode_produce, fetch_until, produce_until
from bench.processes import ChildFailed, cpu_s

KIB = 1024
GOALS = {64 * KIB: at_most_times_floor(0.6), 1024 * KIB: at_most_times_floor(1.0)}
CONNECTIONS = 2
DEPTH = 2
BATCH_BYTES = 16 * KIB
CONSUME_PATIENCE_S = 60


def measure_fetch(sizes: KafkaSizes, brokers: Brokers) -> Iterator[Figure]:
    ours = brokers.ours["full"]
    with ExitStack() as stack:
        topics = {broker.name: stack.enter_context(topic_on(broker, 1)) for broker in (brokers.kafka, ours)}
        for broker in (brokers.kafka, ours):
            fill(sizes, broker, topics[broker.name])
        for max_bytes, goal in GOALS.items():
            results = run_rounds(
                [brokers.kafka, ours],
                sizes.rounds,
                lambda broker, max_bytes=max_bytes: fetch(sizes, broker, topics[broker.name], max_bytes),
            )
            name = f"fetch {max_bytes // KIB} KB, {brokers.flush}"
            yield cpu_figure(name, results[ours.name], results[brokers.kafka.name], "request", goal)


def fill(sizes: KafkaSizes, broker: Broker, topic: str) -> None:
    batch = encode_batch(BATCH_BYTES, 1000)
    request = encode_produce(topic, 0, batch, acks=1)
    await_leader(broker.address, topic, 0)
    produce_until(broker.address, topic, [request], 5, _stored_batches(sizes), 60)


def _stored_batches(sizes: KafkaSizes) -> int:
    return max(sizes.stored_bytes, 2 * KIB * KIB) // BATCH_BYTES


def fetch(sizes: KafkaSizes, broker: Broker, topic: str, max_bytes: int) -> Outcome:
    """Reads like a consumer with a backlog: each request starts where the previous one ended."""
    batches = max_bytes // BATCH_BYTES
    records = BATCH_BYTES // 1010 * batches
    first = 1  # offset 0 is the record of `await_leader`
    offsets = range(first, first + _stored_batches(sizes) // batches * records, records)
    requests = [encode_fetch(topic, 0, offset, max_bytes) for offset in offsets]
    count = max(sizes.fetch_bytes // max_bytes, CONNECTIONS * DEPTH)

    def work() -> int:
        answered, received_bytes = fetch_until(broker.address, requests, CONNECTIONS, DEPTH, count, sizes.seconds)
        if received_bytes < 0.9 * answered * max_bytes:
            raise ChildFailed(f"{received_bytes // answered} bytes per fetch of {max_bytes}")
        return answered

    return timed(broker, work)


def exercise(sizes: KafkaSizes, broker: Broker) -> None:
    """Reads once in every way."""
    with topic_on(broker, 1) as topic:
        fill(sizes, broker, topic)
        for max_bytes in GOALS:
            fetch(sizes, broker, topic, max_bytes)
        consume(broker, topic, sizes.stored_bytes // 2000)


def measure_consumer(sizes: KafkaSizes, brokers: Brokers) -> Iterator[Figure]:
    ours = brokers.ours["full"]
    for record_bytes in (100, 1000):
        count = min(sizes.client_messages, sizes.client_bytes // record_bytes)
        with ExitStack() as stack:
            topics = {broker.name: stack.enter_context(topic_on(broker, 1)) for broker in (brokers.kafka, ours)}
            for broker in (brokers.kafka, ours):
                producer = make_producer(broker, ClientSettings(100_000, record_bytes, "1"))
                send(producer, topics[broker.name], bytes(record_bytes), count, FLUSH_PATIENCE_S)
            results = run_rounds(
                [brokers.kafka, ours],
                sizes.client_rounds,
                lambda broker, topics=topics, count=count: consume(broker, topics[broker.name], count),
            )
        name = f"librdkafka group consumer, {record_bytes} B, {brokers.flush}"
        ours_result, kafka_result = results[ours.name], results[brokers.kafka.name]
        yield rate_figure(name, ours_result, kafka_result, "records", at_least_times_floor(1.0))
        yield cpu_figure(f"{name}: CPU", ours_result, kafka_result, "record", None)


def consume(broker: Broker, topic: str, count: int) -> Outcome:
    """Measures from the first records to the last one, without the time to join the group."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    until_s = time.perf_counter() + CONSUME_PATIENCE_S
    seen = first = 0
    began_s = used_s = 0.0
    try:
        while seen < count:
            messages = consumer.consume(10_000, 0.1)
            if messages and messages[0].error():
                raise ChildFailed(f"a consumer got {messages[0].error()}")
            if messages and not seen:
                began_s, used_s, first = time.perf_counter(), cpu_s(broker.pid), len(messages)
            seen += len(messages)
            if time.perf_counter() > until_s:
                raise ChildFailed(f"{seen} of {count} records arrived within {CONSUME_PATIENCE_S} s")
        return Outcome(max(seen - first, 1), cpu_s(broker.pid) - used_s, time.perf_counter() - began_s)
    finally:
        consumer.close()
