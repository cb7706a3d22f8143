"""Comparison of running brokers: each does the same work in alternating rounds, so that other load of the machine
affects all, and the best round of each counts. Knows no protocol."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bench.processes import cpu_s


class MeasuredBroker(Protocol):
    """A running broker."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int: ...


C = TypeVar("C", bound=MeasuredBroker)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measurement of one round of one broker."""

    units: int
    cpu_s: float
    wall_s: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.units * 1e6

    @property
    def rate(self) -> float:
        return self.units / self.wall_s


def timed(broker: MeasuredBroker, work: Callable[[], int]) -> Outcome:
    """Measures the CPU time of the broker for `work`, which returns its number of units."""
    wall_s, used_s = time.perf_counter(), cpu_s(broker.pid)
    units = work()
    return Outcome(units, cpu_s(broker.pid) - used_s, time.perf_counter() - wall_s)


@dataclass(frozen=True, slots=True)
class Result:
    """Measurements of all rounds of one broker. The least CPU time and the best rate count, since every disturbance
    makes them worse; the medians show the amount of disturbance."""

    outcomes: Sequence[Outcome]

    @property
    def cpu_us(self) -> float:
        return min(outcome.cpu_us for outcome in self.outcomes)

    @property
    def rate(self) -> float:
        return max(outcome.rate for outcome in self.outcomes)

    @property
    def median_cpu_us(self) -> float:
        return statistics.median(outcome.cpu_us for outcome in self.outcomes)

    @property
    def median_rate(self) -> float:
        return statistics.median(outcome.rate for outcome in self.outcomes)


def run_rounds(brokers: Sequence[C], rounds: int, work: Callable[[C], Outcome]) -> dict[str, Result]:
    """Returns the results by name of the broker. The order rotates between rounds."""
    outcomes: dict[str, list[Outcome]] = {broker.name: [] for broker in brokers}
    for number in range(rounds):
        first = number % len(brokers)
        for broker in [*brokers[first:], *brokers[:first]]:
            outcomes[broker.name].append(work(broker))
    return {name: Result(own) for name, own in outcomes.items()}
