"""How many threads and machines a load needs. Arithmetic only.

A worker is busy on the processor for T1 and waits (for a database, another service) for T2 per message. On C cores
C * (T1 + T2) / T1 threads keep all cores busy; more of them only wait for a core. One machine then takes C / T1
messages a second, and a peak needs peak / (rate of one machine) of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimq.errors import StartupError


class Capacity(NamedTuple):
    cores: int
    busy_ms: float
    waiting_ms: float
    threads: int
    node_rate: float
    peak_rate: float
    nodes: int


def capacity(cores: int, busy_ms: float, waiting_ms: float, peak_rate: float, node_rate: float = 0.0) -> Capacity:
    """`node_rate`: what one machine was measured to do, per second; 0: what its cores allow."""
    if cores < 1 or busy_ms <= 0 or waiting_ms < 0 or peak_rate < 0 or node_rate < 0:
        raise StartupError("a capacity needs a core at least, a busy time above 0, and no negative figure")
    threads = math.ceil(cores * (busy_ms + waiting_ms) / busy_ms)
    rate = node_rate or cores * 1000 / busy_ms
    return Capacity(cores, busy_ms, waiting_ms, threads, rate, peak_rate, max(math.ceil(peak_rate / rate), 1))


def seconds_to_drain(backlog: int, drain_rate: float, arrival_rate: float) -> float | None:
    """None: it never gets empty."""
    if not backlog:
        return 0.0
    surplus = drain_rate - arrival_rate
    return backlog / surplus if surplus > 0 else None
