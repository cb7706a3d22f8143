"""Latency from the producer to a consumer with a pending pull, like a push consumer, at a fixed rate. One thread sends
each message at its scheduled time and reads in between, so a slow broker does not slow down the producer."""

from __future__ import annotations

import json
import select
import statistics
import time
from collections.abc import Iterator
from struct import Struct

from bench.comparison import OURS
from bench.figures import Figure, at_most_times_floor
from bench.pipelined_load import WireFailed
from bench.processes import cpu_s
from bench.rocketmq_brokers import ROCKETMQ, Broker, Brokers, topic_on
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_wire import NOT_FOUND, Client, encode_pull, encode_send

BODY_BYTES = 100
PATIENCE_S = 60
_WAIT_MS = 15_000
_BATCH = 32
_MARK = b"sent at:"
_STAMP = Struct(">d")


class _Frames:
    """Frames of one connection in order of arrival: the fields, the code and the body of each."""

    def __init__(self, client: Client) -> None:
        self.socket = client.socket
        self._data = b""

    def receive(self) -> Iterator[tuple[dict[str, str], int, bytes]]:
        arrived = self.socket.recv(1 << 20)
        if not arrived:
            raise WireFailed("the broker closed the connection")
        self._data += arrived
        while len(self._data) >= 4 and (end := 4 + int.from_bytes(self._data[:4], "big")) <= len(self._data):
            body_at = 8 + (int.from_bytes(self._data[4:8], "big") & 0xFFFFFF)
            header = json.loads(self._data[8:body_at])
            yield header.get("extFields") or {}, header["code"], self._data[body_at:end]
            self._data = self._data[end:]


class _Run:
    """One producer and one consumer on a queue of their own."""

    def __init__(self, topic: str, producer: Client, consumer: Client, total: int) -> None:
        self._topic = topic
        self._producer = _Frames(producer)
        self._consumer = _Frames(consumer)
        self._total = total
        self._requests = [self._split_request(number) for number in range(64)]
        self.delays_s: list[float] = []
        self._answered = 0

    def _split_request(self, number: int) -> tuple[bytes, bytes]:
        body = (_MARK + bytes(_STAMP.size)).ljust(BODY_BYTES, b"x")
        request = encode_send(self._topic, 0, body, number)
        at = request.index(_MARK) + len(_MARK)
        return request[:at], request[at + _STAMP.size :]

    def go(self, rate: int) -> None:
        producer, consumer = self._producer, self._consumer
        consumer.socket.sendall(encode_pull(self._topic, 0, 0, _BATCH, _WAIT_MS))
        began_s = time.perf_counter() + 0.05
        number = 0
        while len(self.delays_s) < self._total or self._answered < self._total:
            now_s = time.perf_counter()
            while number < self._total and began_s + number / rate <= now_s:
                before, behind = self._requests[number % len(self._requests)]
                producer.socket.sendall(before + _STAMP.pack(time.perf_counter()) + behind)
                number += 1
            wait_s = began_s + number / rate - time.perf_counter() if number < self._total else 1.0
            readable, _, _ = select.select((producer.socket, consumer.socket), (), (), max(wait_s, 0))
            for each in readable:
                self._sent() if each is producer.socket else self._pulled()
            if now_s > began_s + PATIENCE_S:
                raise WireFailed(f"{len(self.delays_s)} of {self._total} messages arrived")

    def _sent(self) -> None:
        for fields, code, _ in self._producer.receive():
            if code != 0:
                raise WireFailed(f"a send was refused with {code}: {fields}")
            self._answered += 1

    def _pulled(self) -> None:
        for fields, code, body in self._consumer.receive():
            now_s = time.perf_counter()
            if code != 0 and code not in NOT_FOUND:
                raise WireFailed(f"a pull was refused with {code}: {fields}")
            at = body.find(_MARK)
            while at >= 0:
                self.delays_s.append(now_s - _STAMP.unpack_from(body, at + len(_MARK))[0])
                at = body.find(_MARK, at + 1)
            offset = int(fields["nextBeginOffset"])
            self._consumer.socket.sendall(encode_pull(self._topic, 0, offset, _BATCH, _WAIT_MS))


def measure(sizes: RocketMQSizes, brokers: Brokers) -> Iterator[Figure]:
    compared = brokers.both()
    found: dict[str, list[tuple[float, float, float]]] = {broker.name: [] for broker in compared}
    for _ in range(sizes.latency_rounds):
        for broker in compared:
            found[broker.name].append(run_at_rate(sizes, broker))
        compared.reverse()
    least = {name: [min(column) for column in zip(*runs, strict=True)] for name, runs in found.items()}
    (p50_ms, p99_ms, cpu_us), (peer_p50_ms, peer_p99_ms, peer_cpu_us) = least[OURS], least[ROCKETMQ]
    name = f"send to a waiting consumer at {sizes.latency_rate:,} messages/s, {brokers.flush}"
    note = f"wall clock, least of {sizes.latency_rounds}"
    yield Figure(f"{name}: p50", p50_ms, "ms", peer_p50_ms, at_most_times_floor(1.0), note, ROCKETMQ)
    yield Figure(f"{name}: p99", p99_ms, "ms", peer_p99_ms, None, note, ROCKETMQ)
    yield Figure(f"{name}: CPU", cpu_us, "us/message", peer_cpu_us, None, "of the broker, least", ROCKETMQ)


def run_at_rate(sizes: RocketMQSizes, broker: Broker) -> tuple[float, float, float]:
    """Returns p50 and p99 in milliseconds, and the CPU time of the broker per message in microseconds."""
    total = int(sizes.latency_rate * sizes.latency_seconds)
    with topic_on(broker, 1) as topic, Client(broker.address) as one, Client(broker.address) as other:
        run = _Run(topic, one, other, total)
        used_s = cpu_s(broker.pid)
        run.go(sizes.latency_rate)
        used_s = cpu_s(broker.pid) - used_s
    warmed = run.delays_s[total // 5 :]
    cuts = statistics.quantiles(warmed, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3, used_s / total * 1e6
