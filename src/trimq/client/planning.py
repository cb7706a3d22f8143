"""Capacity planning: how many threads and machines a load needs, from measured times of the handler.

Per message, a worker uses the processor for T1 and waits (for a database, another service) for T2. On C cores
C * (T1 + T2) / T1 threads keep all cores busy; further threads only wait for a core. One machine then processes C / T1
messages per second, and a peak load needs peak / (rate of one machine) machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from trimq.clock import monotonic_seconds, thread_cpu_seconds


class Capacity(NamedTuple):
    cores: int
    busy_ms: float
    waiting_ms: float
    threads: int
    node_rate: float
    peak_rate: float
    nodes: int


class Times(NamedTuple):
    """Time of one message in milliseconds: on the processor (T1), and waiting (T2)."""

    busy_ms: float
    waiting_ms: float


def capacity(cores: int, busy_ms: float, waiting_ms: float, peak_rate: float, node_rate: float = 0.0) -> Capacity:
    """`node_rate` is the measured rate of one machine in messages per second; 0 means the rate its cores allow."""
    if cores < 1 or busy_ms <= 0 or waiting_ms < 0 or peak_rate < 0 or node_rate < 0:
        raise ValueError("capacity: cores must be at least 1, the busy time above 0, and no other figure negative")
    threads = math.ceil(cores * (busy_ms + waiting_ms) / busy_ms)
    rate = node_rate or cores * 1000 / busy_ms
    return Capacity(cores, busy_ms, waiting_ms, threads, rate, peak_rate, max(math.ceil(peak_rate / rate), 1))


def seconds_to_drain(backlog: int, drain_rate: float, arrival_rate: float) -> float | None:
    """Returns None if the backlog never drains."""
    if not backlog:
        return 0.0
    surplus = drain_rate - arrival_rate
    return backlog / surplus if surplus > 0 else None


def measure(handler: Callable[[Any], object], messages: Iterable[Any]) -> Times:
    """Calls a blocking handler for each message, one after the other in this thread, and returns the mean times of one
    message."""
    began, busy_began, count = monotonic_seconds(), thread_cpu_seconds(), 0
    for message in messages:
        handler(message)
        count += 1
    if not count:
        raise ValueError("measure: there is no message to handle")
    busy_ms = (thread_cpu_seconds() - busy_began) * 1000 / count
    return Times(busy_ms, max((monotonic_seconds() - began) * 1000 / count - busy_ms, 0.0))
