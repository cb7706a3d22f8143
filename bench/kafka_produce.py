"""Producing to Apache Kafka and TriMQ: with requests encoded in advance, and with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.broker_rounds import Outcome, run_rounds, timed
from bench.figures import Figure, Goal, at_least_times_floor, at_most_times_floor
from bench.kafka_brokers import Broker, Brokers, cpu_figure, rate_figure, topic_on
from bench.kafka_sizes import KafkaSizes
from bench.kafka_wire import await_leader, encode_batch, encode_produce, produce_until
from bench.processes import ChildFailed

CONNECTIONS = 4

# A broker that syncs each batch on a busy disk needs long for the queue of a client.
FLUSH_PATIENCE_S = 180


class RawRequest(NamedTuple):
    """One kind of request, and its goals by mode of record validation."""

    name: str
    batch_bytes: int
    record_bytes: int
    depth: int
    goals: dict[str, Goal | None]


AT_MOST_KAFKAS = at_most_times_floor(1.0)
RAW_REQUESTS = (
    RawRequest("one record of 100 B", 1, 100, 16, {"full": AT_MOST_KAFKAS, "header": at_most_times_floor(0.35)}),
    RawRequest("16 KB of 1 KB records", 16_384, 1000, 5, {"full": AT_MOST_KAFKAS, "header": at_most_times_floor(0.5)}),
    RawRequest("16 KB of 100 B records", 16_384, 100, 5, {"full": AT_MOST_KAFKAS, "header": None}),
    RawRequest(
        "100 KB of 1 KB records", 100_000, 1000, 5, {"full": AT_MOST_KAFKAS, "header": at_most_times_floor(0.5)}
    ),
    RawRequest("1 MB of 1 KB records", 1_000_000, 1000, 3, {"full": AT_MOST_KAFKAS, "header": None}),
)


class ClientSettings(NamedTuple):
    """Settings of one librdkafka producer."""

    batch_bytes: int
    record_bytes: int
    acks: str


CLIENT_SETTINGS = tuple(
    ClientSettings(batch_bytes, record_bytes, acks)
    for acks in ("1", "all")
    for record_bytes in (100, 1000)
    for batch_bytes in (16_384, 100_000, 1_000_000)
)


def measure_raw(sizes: KafkaSizes, brokers: Brokers) -> Iterator[Figure]:
    for raw in RAW_REQUESTS:
        results = run_rounds(brokers.all(), sizes.rounds, lambda broker, raw=raw: produce_raw(sizes, broker, raw))
        for validation, broker in brokers.ours.items():
            name = f"produce {raw.name}, {validation}, {brokers.flush}"
            ours, kafka = results[broker.name], results[brokers.kafka.name]
            yield cpu_figure(name, ours, kafka, "request", raw.goals[validation])


def produce_raw(sizes: KafkaSizes, broker: Broker, raw: RawRequest) -> Outcome:
    batch = encode_batch(raw.batch_bytes, raw.record_bytes)
    count = sizes.small_requests if len(batch) < 1000 else max(sizes.produce_bytes // len(batch), CONNECTIONS)
    with topic_on(broker, CONNECTIONS) as topic:
        requests = [encode_produce(topic, index, batch, acks=1) for index in range(CONNECTIONS)]
        for index in range(CONNECTIONS):
            await_leader(broker.address, topic, index)
        return timed(broker, lambda: produce_until(broker.address, topic, requests, raw.depth, count, sizes.seconds))


def measure_clients(sizes: KafkaSizes, brokers: Brokers) -> Iterator[Figure]:
    """Measures librdkafka. acks=1 is left out with flush=sync: there every response waits for the disk."""
    for client in CLIENT_SETTINGS:
        if client.acks == "1" and brokers.flush == "sync":
            continue
        ours = brokers.ours["full"]
        results = run_rounds(
            [brokers.kafka, ours],
            sizes.client_rounds,
            lambda broker, client=client: produce_by_client(sizes, broker, client),
        )
        acks = "acks=1" if client.acks == "1" else "idempotent"
        name = (
            f"librdkafka, {client.record_bytes} B, batches of {client.batch_bytes // 1000} KB, {acks}, {brokers.flush}"
        )
        ours_result, kafka_result = results[ours.name], results[brokers.kafka.name]
        yield rate_figure(name, ours_result, kafka_result, "records", at_least_times_floor(1.0))
        yield cpu_figure(f"{name}: CPU", ours_result, kafka_result, "record", None)


def produce_by_client(sizes: KafkaSizes, broker: Broker, client: ClientSettings) -> Outcome:
    count = min(sizes.client_messages, sizes.client_bytes // client.record_bytes)
    with topic_on(broker, 1) as topic:
        producer = make_producer(broker, client)
        producer.produce(topic, b"first")
        flush(producer)
        return timed(broker, lambda: send(producer, topic, bytes(client.record_bytes), count, sizes.client_seconds))


def make_producer(broker: Broker, client: ClientSettings) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": client.acks,
            "enable.idempotence": client.acks == "all",
            "linger.ms": 5,
            "batch.size": client.batch_bytes,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 32_768,
            "delivery.report.only.error": True,
            "on_delivery": fail_on_error,
            "log_level": 0,
        }
    )


def fail_on_error(error: object, _: object) -> None:
    raise ChildFailed(f"a record was not accepted: {error}")


def send(producer: Any, topic: str, body: bytes, count: int, seconds: float) -> int:
    """Sends until `count` records are sent or `seconds` have passed, and waits until all are acknowledged. Returns
    their number."""
    produce, poll = producer.produce, producer.poll
    until_s = time.perf_counter() + seconds
    for number in range(count):
        while True:
            try:
                produce(topic, body)
                break
            except BufferError:
                poll(0.01)
        if not number & 255:
            poll(0)
            if time.perf_counter() > until_s:
                count = number + 1
                break
    flush(producer)
    return count


def flush(producer: Any) -> None:
    until_s = time.perf_counter() + FLUSH_PATIENCE_S
    while producer.flush(1):
        if time.perf_counter() > until_s:
            raise ChildFailed(f"records were not acknowledged within {FLUSH_PATIENCE_S} s")
