"""The whole broker, from the sockets to the files, under seeded crashes and faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from broker_workload import BrokerWorkload
from planted_bugs import BROKER_BUGS, FLIPPED_BIT_BUGS
from simulated_trace import SimulationFailure
from simulation import Outcome, Simulation

SEEDS_TO_CATCH_A_BUG = 300

Record = Callable[[str, object], None]


def simulate(seed: int, flips_bits: bool = False) -> Outcome:
    """Runs one world."""
    workload = partial(BrokerWorkload, flips_bits=flips_bits)
    function = (
        test_flipped_bits_are_never_served if flips_bits else test_acknowledged_records_survive_and_no_client_hangs
    )
    test = f"{Path(__file__).name} -k {function.__name__}"
    replay = f"pytest tests/simulation/{test} --seed {seed}"
    return Simulation(seed, workload, replay, flips_bits).run()


def report_of(seed: int, flips_bits: bool) -> str | None:
    """Returns the failure report, if any."""
    try:
        simulate(seed, flips_bits)
    except SimulationFailure as failure:
        return str(failure)
    return None


def note_coverage(name: str, outcomes: list[Outcome], record_property: Record) -> None:
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3600
    record_property(name, [len(outcomes), hours, sum(outcome.crashes for outcome in outcomes)])


def test_acknowledged_records_survive_and_no_client_hangs(seeds: range, record_property: Record) -> None:
    note_coverage("simulation of the broker", [simulate(seed) for seed in seeds], record_property)


def test_flipped_bits_are_never_served(some_seeds: range, record_property: Record) -> None:
    outcomes = [simulate(seed, flips_bits=True) for seed in some_seeds]
    note_coverage("simulation of the broker with flipped bits", outcomes, record_property)


@pytest.mark.parametrize("bug", [*BROKER_BUGS, *FLIPPED_BIT_BUGS])
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch, record_property: Record) -> None:
    (BROKER_BUGS | FLIPPED_BIT_BUGS)[bug](monkeypatch)
    reports = (report_of(seed, flips_bits=bug in FLIPPED_BIT_BUGS) for seed in range(SEEDS_TO_CATCH_A_BUG))
    report = next((report for report in reports if report), None)
    assert report is not None, f"{SEEDS_TO_CATCH_A_BUG} seeds did not detect that {bug}"
    assert "TypeError" not in report, f"the code changed, so that this bug can no longer be planted: {bug}"
    record_property("planted bug", f"broker: {bug}: caught by {report.splitlines()[0]}")


PRINT_DIGESTS = """
from simulation import Simulation
from broker_workload import BrokerWorkload
for seed in range(5):
    print(Simulation(seed, BrokerWorkload).run())
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
