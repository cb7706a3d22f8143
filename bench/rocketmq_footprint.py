"""Footprint of TriMQ and Apache RocketMQ: time from start to the first acknowledged message, and memory when idle and
with many topics."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.comparison import OURS
from bench.figures import Figure, at_most, at_most_times_floor
from bench.processes import cpu_s
from bench.rocketmq_brokers import ROCKETMQ, Broker, Start, await_first, resident_of, start_ours, start_rocketmq
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_wire import Client
from bench.runner import Steps

FLUSH = "async"
TOPICS_AT_ONCE = 100
QUEUES_EACH = 4


def measure(sizes: RocketMQSizes, folder: Path, steps: Steps, start_peer: Start = start_rocketmq) -> Iterator[Figure]:
    starts: dict[str, Start] = {OURS: start_ours, ROCKETMQ: start_peer}
    first_s: dict[str, list[float]] = {name: [] for name in starts}
    idle_mb, many_mb, made_us = dict[str, float](), dict[str, float](), dict[str, float]()
    with starts[OURS](folder / "start", FLUSH):
        pass  # compiles the modules, as in an installed broker, before the first measured start
    for number in range(sizes.starts):
        for name, start in starts.items():
            with start(folder / "start", FLUSH) as (broker, started_s):
                await_first(broker)
                first_s[name].append(time.perf_counter() - started_s)
                if number == sizes.starts - 1:
                    time.sleep(sizes.settle_seconds)
                    idle_mb[name] = resident_of(broker)
                    made_us[name] = _make_topics(sizes, broker, steps)
                    time.sleep(sizes.settle_seconds)
                    many_mb[name] = resident_of(broker)
    medians = {name: statistics.median(own) for name, own in first_s.items()}
    note = f"wall clock from the start of the first process, median of {sizes.starts}; RocketMQ: name server, broker "
    note += "and proxy, without the download"
    goal = at_most_times_floor(0.1)
    yield Figure("start to first acknowledged message", medians[OURS], "s", medians[ROCKETMQ], goal, note, ROCKETMQ)
    note = "after the first message, gRPC served; RocketMQ: both processes"
    yield Figure("RSS idle", idle_mb[OURS], "MB", idle_mb[ROCKETMQ], at_most(90), note, ROCKETMQ)
    name = f"{sizes.topics:,} topics of {QUEUES_EACH} queues"
    yield Figure(f"{name}: RSS", many_mb[OURS], "MB", many_mb[ROCKETMQ], None, "nothing was sent to them", ROCKETMQ)
    note = f"CPU of the broker; {TOPICS_AT_ONCE} in a request if supported"
    yield Figure(f"{name}: make", made_us[OURS], "us/topic", made_us[ROCKETMQ], None, note, ROCKETMQ)


def _make_topics(sizes: RocketMQSizes, broker: Broker, steps: Steps) -> float:
    """Returns the CPU time of the broker per topic in microseconds."""
    used_s = cpu_s(broker.pid)
    with Client(broker.address) as client:
        for number in range(0, sizes.topics, TOPICS_AT_ONCE):
            steps.show(f"{broker.name}: {sizes.topics:,} topics", number, sizes.topics)
            last = min(number + TOPICS_AT_ONCE, sizes.topics)
            client.create_topics([f"many-{each}" for each in range(number, last)], QUEUES_EACH)
    steps.show("", sizes.topics, sizes.topics)
    return (cpu_s(broker.pid) - used_s) / sizes.topics * 1e6
