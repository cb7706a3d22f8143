"""Queue logs under seeded crashes and faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from queue_workload import QueueWorkload
from simulated_trace import SimulationFailure
from simulation import Outcome, Simulation

from trimq.storage.group_commit.flusher import _SyncRounds
from trimq.storage.queue_log.ack_writer import AckWriter
from trimq.storage.queue_log.acknowledgements import Acknowledgements
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.segment import QueueSegment
from trimq.storage.queue_log.shared_bodies import SharedBodyStore

SEEDS_TO_CATCH_A_BUG = 100


def simulate(seed: int) -> Outcome:
    return Simulation(seed, QueueWorkload, replay=f"pytest tests/simulation/{Path(__file__).name} --seed {seed}").run()


def report_of(seed: int) -> str | None:
    """Returns the report of a failed run, or None."""
    try:
        simulate(seed)
    except SimulationFailure as failure:
        return str(failure)
    return None


def test_unacked_messages_survive_every_crash(seeds: range, record_property: Callable[[str, object], None]) -> None:
    outcomes = [simulate(seed) for seed in seeds]
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3600
    record_property("simulation of queues", [len(seeds), hours, sum(outcome.crashes for outcome in outcomes)])


def written_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    def move(self: Any) -> None:
        self.readable_end = self._written_end

    patch.setattr(QueueLog, "_move_readable_end", move)


def folders_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync = _SyncRounds._sync
    patch.setattr(_SyncRounds, "_sync", lambda self, syncs, folders: sync(self, syncs, []))


def unlinked_before_its_mark_is_removed(patch: pytest.MonkeyPatch) -> None:
    """A restart expects a removed segment."""

    def drop(self: Any, segment: Any) -> None:
        if (
            not segment.live
            and segment.is_seal_durable
            and segment in self.segments
            and segment is not self.segments.tail
        ):
            self.segments.take_out(segment)
            self._remove(segment)

    patch.setattr(Acknowledgements, "remove_if_all_acked", drop)


def acks_not_written(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements are not written."""
    patch.setattr(AckWriter, "_write_segment", lambda self, folder, segment: segment.unwritten.clear())


def undone_messages_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueLog, "pass_undone", lambda self: setattr(self.segments, "pass_tail", None))


def bodies_freed_with_the_first_release(patch: pytest.MonkeyPatch) -> None:
    def release(self: Any, blob: int) -> None:
        shelf = self._shelf(blob)
        shelf.counts.take(blob)
        shelf.log.acks.ack(blob)

    patch.setattr(SharedBodyStore, "release", release)


def references_not_counted_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """The sweep removes bodies that queues still reference."""
    patch.setattr(SharedBodyStore, "recover", lambda self, blob: self._lasting.log.segments.is_live(blob))


def references_without_bodies_kept(patch: pytest.MonkeyPatch) -> None:
    """The case of a power cut that lost the body and kept the reference."""

    def recover(self: Any, blob: int) -> bool:
        self._lasting.counts.add(blob)
        return True

    patch.setattr(SharedBodyStore, "recover", recover)


def leaks_not_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharedBodyStore, "sweep", lambda self: None)


def references_to_lost_bodies_kept(patch: pytest.MonkeyPatch) -> None:
    """References stay although the bodies of their pass could not be written."""
    patch.setattr(SharedBodyStore, "_undone", lambda self, body_log: setattr(body_log, "is_ready", False))


def sealed_without_references(patch: pytest.MonkeyPatch) -> None:
    """After a restart the references of a sealed segment are unknown."""
    footer = QueueSegment.footer
    patch.setattr(QueueSegment, "footer", lambda self: footer(self)._replace(shared=0))


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "written is taken for durable": written_taken_for_durable,
    "folders are not synced": folders_not_synced,
    "a segment is unlinked before its mark is removed": unlinked_before_its_mark_is_removed,
    "acks are not written": acks_not_written,
    "undone messages stay": undone_messages_stay,
    "bodies are freed with the first release": bodies_freed_with_the_first_release,
    "references are not counted after a restart": references_not_counted_after_a_restart,
    "references without bodies are kept": references_without_bodies_kept,
    "leaks are not swept": leaks_not_swept,
    "references to lost bodies are kept": references_to_lost_bodies_kept,
    "segments are sealed without their references": sealed_without_references,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(
    bug: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    BUGS[bug](monkeypatch)
    reports = (report_of(seed) for seed in range(SEEDS_TO_CATCH_A_BUG))
    report = next((report for report in reports if report), None)
    assert report is not None, f"{SEEDS_TO_CATCH_A_BUG} seeds did not detect that {bug}"
    assert "TypeError" not in report, f"the code has changed in which it is planted that {bug}"
    record_property("planted bug", f"queues: {bug}: caught by {report.splitlines()[0]}")
