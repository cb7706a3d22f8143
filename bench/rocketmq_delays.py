"""Delayed messages: CPU time and memory while they wait, and their lateness when all fall due together. Each broker has
a time limit; its values are printed as soon as they are known, and stay if the other broker fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.comparison import OURS
from bench.figures import Figure
from bench.pipelined_load import WireFailed, drive
from bench.processes import ChildFailed, cpu_s
from bench.rocketmq_brokers import (
    ROCKETMQ,
    Broker,
    Start,
    await_first,
    resident_of,
    start_ours,
    start_rocketmq,
    topic_on,
)
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_wire import Client, UniqueKeyPipeline, encode_pipelines
from bench.runner import Steps

BODY_BYTES = 100
FLUSH = "async"
SENDERS = 4
DEPTH = 64
_PART, _MANY = 50_000, 10**9
_WARMING_PARTS = 3
# A small request at this interval shows for how long the broker does not respond.
_POLL_S = 0.01


@dataclass(slots=True)
class DelayMeasurement:
    """Measurements of one broker; None if it did not get that far. `failure` is the reason."""

    send_us: float | None = None
    resident: float | None = None
    half_late_s: float | None = None
    last_late_s: float | None = None
    due_us: float | None = None
    longest_ms: float | None = None
    failure: str = ""

    def summary(self) -> str:
        values = {
            "send": (self.send_us, "us/message"),
            "RSS": (self.resident, "MB"),
            "half are there": (self.half_late_s, "s"),
            "all are there": (self.last_late_s, "s"),
            "when due": (self.due_us, "us/message"),
            "longest answer meanwhile": (self.longest_ms, "ms"),
        }
        seen = [f"{name} {value:.4g} {unit}" for name, (value, unit) in values.items() if value is not None]
        return "; ".join([*seen, f"FAILED: {self.failure}"] if self.failure else seen)


def measure(sizes: RocketMQSizes, folder: Path, steps: Steps, start_peer: Start = start_rocketmq) -> Iterator[Figure]:
    starts: dict[str, Start] = {OURS: start_ours, ROCKETMQ: start_peer}
    seen = {}
    for name, start in starts.items():
        seen[name] = _measure_side(sizes, folder, steps, start)
        steps.print_line(f"{sizes.delayed:,} delayed messages, {name}: {seen[name].summary()}")
    yield from _figures(sizes, seen[OURS], seen[ROCKETMQ])


def _measure_side(sizes: RocketMQSizes, folder: Path, steps: Steps, start: Start) -> DelayMeasurement:
    measured = DelayMeasurement()
    try:
        with start(folder / "delayed", FLUSH) as (broker, _):
            await_first(broker)
            delay_many(sizes, broker, steps, measured)
    except (ChildFailed, WireFailed, OSError) as error:
        measured.failure = f"{type(error).__name__}: {error}"
    return measured


def _figures(sizes: RocketMQSizes, ours: DelayMeasurement, peer: DelayMeasurement) -> Iterator[Figure]:
    name = f"{sizes.delayed:,} messages of {BODY_BYTES} B that wait for one time"
    late = "wall clock, after the due time"
    rows = (
        ("send", ours.send_us, "us/message", peer.send_us, "CPU of the broker"),
        ("RSS", ours.resident, "MB", peer.resident, "none is due yet"),
        ("half are there", ours.half_late_s, "s", peer.half_late_s, late),
        ("all are there", ours.last_late_s, "s", peer.last_late_s, late),
        ("when due", ours.due_us, "us/message", peer.due_us, "CPU of the broker from that time on"),
        ("longest answer", ours.longest_ms, "ms", peer.longest_ms, "to another client meanwhile"),
    )
    for kind, value, unit, floor, note in rows:
        if value is not None:
            full_note = note if floor is not None or not peer.failure else f"{note}; RocketMQ failed: {peer.failure}"
            yield Figure(f"{name}: {kind}", value, unit, floor, None, full_note, ROCKETMQ)


def delay_many(sizes: RocketMQSizes, broker: Broker, steps: Steps, measured: DelayMeasurement) -> None:
    until_s = time.time() + sizes.delayed_seconds
    with topic_on(broker, SENDERS) as topic:
        sender = _DelayedSender(broker, topic)
        per_s = _rate(sizes, sender, steps, until_s)
        ahead_s = sizes.delayed / per_s * 1.3 + sizes.spare_seconds
        begin, count, due_s = _send_ahead(sizes, sender, steps, measured, ahead_s, until_s)
        time.sleep(min(sizes.settle_seconds, max(due_s - time.time(), 0)))
        measured.resident = resident_of(broker)
        time.sleep(max(due_s - time.time(), 0))
        used_s = cpu_s(broker.pid)
        _await_all(broker, topic, begin + count, count, due_s, steps, measured, until_s)
        measured.due_us = (cpu_s(broker.pid) - used_s) / count * 1e6


def _send_ahead(
    sizes: RocketMQSizes,
    sender: _DelayedSender,
    steps: Steps,
    measured: DelayMeasurement,
    ahead_s: float,
    until_s: float,
) -> tuple[int, int, float]:
    """Returns the sum of the queue ends before, the number of messages sent, and their due time, which must be after
    the last send. If sending took longer, on a busy machine, sends them again with twice the time."""
    broker, topic = sender.broker, sender.topic
    while True:
        begin, began_s = sum(_ends(broker, topic)), time.time()
        due_s, used_s = began_s + ahead_s, cpu_s(broker.pid)
        count = sender.send(sizes.delayed, int(due_s * 1000), steps, until_s)
        if time.time() < due_s:
            measured.send_us = (cpu_s(broker.pid) - used_s) / count * 1e6
            return begin, count, due_s
        ahead_s = 2 * (time.time() - began_s)
        _await_all(broker, topic, begin + count, count, due_s, steps, DelayMeasurement(), until_s)


def _rate(sizes: RocketMQSizes, sender: _DelayedSender, steps: Steps, until_s: float) -> float:
    """Returns the rate in messages a second at which a warmed-up broker accepts delayed messages: the JIT compiler of a
    JVM makes it several times as fast, TriMQ has none. All messages are delivered on return."""
    broker, topic = sender.broker, sender.topic
    part_s = sizes.spare_seconds / (10 if broker.name == OURS else 1) / _WARMING_PARTS
    begin, due_s = sum(_ends(broker, topic)), time.time() + 2 * sizes.spare_seconds
    requests, count, per_s = sender.requests(int(due_s * 1000)), 0, 0.0
    for _ in range(_WARMING_PARTS):
        began_s = time.perf_counter()
        taken = sender.send_some(requests, _MANY, part_s)
        per_s = max(taken, 1) / (time.perf_counter() - began_s)
        count += taken
    _await_all(broker, topic, begin + count, count, due_s, steps, DelayMeasurement(), until_s)
    return per_s


class _DelayedSender:
    """Sends delayed messages to one topic. No key is used twice: a broker looks up messages by their keys."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self._rounds = 0

    def requests(self, due_ms: int) -> list[list[bytes]]:
        return encode_pipelines(self.topic, SENDERS, SENDERS, BODY_BYTES, {"TIMER_DELIVER_MS": due_ms})

    def send_some(self, requests: list[list[bytes]], count: int, seconds: float) -> int:
        """Sends `count` messages, or for `seconds`. Returns the number of accepted messages: may be a few more than
        `count`, and excludes those refused because the broker was busy."""
        depth = min(DEPTH, max(count // SENDERS, 1))
        pipelines = [UniqueKeyPipeline(self.broker.address, own, depth, self._rounds) for own in requests]
        answered = drive(pipelines, count, seconds)
        self._rounds = max(pipeline.rounds for pipeline in pipelines)
        return answered - sum(pipeline.busy for pipeline in pipelines)

    def send(self, count: int, due_ms: int, steps: Steps, until_s: float) -> int:
        """Returns the number of accepted messages, at least `count`. Fails after `until_s`."""
        requests, taken = self.requests(due_ms), 0
        while taken < count:
            steps.show(f"{self.broker.name}: {count:,} delayed messages", taken, count)
            taken += self.send_some(requests, min(count - taken, _PART), max(until_s - time.time(), 0))
            if time.time() > until_s:
                raise ChildFailed(f"the broker accepted {taken:,} of {count:,} delayed messages within its time limit")
        steps.show("", 1, 1)
        return taken


def _ends(broker: Broker, topic: str) -> list[int]:
    with Client(broker.address) as client:
        return [client.end(topic, queue) for queue in range(SENDERS)]


def _await_all(
    broker: Broker,
    topic: str,
    end: int,
    count: int,
    due_s: float,
    steps: Steps,
    measured: DelayMeasurement,
    until_s: float,
) -> None:
    """Waits until all messages are delivered. Records the lateness of half of them and of all, and the longest response
    time of another client meanwhile."""
    longest_s, found = 0.0, 0
    try:
        with Client(broker.address) as client:
            while True:
                found = 0
                for queue in range(SENDERS):
                    asked_s = time.perf_counter()
                    found += client.end(topic, queue)
                    longest_s = max(longest_s, time.perf_counter() - asked_s)
                now_s = time.time()
                measured.longest_ms = longest_s * 1000
                if measured.half_late_s is None and found >= end - count // 2:
                    measured.half_late_s = now_s - due_s
                if found >= end:
                    measured.last_late_s = now_s - due_s
                    return
                if now_s > until_s:
                    raise ChildFailed("the time limit of the broker is reached")
                steps.show(f"{broker.name}: {count:,} messages are due", count - (end - found), count)
                time.sleep(_POLL_S)
    except (ChildFailed, WireFailed, OSError) as error:
        came = f"{count - (end - found):,} of {count:,} were delivered {time.time() - due_s:.0f} s after the due time"
        raise ChildFailed(f"{came}: {type(error).__name__}: {error}") from error
