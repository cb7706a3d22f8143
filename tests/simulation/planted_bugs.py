"""Planted bugs that the simulation must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_offload import SimulatedOffload

from trimq.core.groups.assigned_group import AssignedGroup
from trimq.core.groups.classic_group import ClassicGroup
from trimq.core.groups.coordinator import GroupCoordinator
from trimq.core.partitions import append
from trimq.core.partitions.stream import Stream
from trimq.core.transactions import transaction as transactions
from trimq.core.transactions.marker_writer import MarkerWriter
from trimq.core.transactions.transaction import ProducerIdentity, Transaction
from trimq.errors.transactions import ForeignProducer
from trimq.offload import Done, Work
from trimq.server.connection.pending_replies import PassProgress
from trimq.storage.group_commit.flusher import Dirty, SyncFlusher, _SyncRounds
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.segment import Segment
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.producers import ProducerStates
from trimq.storage.partition_log.segment import PartitionSegment
from trimq.storage.partition_log.store import ROOT

Plant = Callable[[pytest.MonkeyPatch], None]


def flushers_wait_removed(patch: pytest.MonkeyPatch) -> None:
    """A pass is acknowledged once it is written."""
    flush = SyncFlusher.flush

    def flush_and_acknowledge(self: Any, number: int) -> None:
        flush(self, number)
        self._durable(number)

    patch.setattr(SyncFlusher, "flush", flush_and_acknowledge)
    patch.setattr(SyncFlusher, "_synced", lambda self, number: self._rounds.number > number and self._rounds.start())


def folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The names of new files are not synced."""
    sync = _SyncRounds._sync
    patch.setattr(_SyncRounds, "_sync", lambda self, syncs, folders: sync(self, syncs, ()))


def tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    """Recovery does not cut a torn tail."""
    patch.setattr(Journal, "truncate", lambda self, segment, size, companions: None)


def failed_sync_ignored(patch: pytest.MonkeyPatch) -> None:
    """A failed sync counts as a successful one."""
    finish = _SyncRounds._finish
    patch.setattr(_SyncRounds, "_finish", lambda self, number, error: finish(self, number, None))


def undone_pass_left_in_file(patch: pytest.MonkeyPatch) -> None:
    """A short write is not cut off again."""

    def forget(self: Any, refusal: Any, *_: Any) -> None:
        ticket, chunks = self._ticket, self._chunks
        self._ticket, self._chunks, self._folder_changed = None, (), False
        ticket.refusal = refusal
        for segment, *_ in chunks:
            segment.size = segment.file.size()
        self._owner.pass_undone()

    patch.setattr(Journal, "undo_pass", forget)


def preallocation_left_in_sealed_file(patch: pytest.MonkeyPatch) -> None:
    """Preallocated zeros are not cut when the next segment begins."""
    patch.setattr(Segment, "trim_preallocation", lambda self, full_bytes: None)


STORAGE_BUGS: dict[str, Plant] = {
    "the flusher's wait is removed": flushers_wait_removed,
    "a folder is not synced": folder_not_synced,
    "the tail is not cut": tail_not_cut,
    "a failed sync is ignored": failed_sync_ignored,
    "an undone pass stays in the file": undone_pass_left_in_file,
    "a sealed file keeps its preallocation": preallocation_left_in_sealed_file,
}


# -- above storage


def replies_released_at_written(patch: pytest.MonkeyPatch) -> None:
    """A session sends a reply as soon as its pass is written."""
    advance = PassProgress.advance
    patch.setattr(PassProgress, "advance", lambda self, written, durable: advance(self, written, written))


def topic_folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The names of the folders of new topics are not synced."""
    _drop_folders(patch, lambda folder: folder == ROOT)


def segment_folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The names of new segments are not synced."""
    _drop_folders(patch, lambda folder: folder.startswith(f"{ROOT}/"))


def _drop_folders(patch: pytest.MonkeyPatch, is_dropped: Callable[[str], bool]) -> None:
    sync = _SyncRounds._sync

    def sync_some(self: Any, syncs: Any, folders: Any) -> None:
        sync(self, syncs, [folder for folder in folders if not is_dropped(folder)])

    patch.setattr(_SyncRounds, "_sync", sync_some)


