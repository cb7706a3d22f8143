"""What is told of work that two brokers did in turns: processor time, which counts first, and the rate by the wall
clock. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.figures import Figure, Goal
from bench.turns import Result

OURS = "ours"
RATE = ": rate"


class WorkGoals(NamedTuple):
    cpu: Goal | None = None
    rate: Goal | None = None


NO_GOALS = WorkGoals()


def work_figures(
    name: str, results: Mapping[str, Result], beside: str, shown: str, goals: WorkGoals = NO_GOALS
) -> Iterator[Figure]:
    """Two for each work. `beside` is the other side's name, `shown` what its broker is called."""
    ours, other = results[OURS], results[beside]
    rounds = f"of {len(ours.outcomes)}"
    note = f"CPU of the broker, least {rounds}; middle {ours.middle_cpu_us:.3g}, {shown}'s {other.middle_cpu_us:.3g}"
    yield Figure(name, ours.cpu_us, "us/message", other.cpu_us, goals.cpu, note, beside)
    note = f"wall clock, best {rounds}; middle {ours.middle_rate:,.0f}, {shown}'s {other.middle_rate:,.0f}"
    yield Figure(name + RATE, ours.rate, "messages/s", other.rate, goals.rate, note, beside)
