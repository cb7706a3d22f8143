"""Latency from the call of the producer to the return of the consumer's poll, at a fixed rate. The consumer runs in a
process of its own (`python -m bench.kafka_latency`), because both in one process would wait for the GIL."""

from __future__ import annotations

import json
import statistics
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

from bench.figures import Figure, at_most_times_floor
from bench.kafka_brokers import KAFKA, Broker, Brokers, topic_on
from bench.kafka_produce import fail_on_error, flush
from bench.kafka_sizes import KafkaSizes
from bench.processes import PROJECT, ChildFailed, cpu_s

RECORD_BYTES = 100
_STAMP = struct.Struct(">qd")
_PRIMING = -1


def measure(sizes: KafkaSizes, brokers: Brokers) -> Iterator[Figure]:
    compared = [brokers.kafka, brokers.ours["full"]]
    found: dict[str, list[dict[str, float]]] = {broker.name: [] for broker in compared}
    for _ in range(sizes.latency_rounds):
        for broker in compared:
            found[broker.name].append(_run(sizes, broker))
        compared.reverse()
    least = {
        name: {key: min(run[key] for run in runs) for key in ("p50_ms", "p99_ms", "cpu_us")}
        for name, runs in found.items()
    }
    ours, kafka = least[brokers.ours["full"].name], least[brokers.kafka.name]
    name = f"end to end at {sizes.latency_rate:,} records/s, {brokers.flush}"
    note = f"wall clock, least of {sizes.latency_rounds}; CPU of the broker {ours['cpu_us']:.3g} us a record, "
    note += f"Kafka's {kafka['cpu_us']:.3g}"
    yield Figure(f"{name}: p50", ours["p50_ms"], "ms", kafka["p50_ms"], at_most_times_floor(1.0), note, KAFKA)
    yield Figure(f"{name}: p99", ours["p99_ms"], "ms", kafka["p99_ms"], None, note, KAFKA)


def _run(sizes: KafkaSizes, broker: Broker) -> dict[str, float]:
    total = int(sizes.latency_rate * sizes.latency_seconds)
    with topic_on(broker, 1) as topic:
        words = [sys.executable, "-m", "bench.kafka_latency", broker.bootstrap, topic, str(total)]
        with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                if process.stdout.readline() != b"ready\n":
                    raise ChildFailed("the consumer was assigned no partition")
                cpu_us = _send_at_rate(sizes, broker, topic, total)
                delays_ms = json.loads(process.stdout.readline() or "[]")
            finally:
                process.kill()
    if len(delays_ms) != total:
        raise ChildFailed(f"{len(delays_ms)} of {total} records arrived")
    warmed = delays_ms[total // 5 :]
    cuts = statistics.quantiles(warmed, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "cpu_us": cpu_us}


def _send_at_rate(sizes: KafkaSizes, broker: Broker, topic: str, total: int) -> float:
    """Returns the CPU time of the broker per record in microseconds, including the fetches."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "delivery.report.only.error": True,
            "on_delivery": fail_on_error,
            "log_level": 0,
        }
    )
    producer.produce(topic, _STAMP.pack(_PRIMING, 0))
    flush(producer)
    rest = bytes(RECORD_BYTES - _STAMP.size)
    used_s, began_s, now = cpu_s(broker.pid), time.monotonic() + 0.05, time.monotonic
    for number in range(total):
        due_s = began_s + number / sizes.latency_rate
        while (left_s := due_s - now()) > 0:
            producer.poll(left_s if left_s > 0.0005 else 0)
        producer.produce(topic, _STAMP.pack(number, now()) + rest)
    flush(producer)
    return (cpu_s(broker.pid) - used_s) / total * 1e6


def _consume(bootstrap: str, topic: str, total: int) -> None:
    """Prints `ready` when the partition is assigned, then the latency of each record."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "socket.nagle.disable": True,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic], on_assign=lambda *_: print("ready", flush=True))
    delays_ms: list[float] = []
    until_s = time.monotonic() + 120
    while len(delays_ms) < total and time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is None or message.error():
            continue
        number, sent_s = _STAMP.unpack_from(message.value())
        if number != _PRIMING:
            delays_ms.append((time.monotonic() - sent_s) * 1e3)
    print(json.dumps(delays_ms), flush=True)
    consumer.close()


if __name__ == "__main__":
    _consume(sys.argv[1], sys.argv[2], int(sys.argv[3]))
