"""Figures of work that two brokers did in alternating rounds: CPU time first, then the rate by wall clock. Measures
nothing."""

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
    """Yields two figures: CPU time and rate. `peer` is the name of the other broker in the results, `peer_title` its
    display name."""
    ours, other = results[OURS], results[beside]
    rounds = f"of {len(ours.outcomes)}"
    note = f"CPU of the broker, least {rounds}; middle {ours.middle_cpu_us:.3g}, {shown}'s {other.middle_cpu_us:.3g}"
    yield Figure(name, ours.cpu_us, "us/message", other.cpu_us, goals.cpu, note, beside)
    note = f"wall clock, best {rounds}; middle {ours.middle_rate:,.0f}, {shown}'s {other.middle_rate:,.0f}"
    yield Figure(name + RATE, ours.rate, "messages/s", other.rate, goals.rate, note, beside)
