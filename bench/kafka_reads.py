"""Reading from Apache Kafka and TriMQ: with fetch requests and discarded responses, and with a group of one
librdkafka consumer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

from bench.figures import Figure, at_least_times_floor, at_most_times_floor
from bench.kafka_produce import FLUSH_PATIENCE_S, Client, make_producer, send
from bench.kafka_sides import Side, Sides, cpu_figure, rate_figure, topic_on
from bench.kafka_sizes import KafkaSizes
from bench.kafka_wire import await_leader, encode_batch, encode_fetch, encode_produce, fetch_until, produce_until
from bench.processes import ChildFailed, cpu_s
from bench.turns import Outcome, take_turns, timed

KIB = 1024
GOALS = {64 * KIB: at_most_times_floor(0.6), 1024 * KIB: at_most_times_floor(1.0)}
CONNECTIONS = 2
DEPTH = 2
BATCH_BYTES = 16 * KIB
CONSUME_PATIENCE_S = 60


def measure_fetch(sizes: KafkaSizes, sides: Sides) -> Iterator[Figure]:
    ours = sides.ours["full"]
    with ExitStack() as stack:
        topics = {side.name: stack.enter_context(topic_on(side, 1)) for side in (sides.kafka, ours)}
        for side in (sides.kafka, ours):
            fill(sizes, side, topics[side.name])
        for max_bytes, goal in GOALS.items():
            results = take_turns(
                [sides.kafka, ours],
                sizes.rounds,
                lambda side, max_bytes=max_bytes: fetch(sizes, side, topics[side.name], max_bytes),
            )
            name = f"fetch {max_bytes // KIB} KB, {sides.flush}"
            yield cpu_figure(name, results[ours.name], results[sides.kafka.name], "request", goal)


def fill(sizes: KafkaSizes, side: Side, topic: str) -> None:
    batch = encode_batch(BATCH_BYTES, 1000)
    request = encode_produce(topic, 0, batch, acks=1)
    await_leader(side.address, topic, 0)
    produce_until(side.address, topic, [request], 5, _stored_batches(sizes), 60)


def _stored_batches(sizes: KafkaSizes) -> int:
    return max(sizes.stored_bytes, 2 * KIB * KIB) // BATCH_BYTES


def fetch(sizes: KafkaSizes, side: Side, topic: str, max_bytes: int) -> Outcome:
    """Reads like a consumer with a backlog: each request starts where the previous one ended."""
    batches = max_bytes // BATCH_BYTES
    records = BATCH_BYTES // 1010 * batches
    first = 1  # offset 0 is the record of `await_leader`
    offsets = range(first, first + _stored_batches(sizes) // batches * records, records)
    requests = [encode_fetch(topic, 0, offset, max_bytes) for offset in offsets]
    count = max(sizes.fetch_bytes // max_bytes, CONNECTIONS * DEPTH)

    def work() -> int:
        answered, received_bytes = fetch_until(side.address, requests, CONNECTIONS, DEPTH, count, sizes.seconds)
        if received_bytes < 0.9 * answered * max_bytes:
            raise ChildFailed(f"{received_bytes // answered} bytes per fetch of {max_bytes}")
        return answered

    return timed(side, work)


def exercise(sizes: KafkaSizes, side: Side) -> None:
    """Reads once in every way."""
    with topic_on(side, 1) as topic:
        fill(sizes, side, topic)
        for max_bytes in GOALS:
            fetch(sizes, side, topic, max_bytes)
        consume(side, topic, sizes.stored_bytes // 2000)


def measure_consumer(sizes: KafkaSizes, sides: Sides) -> Iterator[Figure]:
    ours = sides.ours["full"]
    for record_bytes in (100, 1000):
        count = min(sizes.client_messages, sizes.client_bytes // record_bytes)
        with ExitStack() as stack:
            topics = {side.name: stack.enter_context(topic_on(side, 1)) for side in (sides.kafka, ours)}
            for side in (sides.kafka, ours):
                producer = make_producer(side, Client(100_000, record_bytes, "1"))
                send(producer, topics[side.name], bytes(record_bytes), count, FLUSH_PATIENCE_S)
            results = take_turns(
                [sides.kafka, ours],
                sizes.client_rounds,
                lambda side, topics=topics, count=count: consume(side, topics[side.name], count),
            )
        name = f"librdkafka group consumer, {record_bytes} B, {sides.flush}"
        ours_did, kafka_did = results[ours.name], results[sides.kafka.name]
        yield rate_figure(name, ours_did, kafka_did, "records", at_least_times_floor(1.0))
        yield cpu_figure(f"{name}: CPU", ours_did, kafka_did, "record", None)


def consume(side: Side, topic: str, count: int) -> Outcome:
    """Measures from the first records to the last one, without the time to join the group."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": side.bootstrap,
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
                began_s, used_s, first = time.perf_counter(), cpu_s(side.pid), len(messages)
            seen += len(messages)
            if time.perf_counter() > until_s:
                raise ChildFailed(f"{seen} of {count} records came within {CONSUME_PATIENCE_S} s")
        return Outcome(max(seen - first, 1), cpu_s(side.pid) - used_s, time.perf_counter() - began_s)
    finally:
        consumer.close()
