"""The compared brokers, Apache RocketMQ and TriMQ: how they are started, their topics and goals. Measures nothing."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.comparison import OURS, WorkGoals
from bench.figures import at_least_times_floor, at_most_times_floor
from bench.pipelined_load import WireFailed
from bench.processes import ChildFailed, broker_in, resident_mb
from bench.rocketmq_peer import rocketmq_in
from bench.rocketmq_wire import Client, encode_send

ROCKETMQ = "rocketmq"
TITLE = "RocketMQ"
FLUSHES = ("async", "sync")
PATIENCE_S = 120
QUEUES = 8

TWICE_THE_RATE = at_least_times_floor(2.0)
SEND_GOALS = WorkGoals(at_most_times_floor(0.35), TWICE_THE_RATE)
PULL_GOALS = WorkGoals(at_most_times_floor(1.0), TWICE_THE_RATE)
GRPC_GOALS = WorkGoals(None, TWICE_THE_RATE)

_LISTENERS = {
    "rocketmq": "--rocketmq-listen",
    "rocketmq_broker": "--rocketmq-broker-listen",
    "rocketmq_grpc": "--rocketmq-grpc-listen",
}
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker. `pid` is the measured process; `others` are further processes that belong to it."""

    name: str
    port: int
    grpc_port: int
    pid: int
    others: tuple[int, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


@dataclass(frozen=True, slots=True)
class Brokers:
    """RocketMQ and TriMQ in one flush mode."""

    flush: str
    rocketmq: Broker
    ours: Broker

    def both(self) -> list[Broker]:
        return [self.rocketmq, self.ours]


Start = Callable[[Path, str], AbstractContextManager[tuple[Broker, float]]]
"""Starts a broker with this flush mode in a new folder, which is removed at the end. Returns the broker and the start
time of its process."""


@contextmanager
def start_rocketmq(folder: Path, flush: str) -> Iterator[tuple[Broker, float]]:
    with rocketmq_in(folder, flush) as peer:
        yield Broker(ROCKETMQ, peer.port, peer.grpc_port, peer.pid, (peer.name_server_pid,)), peer.started_s


@contextmanager
def start_ours(folder: Path, flush: str) -> Iterator[tuple[Broker, float]]:
    listeners = [word for flag in _LISTENERS.values() for word in (flag, "127.0.0.1:0")]
    try:
        with broker_in(folder, [*listeners, "--flush", flush]) as broker:
            port, grpc_port = (
                int(broker.addresses[name].rsplit(":", 1)[1]) for name in ("rocketmq_broker", "rocketmq_grpc")
            )
            yield Broker(OURS, port, grpc_port, broker.pid), broker.started_s
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def topic_on(broker: Broker, queues: int = QUEUES) -> Iterator[str]:
    """Creates a topic and deletes it at the end."""
    name = f"bench-{next(_numbers):06}-{time.time_ns() % 10**6:06}"
    with Client(broker.address) as client:
        client.create_topic(name, queues)
    yield name
    # Uses a new connection: Apache RocketMQ closes one that was idle for two minutes.
    with Client(broker.address) as client:
        client.delete_topic(name)


def await_first(broker: Broker) -> None:
    """Waits until the broker has acknowledged a message."""
    until_s = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < until_s:
        try:
            with Client(broker.address) as client:
                client.done(encode_send("first", 0, b"x", 0))
                return
        except (OSError, WireFailed):
            time.sleep(0.005)
    raise ChildFailed(f"{broker.name} acknowledged nothing within {PATIENCE_S} s")


def resident_of(broker: Broker) -> float:
    """Returns the resident memory of all its processes in MB."""
    return sum(resident_mb(pid) for pid in (broker.pid, *broker.others))
