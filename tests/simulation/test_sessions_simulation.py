"""Kafka sessions with transactions and groups of both kinds and the whole broker, under seeded crashes and faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_bugs import SESSION_BUGS
from sessions_workload import SessionsWorkload
from simulated_trace import SimulationFailure
from simulation import Outcome, Simulation

SEEDS_TO_CATCH_A_BUG = 600

Record = Callable[[str, object], None]


def simulate(seed: int) -> Outcome:
    test = test_transactions_are_atomic_and_each_partition_has_one_owner.__name__
    replay = f"pytest tests/simulation/{Path(__file__).name} -k {test} --seed {seed}"
    return Simulation(seed, SessionsWorkload, replay).run()


def report_of(seed: int) -> str | None:
    """Returns the failure report, if any."""
    try:
        simulate(seed)
    except SimulationFailure as failure:
        return str(failure)
    return None


def test_transactions_are_atomic_and_each_partition_has_one_owner(seeds: range, record_property: Record) -> None:
    outcomes = [simulate(seed) for seed in seeds]
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3600
    crashes = sum(outcome.crashes for outcome in outcomes)
    record_property("simulation of Kafka's sessions", [len(outcomes), hours, crashes])


@pytest.mark.parametrize("bug", SESSION_BUGS)
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch, record_property: Record) -> None:
    SESSION_BUGS[bug](monkeypatch)
    reports = (report_of(seed) for seed in range(SEEDS_TO_CATCH_A_BUG))
    report = next((report for report in reports if report), None)
    assert report is not None, f"{SEEDS_TO_CATCH_A_BUG} seeds did not detect that {bug}"
    assert "TypeError" not in report, f"the code changed, so that this bug can no longer be planted: {bug}"
    record_property("planted bug", f"sessions: {bug}: caught by {report.splitlines()[0][:150]}")


PRINT_DIGESTS = """
from simulation import Simulation
from sessions_workload import SessionsWorkload
for seed in range(10):
    print(Simulation(seed, SessionsWorkload).run())
"""


def test_a_seed_replays_exactly_in_any_process() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert len(printed[0].splitlines()) == 10
    assert printed[0] == printed[1]
