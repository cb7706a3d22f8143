"""RocketMQ clients with the whole broker under seeded crashes and faults: acknowledged messages exist once at their
offsets, no message is delivered too early, and no rolled-back one at all. For POP groups: a leased message is delivered
to nobody else, an acked one is never delivered again, and any other is revived once, or dead-lettered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_popping_bugs import CALLING_BUGS, POPPING_BUGS
from planted_rocketmq_bugs import LATE_SEEDS, ROCKETMQ_BUGS
from popping_workload import CallingWorkload, PoppingWorkload
from rocketmq_workload import RocketMQWorkload
from simulated_trace import SimulationFailure
from simulation import Outcome, Simulation

from trimq.protocols.rocketmq.transactions import check_back, half_messages

SEEDS_TO_CATCH_A_BUG = 600

Record = Callable[[str, object], None]


PLANTS = {RocketMQWorkload: ROCKETMQ_BUGS, PoppingWorkload: POPPING_BUGS, CallingWorkload: CALLING_BUGS}
BUGS = [(workload, bug) for workload, bugs in PLANTS.items() for bug in bugs]


def simulate(workload: type[RocketMQWorkload], seed: int) -> Outcome:
    tests = {
        PoppingWorkload: test_every_popped_message_is_acked_revived_or_dead_lettered,
        CallingWorkload: test_members_over_both_front_ends_share_the_messages_of_their_group,
    }
    test = tests.get(workload, test_acknowledged_messages_are_delivered_once_at_their_offset_and_in_time)
    replay = f"pytest tests/simulation/{Path(__file__).name} -k {test.__name__} --seed {seed}"
    return Simulation(seed, workload, replay).run()


def report_of(workload: type[RocketMQWorkload], seed: int) -> str | None:
    """Returns the failure report, if any."""
    try:
        simulate(workload, seed)
    except SimulationFailure as failure:
        return str(failure)
    return None


def test_acknowledged_messages_are_delivered_once_at_their_offset_and_in_time(
    seeds: range, record_property: Record
) -> None:
    record_property("simulation of RocketMQ clients", covered(RocketMQWorkload, seeds))


def test_every_popped_message_is_acked_revived_or_dead_lettered(seeds: range, record_property: Record) -> None:
    record_property("simulation of RocketMQ POP groups", covered(PoppingWorkload, seeds))


def test_members_over_both_front_ends_share_the_messages_of_their_group(seeds: range, record_property: Record) -> None:
    record_property("simulation of gRPC clients", covered(CallingWorkload, seeds[: len(seeds) // 2 or 1]))


def test_acknowledged_messages_are_delivered_once_when_half_messages_are_checked_in_small_batches(
    some_seeds: range, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    """Small limits have the effect of thousands of half messages."""
    for name, few in (("STRAGGLER_DISTANCE", 3), ("CHECKPOINT_INTERVAL", 2), ("TURN_MAX_HALVES", 2)):
        monkeypatch.setattr(half_messages, name, few)
    monkeypatch.setattr(check_back, "TURN_MAX_HALVES", 2)
    record_property(
        "simulation of RocketMQ clients with half messages in small batches", covered(RocketMQWorkload, some_seeds)
    )


def covered(workload: type[RocketMQWorkload], seeds: range) -> list[float]:
    """Returns the number of worlds, hours and crashes."""
    outcomes = [simulate(workload, seed) for seed in seeds]
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3600
    return [len(outcomes), hours, sum(outcome.crashes for outcome in outcomes)]


@pytest.mark.parametrize(("workload", "bug"), BUGS)
def test_a_planted_bug_is_caught(
    workload: type[RocketMQWorkload], bug: str, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    PLANTS[workload][bug](monkeypatch)
    first = LATE_SEEDS.get(bug, 0)
    reports = (report_of(workload, seed) for seed in range(first, first + SEEDS_TO_CATCH_A_BUG))
    report = next((report for report in reports if report), None)
    assert report is not None, f"{SEEDS_TO_CATCH_A_BUG} seeds did not detect that {bug}"
    assert "TypeError" not in report, f"the code changed, so that this bug can no longer be planted: {bug}"
    record_property("planted bug", f"RocketMQ: {bug}: caught by {report.splitlines()[0][:150]}")


PRINT_DIGESTS = """
from simulation import Simulation
from popping_workload import CallingWorkload, PoppingWorkload
from rocketmq_workload import RocketMQWorkload
for seed in range(12):
    print(Simulation(seed, (RocketMQWorkload, PoppingWorkload, CallingWorkload)[seed % 3]).run())
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
    assert len(printed[0].splitlines()) == 12
    assert printed[0] == printed[1]
