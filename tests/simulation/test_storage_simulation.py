"""Passes, flusher and journal under seeded crashes and faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from planted_bugs import STORAGE_BUGS
from simulated_trace import SimulationFailure
from simulation import Outcome, Simulation
from storage_workload import StorageWorkload

SEEDS_TO_CATCH_A_BUG = 300


def simulate(seed: int) -> Outcome:
    try:
        return Simulation(seed, StorageWorkload).run()
    except SimulationFailure as failure:
        raise SimulationFailure(f"{failure}\nreplay: pytest {Path(__file__).name} --seed {seed}") from failure


def test_what_was_acknowledged_survives_every_crash(
    seeds: range, record_property: pytest.FixtureRequest
) -> None:
    outcomes = [simulate(seed) for seed in seeds]
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3600
    record_property("simulation of storage", [len(seeds), hours, sum(outcome.crashes for outcome in outcomes)])
