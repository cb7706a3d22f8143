"""Cost of work in this process. The work and its floor run in alternating rounds, so that other load of the machine
affects both; the least cost of the rounds counts, because every disturbance makes a round longer."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

Work = Callable[[], object]
Workload = Callable[[], AbstractContextManager[Work]]
"""Prepares a round outside the measured time, yields the work, and cleans up afterwards."""


class Cost(NamedTuple):
    """Cost of one round. `cpu_s` is the CPU time of this process in user and kernel mode, independent of other
    processes."""

    cpu_s: float
    wall_s: float


@contextmanager
def broker_gc_settings() -> Iterator[None]:
    """Sets the garbage collector as `trimq serve` does once it has started."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def cost_of(work: Work) -> Cost:
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    return Cost(time.process_time() - cpu_s, time.perf_counter() - wall_s)


def min_costs(
    workloads: Sequence[Workload], rounds: int, after_round: Callable[[], object] = lambda: None
) -> list[Cost]:
    """Returns the least cost of each workload; the order alternates between rounds. Calls `after_round` after each."""
    costs: list[list[Cost]] = [[] for _ in workloads]
    for number in range(rounds):
        order = range(len(workloads)) if number % 2 == 0 else reversed(range(len(workloads)))
        for place in order:
            with workloads[place]() as work:
                costs[place].append(cost_of(work))
        after_round()
    return [Cost(min(cost.cpu_s for cost in own), min(cost.wall_s for cost in own)) for own in costs]