def written_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    """Readers see appended records before they are synced."""
    written = PartitionLog.pass_written

    def pass_written(self: Any, number: int, dirty: Dirty) -> None:
        written(self, number, dirty)
        self.pass_durable(number)

    patch.setattr(PartitionLog, "pass_written", pass_written)
    patch.setattr(PartitionLog, "pass_durable", _settle_once(PartitionLog.pass_durable))


def _settle_once(settle: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    def settle_once(self: Any, number: int) -> None:
        if self._awaited is not None:
            settle(self, number)

    return settle_once


def duplicates_not_detected(patch: pytest.MonkeyPatch) -> None:
    """A repeated batch is appended again."""
    patch.setattr(append, "find_duplicate", lambda stream, header: None)


def producers_not_undone(patch: pytest.MonkeyPatch) -> None:
    """The producer states keep the changes of a refused pass."""
    patch.setattr(ProducerStates, "undo_pass", lambda self: None)


def syncs_on_the_loop(patch: pytest.MonkeyPatch) -> None:
    """All connections wait for the disk."""

    def work_now(self: Any, work: Work, done: Done) -> None:
        self._loop.spend_us(self._speed.choose_us(self._random))
        try:
            outcome: tuple[object, BaseException | None] = (work(), None)
        except OSError as error:
            outcome = (None, error)
        self._loop.call_soon(done, *outcome)

    patch.setattr(SimulatedOffload, "__call__", work_now)


def checksums_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Stored bytes are served without a check."""
    patch.setattr(PartitionSegment, "require_sound", lambda self, *_: None)


FLIPPED_BIT_BUGS: dict[str, Plant] = {"checksums are not checked": checksums_not_checked}

BROKER_BUGS: dict[str, Plant] = {
    "replies are released when written": replies_released_at_written,
    "the folder of a new topic is not synced": topic_folder_not_synced,
    "the folder of a new segment is not synced": segment_folder_not_synced,
    "the tail is not cut": tail_not_cut,
    "written records are shown as durable": written_taken_for_durable,
    "duplicates are not detected": duplicates_not_detected,
    "producers are not undone": producers_not_undone,
    "syncs are done on the loop": syncs_on_the_loop,
}


# -- sessions of Kafka clients


def lost_markers_not_retried(patch: pytest.MonkeyPatch) -> None:
    """A transaction counts as complete although its markers could not be written."""

    def write_markers(self: Any, transaction: Transaction, done: Callable[[bool], None]) -> None:
        mark_and_report(self, transaction, lambda _: done(True))

    mark_and_report = MarkerWriter.write_markers
    patch.setattr(MarkerWriter, "write_markers", write_markers)


def open_transactions_shown(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed records see open transactions."""
    patch.setattr(Stream, "stable_end", property(lambda self: self.readable_end))


def old_epochs_accepted(patch: pytest.MonkeyPatch) -> None:
    """A fenced producer is accepted like its successor."""

    def require(known: Transaction | None, producer: ProducerIdentity) -> Transaction:
        if known is None:
            raise ForeignProducer(producer.id)
        return known

    patch.setattr(transactions, "require_producer", require)


def streams_assigned_twice(patch: pytest.MonkeyPatch) -> None:
    """A member gets a stream before its previous owner has released it."""
    patch.setattr(AssignedGroup, "_is_free", lambda self, stream, member: True)


def generations_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Requests of members of an older generation are accepted."""
    patch.setattr(ClassicGroup, "_check_generation", lambda self, generation: None)


def assignments_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The assignment of the leader is sent to the members before it is durable."""

    def carry_out(self: Any, group: Any, decisions: Any) -> None:
        if group.needs_save:
            self._save(group)
        for waiter, outcome in decisions:
            waiter(outcome, None)

    patch.setattr(GroupCoordinator, "_carry_out", carry_out)


SESSION_BUGS: dict[str, Plant] = {
    "lost markers are not retried": lost_markers_not_retried,
    "open transactions are shown": open_transactions_shown,
    "replaced producers are accepted": old_epochs_accepted,
    "streams are assigned twice": streams_assigned_twice,
    "generations are not checked": generations_not_checked,
    "assignments are sent before they are durable": assignments_not_stored,
}
