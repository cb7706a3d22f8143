"""How anything is measured: work and its floor take turns, so that a busy moment of the machine hits both, and the
least of several rounds counts, because everything that disturbs a round makes it longer."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

Work = Callable[[], object]
Contestant = Callable[[], AbstractContextManager[Work]]
"""Prepares a round outside the time that is taken, gives the work, and cleans up after it."""


class Cost(NamedTuple):
    """Of one round. `cpu_s` is that of this process with the kernel's work for it, whoever else is on the machine."""

    cpu_s: float
    wall_s: float


@contextmanager
def garbage_collected_as_in_the_broker() -> Iterator[None]:
    """With the settings that `trimq serve` makes for itself once it has started."""
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


def take_turns(
    contestants: Sequence[Contestant], rounds: int, rounded: Callable[[], object] = lambda: None
) -> list[Cost]:
    """The least cost of each contestant; the order changes from round to round. `rounded` hears of each round."""
    costs: list[list[Cost]] = [[] for _ in contestants]
    for number in range(rounds):
        order = range(len(contestants)) if number % 2 == 0 else reversed(range(len(contestants)))
        for place in order:
            with contestants[place]() as work:
                costs[place].append(cost_of(work))
        rounded()
    return [Cost(min(cost.cpu_s for cost in own), min(cost.wall_s for cost in own)) for own in costs]
