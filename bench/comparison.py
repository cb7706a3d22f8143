"""Figures of work that two brokers did in alternating rounds: CPU time first, then the rate by wall clock. Measures
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.broker_rounds import Result
from bench.figures import Figure, Goal

OURS = "ours"
RATE = ": rate"


class WorkGoals(NamedTuple):
    cpu: Goal | None = None
    rate: Goal | None = None


NO_GOALS = WorkGoals()


def work_figures(
    name: str, results: Mapping[str, Result], peer: str, peer_title: str, goals: WorkGoals = NO_GOALS
) -> Iterator[Figure]:
    """Yields two figures: CPU time and rate. `peer` is the name of the other broker in the results, `peer_title` its
    display name."""
    ours, other = results[OURS], results[peer]
    rounds = f"of {len(ours.outcomes)}"
    note = (
        f"CPU of the broker, least {rounds}; median {ours.median_cpu_us:.3g}, {peer_title}'s {other.median_cpu_us:.3g}"
    )
    yield Figure(name, ours.cpu_us, "us/message", other.cpu_us, goals.cpu, note, peer)
    note = f"wall clock, best {rounds}; median {ours.median_rate:,.0f}, {peer_title}'s {other.median_rate:,.0f}"
    yield Figure(name + RATE, ours.rate, "messages/s", other.rate, goals.rate, note, peer)
