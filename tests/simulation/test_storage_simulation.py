"""Passes, flusher and journal under seeded crashes and faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_bugs import STORAGE_BUGS
from simulated_trace import SimulationFailure
from simulation import Outcome, Simulation
from storage_workload import StorageWorkload

SEEDS_TO_CATCH_A_BUG = 400


def simulate(seed: int) -> Outcome:
    return Simulation(
        seed, StorageWorkload, replay=f"pytest tests/simulation/{Path(__file__).name} --seed {seed}"
    ).run()


def test_acknowledged_records_survive_every_crash(seeds: range, record_property: Callable[[str, object], None]) -> None:
    outcomes = [simulate(seed) for seed in seeds]
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3600
    record_property("simulation of storage", [len(seeds), hours, sum(outcome.crashes for outcome in outcomes)])


@pytest.mark.parametrize("bug", STORAGE_BUGS)
def test_a_planted_bug_is_caught(
    bug: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    STORAGE_BUGS[bug](monkeypatch)
    for seed in range(SEEDS_TO_CATCH_A_BUG):
        try:
            simulate(seed)
        except SimulationFailure as failure:
            reason = str(failure).splitlines()[0]
            record_property("planted bug", f"storage: {bug}: caught by {reason}")
            return
    pytest.fail(f"{SEEDS_TO_CATCH_A_BUG} seeds did not detect that {bug}")


PRINT_DIGESTS = """
from simulation import Simulation
from storage_workload import StorageWorkload
for seed in range(5):
    print(Simulation(seed, StorageWorkload).run())
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
    assert len(printed[0].splitlines()) == 5
    assert printed[0] == printed[1]


def test_seeds_differ() -> None:
    assert simulate(1).digest != simulate(2).digest
