"""Checkpoints of one partition log: writes its indexes, producers and epochs beside the segments, and records the point
from which a restart must scan once all that is on disk. Knows that a pass is written, never its contents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trimq.storage.checkpoints.file_names import LEADER_EPOCHS, PRODUCER_SNAPSHOT
from trimq.storage.checkpoints.leader_epochs import EpochStart, format_epochs
from trimq.storage.checkpoints.log_checkpoints import Checkpoints, IndexSums, RecoveryPoint, SealedMark
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.group_commit.segment import base_of
from trimq.storage.io.files import Files
from trimq.storage.partition_log.producers import ProducerStates
from trimq.storage.partition_log.segment import PartitionSegment

log = logging.getLogger(__name__)


class LogState(NamedTuple):
    """State of a log at the end of a pass."""

    start: int
    end: int
    active: PartitionSegment
    producers: ProducerStates
    epochs: Sequence[EpochStart]


class LogCheckpointer:
    __slots__ = (
        "_checkpoints",
        "_epochs_changed",
        "_files",
        "_folder",
        "_is_requested",
        "_is_stopped",
        "_passes",
        "_saved",
        "_sealed",
        "_snapshots",
        "are_epochs_saved",
        "has_work",
        "kept_snapshot",
    )

    def __init__(
        self,
        files: Files,
        folder: str,
        passes: Passes,
        checkpoints: Checkpoints,
        saved: Callable[[RecoveryPoint], None],
    ) -> None:
        """Calls `saved` with each recovery point that survives a power cut."""
        self._files = files
        self._folder = folder
        self._passes = passes
        self._checkpoints = checkpoints
        self._saved = saved
        self._sealed: list[PartitionSegment] = []
        self._snapshots: list[tuple[int, bytes]] = []
        self._epochs_changed = False
        self.are_epochs_saved = False
        self._is_stopped = False
        self._is_requested = False
        self.has_work = False
        """A checkpoint is due with the next pass, whatever its size."""
        self.kept_snapshot = -1
        """Offset of the producer snapshot that the last point on disk relies on."""

    # -- contents of the next checkpoint

    def note_sealed(self, segment: PartitionSegment) -> None:
        self._sealed.append(segment)
        self.has_work = True

    def note_snapshot(self, offset: int, producers: ProducerStates) -> None:
        if len(producers):
            self._snapshots.append((offset, producers.encode()))

    def note_epochs(self) -> None:
        self._epochs_changed = True
        self.are_epochs_saved = False
        self.has_work = True

    def request(self) -> None:
        """Requests a checkpoint with the next pass."""
        self._is_requested = True
        self.has_work = True

    def roll_back_to(self, active_base: int) -> None:
        """Makes the segment with this base the active one again: neither it nor any later one was sealed."""
        self._sealed = [segment for segment in self._sealed if segment.segment.base < active_base]
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot[0] <= active_base]
        self._look_for_work()

    def _look_for_work(self) -> None:
        self.has_work = self._epochs_changed or self._is_requested or bool(self._sealed)

    def stop(self) -> None:
        """Stops all writes, because the log is removed."""
        self._is_stopped = True

    # -- with a pass

    def write_pass(self, number: int, tail: LogState, bytes_to_checkpoint: int, dirty: Dirty) -> None:
        """Writes the parts that are due with this pass."""
        if self._is_stopped:
            return
        if self._epochs_changed:
            self._write_epochs(tail.epochs, dirty)
        unsaved_bytes = tail.active.segment.size - tail.active.checkpointed_to
        if self._sealed or self._is_requested or unsaved_bytes >= bytes_to_checkpoint:
            self._write(number, tail, dirty)
        self._look_for_work()

    def _write_epochs(self, epochs: Sequence[EpochStart], dirty: Dirty) -> None:
        """Writes the file for Kafka's tools. A restart takes the epochs from the checkpoint and the batches after
        it."""
        self._epochs_changed = False
        name = f"{self._folder}/{LEADER_EPOCHS}"
        try:
            file, data = self._files.open(name, create=True), format_epochs(epochs)
            if file.read(0, len(data) + 1) != data:  # usually complete, even after a crash
                file.resize(0)
                file.write(0, [data])
        except OSError as error:
            log.warning("%s: cannot write leader epochs: %s", name, error)
            return
        dirty.files.add(file)
        dirty.folders.add(self._folder)

    def _write(self, number: int, tail: LogState, dirty: Dirty) -> None:
        """Writes indexes and producer state up to the end; they become a checkpoint when this pass is on disk."""
        self._is_requested = False
        active = tail.active
        try:
            kept = [segment for segment in self._sealed if not segment.is_gone]
            sealed = [(segment, segment.write_indexes(self._files, dirty)) for segment in kept]
            # The mark of a sealed segment has its size. If an earlier run cut the file without syncing it, a power cut
            # would bring back the longer file.
            dirty.files.update(segment.segment.file for segment in kept)
            index = active.write_indexes(self._files, dirty)
            self._write_snapshots(tail, dirty)
        except OSError as error:
            # Nothing is lost, but a restart scans more. The next pass tries again.
            log.warning("%s: cannot write a checkpoint, the next pass retries: %s", self._folder, error)
            self._is_requested = True
            return
        self._sealed = []
        self._snapshots = []
        active.checkpointed_to = active.segment.size
        base, position = active.segment.base, active.segment.size
        point = RecoveryPoint(tail.end, base, position, tail.start, len(tail.producers), index)
        epochs = None if self.are_epochs_saved else list(tail.epochs)
        self.are_epochs_saved = True
        self._passes.on_synced(Ticket(number), lambda _: self._save(point, sealed, epochs))

    def _save(
        self,
        point: RecoveryPoint,
        sealed: list[tuple[PartitionSegment, IndexSums]],
        epochs: list[EpochStart] | None,
    ) -> None:
        if self._is_stopped:
            return
        # Saves the data before the point that relies on it: a crash may keep only the first ones.
        for segment, index in sealed:
            if segment.is_gone:
                continue
            self._checkpoints.seal(self._folder, segment.segment.base, SealedMark(segment.segment.size, None, index))
            segment.is_stored = True
            segment.release()
        if epochs is not None:
            self._checkpoints.save_epochs(self._folder, epochs)
        known = self._checkpoints.point(self._folder)
        if known is not None:
            point = point._replace(start=known.start)  # the head may have been cut since
        ticket = self._checkpoints.save(self._folder, point)
        self._passes.on_synced(ticket, lambda done: None if done.refusal else self._now_on_disk(point))

    def _now_on_disk(self, point: RecoveryPoint) -> None:
        self.kept_snapshot = point.offset
        self._saved(point)

    def _write_snapshots(self, tail: LogState, dirty: Dirty) -> None:
        snapshots = dict(self._snapshots)
        if len(tail.producers):
            snapshots[tail.end] = tail.producers.encode()
        # The kept snapshot has the same contents, except for producers expired since: rewriting it could tear it in a
        # crash.
        snapshots.pop(self.kept_snapshot, None)
        for offset, data in snapshots.items():
            file = self._files.open(f"{self._folder}/{offset:020d}{PRODUCER_SNAPSHOT}", create=True)
            file.resize(0)
            file.write(0, [data])
            dirty.files.add(file)
            dirty.folders.add(self._folder)
        if snapshots:
            self._remove_old_snapshots()

    def _remove_old_snapshots(self) -> None:
        offsets = [base_of(name, PRODUCER_SNAPSHOT) for name in self._files.names(self._folder)]
        old = sorted(offset for offset in offsets if offset is not None and offset < self.kept_snapshot)
        for offset in old[:-1]:  # keeps one in reserve in case the newer one is damaged
            self._files.remove(f"{self._folder}/{offset:020d}{PRODUCER_SNAPSHOT}")
