"""Footprint of TriMQ and RabbitMQ: time from start to the first confirm, CPU of connections and queues, and memory when
idle, with a long backlog and with many queues."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.amqp_brokers import RABBITMQ, Broker, Brokers, queue_on, work_figures
from bench.amqp_load import Publisher, drive
from bench.amqp_peer import rabbitmq_in
from bench.amqp_sizes import AmqpSizes
from bench.amqp_traffic import BODIES, PREFETCHES, WINDOW, consume, fill
from bench.amqp_wire import Client, WireFailed
from bench.broker_rounds import Outcome, run_rounds, timed
from bench.comparison import OURS
from bench.figures import Figure, at_most, at_most_times_floor
from bench.processes import ChildFailed, broker_in, resident_mb
from bench.runner import Steps

PATIENCE_S = 60
PARTS = 10
"""Number of parts in which a backlog is published; the cost of a message is compared between the first and the last
part."""

Start = Callable[[Path], AbstractContextManager[tuple[Broker, float]]]
"""Starts a broker in a new folder, which is removed at the end. Returns the broker and the start time of its
process."""


@contextmanager
def start_rabbitmq(folder: Path) -> Iterator[tuple[Broker, float]]:
    with rabbitmq_in(folder) as peer:
        yield Broker(RABBITMQ, "127.0.0.1", peer.port, peer.pid), peer.started_s


@contextmanager
def start_ours(folder: Path, flush: str = "async") -> Iterator[tuple[Broker, float]]:
    try:
        with broker_in(folder, ["--amqp-listen", "127.0.0.1:0", "--flush", flush]) as broker:
            host, port = broker.addresses["amqp"].rsplit(":", 1)
            yield Broker(OURS, host, int(port), broker.pid), broker.started_s
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure_churn(sizes: AmqpSizes, brokers: Brokers) -> Iterator[Figure]:
    def work(broker: Broker) -> Outcome:
        return timed(broker, lambda: _open_and_close(broker, sizes.churned))

    results = run_rounds(brokers.both(), sizes.rounds, work)
    name = "connect, declare an exclusive queue, close"
    for figure in work_figures(name, results, has_goals=False):
        unit = figure.unit.replace("message", "connection")
        yield Figure(figure.name, figure.value, unit, figure.floor, None, figure.note, RABBITMQ)


def _open_and_close(broker: Broker, count: int) -> int:
    for _ in range(count):
        with Client(broker.address) as client:
            client.declare_exclusive()
            client.close_connection()
    return count


def measure(sizes: AmqpSizes, folder: Path, steps: Steps, start_peer: Start = start_rabbitmq) -> Iterator[Figure]:
    starts: dict[str, Start] = {OURS: start_ours, RABBITMQ: start_peer}
    first_s: dict[str, list[float]] = {name: [] for name in starts}
    idle_mb, backlog, many = dict[str, float](), dict[str, _Backlog](), dict[str, tuple[float, float]]()
    for number in range(sizes.starts):
        for name, start in starts.items():
            with start(folder / "start") as (broker, started_s):
                broker = Broker(name, broker.host, broker.port, broker.pid)
                _await_first(broker)
                first_s[name].append(time.perf_counter() - started_s)
                if number == sizes.starts - 1:
                    time.sleep(sizes.settle_seconds)
                    idle_mb[name] = resident_mb(broker.pid)
                    backlog[name] = _build_backlog(sizes, broker, steps)
                    many[name] = _declare_many(sizes, broker, steps)
    medians = {name: statistics.median(own) for name, own in first_s.items()}
    note = f"wall clock from the start of the process, median of {sizes.starts}; the folder was made before"
    yield Figure("start to first confirm", medians[OURS], "s", medians[RABBITMQ], at_most(0.5), note, RABBITMQ)
    yield Figure("RSS idle", idle_mb[OURS], "MB", idle_mb[RABBITMQ], at_most(70), "after the first message", RABBITMQ)
    yield from _backlog_figures(sizes, backlog[OURS], backlog[RABBITMQ])
    (declared_us, resident), (peer_us, peer_resident) = many[OURS], many[RABBITMQ]
    name = f"{sizes.queues:,} durable queues"
    yield Figure(f"{name}: declare", declared_us, "us/queue", peer_us, None, "CPU of the broker", RABBITMQ)
    yield Figure(f"{name}: RSS", resident, "MB", peer_resident, None, "after the backlog is gone", RABBITMQ)


def _await_first(broker: Broker) -> None:
    """Waits until a message in a durable queue is confirmed."""
    until_s = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < until_s:
        try:
            with queue_on(broker, "classic") as queue:
                fill(broker, queue, BODIES[0], 1)
                return
        except (OSError, WireFailed):
            time.sleep(0.005)
    raise ChildFailed(f"{broker.name} confirmed nothing within {PATIENCE_S} s")


class _Backlog:
    """Measurements of one broker while a queue grew and was consumed."""

    def __init__(self, first: Outcome, last: Outcome, read: Outcome, read_new: Outcome, resident: float) -> None:
        self.growth = last.cpu_us / first.cpu_us
        self.read_growth = read.cpu_us / read_new.cpu_us
        self.last_us = last.cpu_us
        self.read_us = read.cpu_us
        self.resident = resident


def _build_backlog(sizes: AmqpSizes, broker: Broker, steps: Steps) -> _Backlog:
    part = sizes.backlog // PARTS
    with queue_on(broker, "classic") as queue:
        fill(broker, queue, BODIES[0], part)
        read_new = consume(broker, queue, 1, PREFETCHES[-1], part)
    with queue_on(broker, "classic") as queue:
        outcomes = []
        for number in range(PARTS):
            steps.show(f"{broker.name}: {sizes.backlog:,} messages", number, PARTS)
            outcomes.append(timed(broker, lambda: _publish(broker, queue, part)))
        time.sleep(sizes.settle_seconds)
        resident = resident_mb(broker.pid)
        steps.show(f"{broker.name}: {sizes.backlog:,} messages", PARTS, PARTS)
        read = consume(broker, queue, 1, PREFETCHES[-1], min(part, sizes.consumed))
    return _Backlog(outcomes[0], outcomes[-1], read, read_new, resident)


def _publish(broker: Broker, queue: str, count: int) -> int:
    with Client(broker.address) as client:
        publisher = Publisher(client, queue, BODIES[0], WINDOW, count)
        drive([publisher], lambda: publisher.is_done)
    return count


def _backlog_figures(sizes: AmqpSizes, ours: _Backlog, peer: _Backlog) -> Iterator[Figure]:
    name = f"backlog of {sizes.backlog:,} x {BODIES[0]} B"
    note = f"CPU of its last tenth / of its first; {ours.last_us:.3g} us a message, RabbitMQ's {peer.last_us:.3g}"
    yield Figure(f"{name}: publish, growth", ours.growth, "x", peer.growth, at_most(1.25), note, RABBITMQ)
    note = f"CPU of reading its head / a short queue; {ours.read_us:.3g} us a message, RabbitMQ's {peer.read_us:.3g}"
    yield Figure(f"{name}: consume, growth", ours.read_growth, "x", peer.read_growth, at_most(1.25), note, RABBITMQ)
    goal = at_most_times_floor(1.0)
    yield Figure(f"{name}: RSS", ours.resident, "MB", peer.resident, goal, "all of it is queued", RABBITMQ)


def _declare_many(sizes: AmqpSizes, broker: Broker, steps: Steps) -> tuple[float, float]:
    """Returns the CPU time per queue in microseconds, and the memory afterwards."""

    def declare() -> int:
        with Client(broker.address) as client:
            for number in range(sizes.queues):
                client.declare(f"many-{number}", "classic")
                if not number % 100:
                    steps.show(f"{broker.name}: {sizes.queues:,} queues", number, sizes.queues)
        return sizes.queues

    outcome = timed(broker, declare)
    time.sleep(sizes.settle_seconds)
    return outcome.cpu_us, resident_mb(broker.pid)
