"""How soon each broker acknowledges its first message, and what memory it takes up: idle, with many topics, and with
many messages that are not due yet; and how late those come when they all fall due together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.comparison import OURS
from bench.figures import Figure, at_most, at_most_times_floor
from bench.lanes import WireFailed, drive
from bench.processes import ChildFailed, cpu_s, resident_mb
from bench.rocketmq_sides import ROCKETMQ, Side, Start, start_ours, start_rocketmq, topic_on
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_wire import Client, SendLane, encode_lanes, encode_send
from bench.running import Steps

PATIENCE_S = 120
BODY_BYTES = 100
FLUSH = "async"
TOPICS_AT_ONCE = 100
QUEUES_EACH = 4
SENDERS = 4
DEPTH = 64
_LOOK_S = 0.05


def measure(
    sizes: RocketMQSizes, folder: Path, steps: Steps, names: set[str], start_peer: Start = start_rocketmq
) -> Iterator[Figure]:
    """`names` are "footprint" and "delayed", or one of them."""
    starts: dict[str, Start] = {OURS: start_ours, ROCKETMQ: start_peer}
    if "footprint" in names:
        yield from _footprint(sizes, folder, steps, starts)
    if "delayed" in names:
        yield from _delayed(sizes, folder, steps, starts)


def _resident_mb(side: Side) -> float:
    return sum(resident_mb(pid) for pid in (side.pid, *side.others))


def _footprint(sizes: RocketMQSizes, folder: Path, steps: Steps, starts: dict[str, Start]) -> Iterator[Figure]:
    first_s: dict[str, list[float]] = {name: [] for name in starts}
    idle_mb, many_mb, made_us = dict[str, float](), dict[str, float](), dict[str, float]()
    for number in range(sizes.starts):
        for name, start in starts.items():
            with start(folder / "start", FLUSH) as (side, started_s):
                _await_first(side)
                first_s[name].append(time.perf_counter() - started_s)
                if number == sizes.starts - 1:
                    time.sleep(sizes.settle_seconds)
                    idle_mb[name] = _resident_mb(side)
                    made_us[name] = _make_topics(sizes, side, steps)
                    time.sleep(sizes.settle_seconds)
                    many_mb[name] = _resident_mb(side)
    middle = {name: statistics.median(own) for name, own in first_s.items()}
    note = f"wall clock from the start of the first process, median of {sizes.starts}; RocketMQ: name server, broker "
    note += "and proxy, which take no time to fetch"
    goal = at_most_times_floor(0.1)
    yield Figure("start to first acknowledged message", middle[OURS], "s", middle[ROCKETMQ], goal, note, ROCKETMQ)
    note = "after the first message, gRPC served; RocketMQ: both processes"
    yield Figure("RSS idle", idle_mb[OURS], "MB", idle_mb[ROCKETMQ], at_most(90), note, ROCKETMQ)
    name = f"{sizes.topics:,} topics of {QUEUES_EACH} queues"
    yield Figure(f"{name}: RSS", many_mb[OURS], "MB", many_mb[ROCKETMQ], None, "nothing was sent to them", ROCKETMQ)
    note = f"CPU of the broker; {TOPICS_AT_ONCE} in a request where it can do that"
    yield Figure(f"{name}: make", made_us[OURS], "us/topic", made_us[ROCKETMQ], None, note, ROCKETMQ)


def _await_first(side: Side) -> None:
    until_s = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < until_s:
        try:
            with Client(side.address) as client:
                client.done(encode_send("first", 0, b"x", 0))
                return
        except (OSError, WireFailed):
            time.sleep(0.005)
    raise ChildFailed(f"{side.name} acknowledged nothing within {PATIENCE_S} s")


def _make_topics(sizes: RocketMQSizes, side: Side, steps: Steps) -> float:
    """What each costs the broker, in microseconds."""
    used_s = cpu_s(side.pid)
    with Client(side.address) as client:
        for number in range(0, sizes.topics, TOPICS_AT_ONCE):
            steps.tell(f"{side.name}: {sizes.topics:,} topics", number, sizes.topics)
            last = min(number + TOPICS_AT_ONCE, sizes.topics)
            client.create_topics([f"many-{each}" for each in range(number, last)], QUEUES_EACH)
    steps.tell("", sizes.topics, sizes.topics)
    return (cpu_s(side.pid) - used_s) / sizes.topics * 1e6


# -- messages that wait


@dataclass(frozen=True, slots=True)
class Waited:
    """What was seen of one broker."""

    send_us: float
    resident: float
    middle_late_s: float
    last_late_s: float
    due_us: float


def _delayed(sizes: RocketMQSizes, folder: Path, steps: Steps, starts: dict[str, Start]) -> Iterator[Figure]:
    seen = {}
    for name, start in starts.items():
        with start(folder / "delayed", FLUSH) as (side, _):
            _await_first(side)
            seen[name] = delay_many(sizes, side, steps)
    ours, peer = seen[OURS], seen[ROCKETMQ]
    name = f"{sizes.delayed:,} messages of {BODY_BYTES} B that wait for one time"
    yield Figure(f"{name}: send", ours.send_us, "us/message", peer.send_us, None, "CPU of the broker", ROCKETMQ)
    yield Figure(f"{name}: RSS", ours.resident, "MB", peer.resident, None, "none is due yet", ROCKETMQ)
    note = "wall clock, behind the time they were to come at"
    yield Figure(f"{name}: half are there", ours.middle_late_s, "s", peer.middle_late_s, None, note, ROCKETMQ)
    yield Figure(f"{name}: all are there", ours.last_late_s, "s", peer.last_late_s, None, note, ROCKETMQ)
    note = "CPU of the broker from that time on"
    yield Figure(f"{name}: when due", ours.due_us, "us/message", peer.due_us, None, note, ROCKETMQ)


def delay_many(sizes: RocketMQSizes, side: Side, steps: Steps) -> Waited:
    count = sizes.delayed // SENDERS * SENDERS
    with topic_on(side, SENDERS) as topic:
        per_s = _rate(sizes, side, topic, max(count // 100, SENDERS), steps)
        begins = _ends(side, topic)
        due_s = time.time() + count / per_s * 2 + sizes.spare_seconds
        used_s = cpu_s(side.pid)
        _send_delayed(side, topic, count, int(due_s * 1000), steps)
        send_us = (cpu_s(side.pid) - used_s) / count * 1e6
        if time.time() > due_s:
            raise ChildFailed(f"{side.name} took longer to be sent {count:,} messages than they were to wait")
        time.sleep(min(sizes.settle_seconds, max(due_s - time.time(), 0)))
        resident = _resident_mb(side)
        time.sleep(max(due_s - time.time(), 0))
        used_s = cpu_s(side.pid)
        middle_s, last_s = _await_all(side, topic, sum(begins) + count, count, due_s, steps)
        return Waited(send_us, resident, middle_s, last_s, (cpu_s(side.pid) - used_s) / count * 1e6)


def _rate(sizes: RocketMQSizes, side: Side, topic: str, count: int, steps: Steps) -> float:
    """Messages a second that are taken to wait. They have come when this ends."""
    before = sum(_ends(side, topic))
    began_s, due_s = time.perf_counter(), time.time() + sizes.spare_seconds
    requests = _encode_delayed(topic, int(due_s * 1000))
    sent = drive([SendLane(side.address, own, DEPTH) for own in requests], count, PATIENCE_S)
    per_s = sent / (time.perf_counter() - began_s)
    _await_all(side, topic, before + sent, sent, due_s, steps)
    return per_s


def _encode_delayed(topic: str, due_ms: int) -> list[list[bytes]]:
    return encode_lanes(topic, SENDERS, SENDERS, BODY_BYTES, {"TIMER_DELIVER_MS": due_ms})


def _send_delayed(side: Side, topic: str, count: int, due_ms: int, steps: Steps) -> None:
    requests = _encode_delayed(topic, due_ms)
    parts = max(count // 50_000, 1)
    for part in range(parts):
        steps.tell(f"{side.name}: {count:,} delayed messages", part, parts)
        own = count * (part + 1) // parts - count * part // parts
        lanes = [SendLane(side.address, each, DEPTH) for each in requests]
        if (sent := drive(lanes, own, PATIENCE_S * 10)) < own:
            raise ChildFailed(f"{side.name} took {sent:,} of {own:,} delayed messages")
    steps.tell("", parts, parts)


def _ends(side: Side, topic: str) -> list[int]:
    with Client(side.address) as client:
        return [client.end(topic, queue) for queue in range(SENDERS)]


def _await_all(side: Side, topic: str, end: int, count: int, due_s: float, steps: Steps) -> tuple[float, float]:
    """How late half of them were there, and all."""
    middle_s = None
    seen, moved_s = 0, time.time()
    while True:
        found = sum(_ends(side, topic))
        now_s = time.time()
        if middle_s is None and found >= end - count // 2:
            middle_s = now_s - due_s
        if found >= end:
            assert middle_s is not None
            return middle_s, now_s - due_s
        if found > seen:
            seen, moved_s = found, now_s
        elif now_s > max(moved_s, due_s) + PATIENCE_S:
            raise ChildFailed(f"{side.name} has let {count - (end - found):,} of {count:,} delayed messages go")
        steps.tell(f"{side.name}: {count:,} messages are due", count - (end - found), count)
        time.sleep(_LOOK_S)
