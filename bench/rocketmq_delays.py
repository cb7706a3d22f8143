"""Delayed messages: CPU time and memory while they wait, and their lateness when all fall due together. Each broker has
a time limit; its values are printed as soon as they are known, and stay if the other broker fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.comparison import OURS
from bench.figures import Figure
from bench.lanes import WireFailed, drive
from bench.processes import ChildFailed, cpu_s
from bench.rocketmq_sides import ROCKETMQ, Side, Start, await_first, resident_of, start_ours, start_rocketmq, topic_on
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_wire import Client, KeyedLane, encode_lanes
from bench.running import Steps

BODY_BYTES = 100
FLUSH = "async"
SENDERS = 4
DEPTH = 64
_PART, _MANY = 50_000, 10**9
_WARMING_PARTS = 3
# A small request at this interval shows for how long the broker does not respond.
_LOOK_S = 0.01


@dataclass(slots=True)
class Waited:
    """Measurements of one broker; None if it did not get that far. `failure` is the reason."""

    send_us: float | None = None
    resident: float | None = None
    middle_late_s: float | None = None
    last_late_s: float | None = None
    due_us: float | None = None
    longest_ms: float | None = None
    failure: str = ""

    def told(self) -> str:
        values = {
            "send": (self.send_us, "us/message"),
            "RSS": (self.resident, "MB"),
            "half are there": (self.middle_late_s, "s"),
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
        steps.say(f"{sizes.delayed:,} delayed messages, {name}: {seen[name].told()}")
    yield from _figures(sizes, seen[OURS], seen[ROCKETMQ])


def _measure_side(sizes: RocketMQSizes, folder: Path, steps: Steps, start: Start) -> Waited:
    waited = Waited()
    try:
        with start(folder / "delayed", FLUSH) as (side, _):
            await_first(side)
            delay_many(sizes, side, steps, waited)
    except (ChildFailed, WireFailed, OSError) as error:
        waited.failure = f"{type(error).__name__}: {error}"
    return waited


def _figures(sizes: RocketMQSizes, ours: Waited, peer: Waited) -> Iterator[Figure]:
    name = f"{sizes.delayed:,} messages of {BODY_BYTES} B that wait for one time"
    late = "wall clock, behind the time they were to come at"
    rows = (
        ("send", ours.send_us, "us/message", peer.send_us, "CPU of the broker"),
        ("RSS", ours.resident, "MB", peer.resident, "none is due yet"),
        ("half are there", ours.middle_late_s, "s", peer.middle_late_s, late),
        ("all are there", ours.last_late_s, "s", peer.last_late_s, late),
        ("when due", ours.due_us, "us/message", peer.due_us, "CPU of the broker from that time on"),
        ("longest answer", ours.longest_ms, "ms", peer.longest_ms, "to another client while they come"),
    )
    for what, value, unit, floor, note in rows:
        if value is not None:
            told = note if floor is not None or not peer.failure else f"{note}; RocketMQ failed: {peer.failure}"
            yield Figure(f"{name}: {what}", value, unit, floor, None, told, ROCKETMQ)


def delay_many(sizes: RocketMQSizes, side: Side, steps: Steps, waited: Waited) -> None:
    until_s = time.time() + sizes.delayed_seconds
    with topic_on(side, SENDERS) as topic:
        sending = _Sending(side, topic)
        per_s = _rate(sizes, sending, steps, until_s)
        ahead_s = sizes.delayed / per_s * 1.3 + sizes.spare_seconds
        begin, count, due_s = _send_ahead(sizes, sending, steps, waited, ahead_s, until_s)
        time.sleep(min(sizes.settle_seconds, max(due_s - time.time(), 0)))
        waited.resident = resident_of(side)
        time.sleep(max(due_s - time.time(), 0))
        used_s = cpu_s(side.pid)
        _await_all(side, topic, begin + count, count, due_s, steps, waited, until_s)
        waited.due_us = (cpu_s(side.pid) - used_s) / count * 1e6


def _send_ahead(
    sizes: RocketMQSizes, sending: _Sending, steps: Steps, waited: Waited, ahead_s: float, until_s: float
) -> tuple[int, int, float]:
    """Returns the sum of the queue ends before, the number of messages sent, and their due time, which must be after
    the last send. If sending took longer, on a busy machine, sends them again with twice the time."""
    side, topic = sending.side, sending.topic
    while True:
        begin, began_s = sum(_ends(side, topic)), time.time()
        due_s, used_s = began_s + ahead_s, cpu_s(side.pid)
        count = sending.send(sizes.delayed, int(due_s * 1000), steps, until_s)
        if time.time() < due_s:
            waited.send_us = (cpu_s(side.pid) - used_s) / count * 1e6
            return begin, count, due_s
        ahead_s = 2 * (time.time() - began_s)
        _await_all(side, topic, begin + count, count, due_s, steps, Waited(), until_s)


def _rate(sizes: RocketMQSizes, sending: _Sending, steps: Steps, until_s: float) -> float:
    """Returns the rate in messages a second at which a warmed-up broker accepts delayed messages: the JIT compiler of a
    JVM makes it several times as fast, TriMQ has none. All messages are delivered on return."""
    side, topic = sending.side, sending.topic
    part_s = sizes.spare_seconds / (10 if side.name == OURS else 1) / _WARMING_PARTS
    begin, due_s = sum(_ends(side, topic)), time.time() + 2 * sizes.spare_seconds
    requests, count, per_s = sending.requests(int(due_s * 1000)), 0, 0.0
    for _ in range(_WARMING_PARTS):
        began_s = time.perf_counter()
        taken = sending.send_some(requests, _MANY, part_s)
        per_s = max(taken, 1) / (time.perf_counter() - began_s)
        count += taken
    _await_all(side, topic, begin + count, count, due_s, steps, Waited(), until_s)
    return per_s


class _Sending:
    """Sends delayed messages to one topic. No key is used twice: a broker looks up messages by their keys."""

    def __init__(self, side: Side, topic: str) -> None:
        self.side = side
        self.topic = topic
        self._rounds = 0

    def requests(self, due_ms: int) -> list[list[bytes]]:
        return encode_lanes(self.topic, SENDERS, SENDERS, BODY_BYTES, {"TIMER_DELIVER_MS": due_ms})

    def send_some(self, requests: list[list[bytes]], count: int, seconds: float) -> int:
        """Sends `count` messages, or for `seconds`. Returns the number of accepted messages: may be a few more than
        `count`, and excludes those refused because the broker was busy."""
        depth = min(DEPTH, max(count // SENDERS, 1))
        lanes = [KeyedLane(self.side.address, own, depth, self._rounds) for own in requests]
        answered = drive(lanes, count, seconds)
        self._rounds = max(lane.rounds for lane in lanes)
        return answered - sum(lane.busy for lane in lanes)

    def send(self, count: int, due_ms: int, steps: Steps, until_s: float) -> int:
        """Returns the number of accepted messages, at least `count`. Fails after `until_s`."""
        requests, taken = self.requests(due_ms), 0
        while taken < count:
            steps.tell(f"{self.side.name}: {count:,} delayed messages", taken, count)
            taken += self.send_some(requests, min(count - taken, _PART), max(until_s - time.time(), 0))
            if time.time() > until_s:
                raise ChildFailed(f"it took {taken:,} of {count:,} delayed messages in the time that there was")
        steps.tell("", 1, 1)
        return taken


def _ends(side: Side, topic: str) -> list[int]:
    with Client(side.address) as client:
        return [client.end(topic, queue) for queue in range(SENDERS)]


def _await_all(
    side: Side, topic: str, end: int, count: int, due_s: float, steps: Steps, waited: Waited, until_s: float
) -> None:
    """Waits until all messages are delivered. Records the lateness of half of them and of all, and the longest response
    time of another client meanwhile."""
    longest_s, found = 0.0, 0
    try:
        with Client(side.address) as client:
            while True:
                found = 0
                for queue in range(SENDERS):
                    asked_s = time.perf_counter()
                    found += client.end(topic, queue)
                    longest_s = max(longest_s, time.perf_counter() - asked_s)
                now_s = time.time()
                waited.longest_ms = longest_s * 1000
                if waited.middle_late_s is None and found >= end - count // 2:
                    waited.middle_late_s = now_s - due_s
                if found >= end:
                    waited.last_late_s = now_s - due_s
                    return
                if now_s > until_s:
                    raise ChildFailed("the time that a side has is over")
                steps.tell(f"{side.name}: {count:,} messages are due", count - (end - found), count)
                time.sleep(_LOOK_S)
    except (ChildFailed, WireFailed, OSError) as error:
        came = f"{count - (end - found):,} of {count:,} had come {time.time() - due_s:.0f} s after they were due"
        raise ChildFailed(f"{came}: {type(error).__name__}: {error}") from error
