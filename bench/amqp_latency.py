"""Latency from publisher to consumer at a fixed rate. One thread publishes each message at its scheduled time and reads
in between, so a slow broker does not slow down the publisher."""

from __future__ import annotations

import select
import statistics
import time
from collections.abc import Iterator
from struct import Struct

from bench.amqp_brokers import RABBITMQ, Broker, Brokers, queue_on
from bench.amqp_load import PATIENCE_S, Consumer, LoadConnection, Publisher
from bench.amqp_sizes import AmqpSizes
from bench.amqp_traffic import BODIES
from bench.amqp_wire import Client, WireFailed, delivery_bytes, encode_publish
from bench.comparison import OURS
from bench.figures import Figure, at_most_times_floor
from bench.processes import cpu_s

_STAMP = Struct(">d")
_PREFETCH = 1000


class _Stamped(Publisher):
    """Writes the send time into each message."""

    def __init__(self, client: Client, queue: str, body_bytes: int, total: int) -> None:
        super().__init__(client, queue, body_bytes, total, total)
        self._message = encode_publish(queue, b"@" * body_bytes)
        self._at = self._message.index(b"@" * body_bytes)
        self._unsent = bytearray()

    def send_one(self) -> None:
        message = bytearray(self._message)
        _STAMP.pack_into(message, self._at, time.perf_counter())
        self._unsent += message
        self.push()

    def outgoing(self) -> memoryview:
        return memoryview(bytes(self._unsent))

    def sent(self, count: int) -> None:
        del self._unsent[:count]


class _Watching(Consumer):
    """Records the age of each message on delivery."""

    def __init__(self, client: Client, queue: str, body_bytes: int, total: int) -> None:
        super().__init__(client, queue, _PREFETCH, total)
        self._body_bytes = body_bytes
        self.delays_s: list[float] = []

    def received(self, data: bytes) -> None:
        data = self._rest + data
        while (size := delivery_bytes(data)) is not None:
            (sent_s,) = _STAMP.unpack_from(data, size - 1 - self._body_bytes)
            self.delays_s.append(time.perf_counter() - sent_s)
            self.delivered += 1
            data = data[size:]
        self._rest = data


def measure(sizes: AmqpSizes, brokers: Brokers) -> Iterator[Figure]:
    for body_bytes in BODIES:
        yield from _measure(sizes, brokers, body_bytes)


def _measure(sizes: AmqpSizes, brokers: Brokers, body_bytes: int) -> Iterator[Figure]:
    compared = brokers.both()
    found: dict[str, list[tuple[float, float, float]]] = {broker.name: [] for broker in compared}
    for _ in range(sizes.latency_rounds):
        for broker in compared:
            found[broker.name].append(_run(sizes, brokers.kind, broker, body_bytes))
        compared.reverse()
    least = {name: [min(column) for column in zip(*runs, strict=True)] for name, runs in found.items()}
    (p50_ms, p99_ms, cpu_us), (peer_p50_ms, peer_p99_ms, peer_cpu_us) = least[OURS], least[RABBITMQ]
    name = f"publish to deliver {body_bytes} B at {sizes.latency_rate:,} messages/s, {brokers.flush}"
    note = f"wall clock, least of {sizes.latency_rounds}"
    yield Figure(f"{name}: p50", p50_ms, "ms", peer_p50_ms, at_most_times_floor(1.0), note, RABBITMQ)
    yield Figure(f"{name}: p99", p99_ms, "ms", peer_p99_ms, None, note, RABBITMQ)
    yield Figure(f"{name}: CPU", cpu_us, "us/message", peer_cpu_us, None, "of the broker, least", RABBITMQ)


def _run(sizes: AmqpSizes, kind: str, broker: Broker, body_bytes: int) -> tuple[float, float, float]:
    """Returns p50 and p99 in milliseconds, and the CPU time of the broker per message in microseconds."""
    total = int(sizes.latency_rate * sizes.latency_seconds)
    with queue_on(broker, kind) as queue, Client(broker.address) as one, Client(broker.address) as other:
        publisher, consumer = _Stamped(one, queue, body_bytes, total), _Watching(other, queue, body_bytes, total)
        used_s = cpu_s(broker.pid)
        _send_at_rate(publisher, consumer, total, sizes.latency_rate)
        used_s = cpu_s(broker.pid) - used_s
    warmed = consumer.delays_s[total // 5 :]
    cuts = statistics.quantiles(warmed, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3, used_s / total * 1e6


def _send_at_rate(publisher: _Stamped, consumer: _Watching, total: int, rate: int) -> None:
    connections: list[LoadConnection] = [publisher, consumer]
    sockets = {connection.client.socket: connection for connection in connections}
    for socket in sockets:
        socket.setblocking(False)
    consumer.push()
    began_s = time.perf_counter() + 0.05
    number = 0
    while len(consumer.delays_s) < total or publisher.confirmed < total:
        now_s = time.perf_counter()
        while number < total and began_s + number / rate <= now_s:
            publisher.send_one()
            number += 1
        wait_s = began_s + number / rate - now_s if number < total else 1.0
        blocked = [connection.client.socket for connection in connections if connection.is_blocked]
        readable, writable, _ = select.select(list(sockets), blocked, (), max(wait_s, 0))
        for socket in readable:
            sockets[socket].pull()
            sockets[socket].push()
        for socket in writable:
            sockets[socket].push()
        if now_s > began_s + PATIENCE_S:
            raise WireFailed(f"{len(consumer.delays_s)} of {total} messages arrived")
