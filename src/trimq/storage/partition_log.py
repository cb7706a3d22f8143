"""The partition log: one stream in Kafka's own files. Owns its offsets, ends, roll and checkpoints; what the records
are for is decided above."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trimq.errors import OffsetOutOfRange
from trimq.formats.batch import BatchHeader, stamp, stamped_prefix
from trimq.formats.markers import read_control
from trimq.formats.records import iterate
from trimq.model import Buffer
from trimq.storage.checkpoints import Checkpoints, RecoveryPoint, SealedMark
from trimq.storage.companions import LEADER_EPOCHS, LOG, OF_A_SEGMENT, PRODUCER_SNAPSHOT
from trimq.storage.epoch_checkpoint import EpochStart, format_epochs
from trimq.storage.files import File, Files
from trimq.storage.flusher import Dirty
from trimq.storage.journal import Journal
from trimq.storage.partition_index import MAX_RELATIVE_OFFSET, SegmentIndex
from trimq.storage.partition_segment import PartitionSegment, TailMark
from trimq.storage.passes import Passes, Ticket
from trimq.storage.producer_snapshot import ProducerStates
from trimq.storage.segment import Segment

log = logging.getLogger(__name__)

_PREFIX_BYTES = 16  # base offset, length, leader epoch: what the broker stamps


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What may differ from topic to topic."""

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    checkpoint_bytes: int
    is_compacted: bool = False
    is_expired: bool = True
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.5


class Place(NamedTuple):
    """An offset and where its bytes begin."""

    offset: int
    segment: PartitionSegment
    position: int


class _PassMark(NamedTuple):
    """Where a pass began, to go back to when it cannot be written."""

    end: int
    active: PartitionSegment
    tail: TailMark
    epochs: int


class PartitionLog:
    def __init__(
        self,
        files: Files,
        folder: str,
        passes: Passes,
        settings: LogSettings,
        checkpoints: Checkpoints,
        now_ms: Callable[[], int],
    ) -> None:
        self.files = files
        self.folder = folder
        self._settings = settings
        self._checkpoints = checkpoints
        self.now_ms = now_ms
        self.journal = Journal(files, folder, LOG, passes, self)
        self.segments: list[PartitionSegment] = []
        self.producers = ProducerStates()
        self.epochs: list[EpochStart] = []
        self.start = 0
        self.end = 0
        self.durable_end = 0
        self.settled: Callable[[], None] | None = None
        self.durable_place: Place
        self.places: dict[int, Place] = {}
        self._tail: Segment
        self._tail_index: SegmentIndex
        self._roll_bytes = 0
        self._roll_offset = 0
        self._newest_epoch = -1
        self._mark: _PassMark | None = None
        self._unsettled: deque[Place] = deque()
        self._sealed_in_pass: list[PartitionSegment] = []
        self._snapshots_in_pass: list[tuple[int, bytes]] = []
        self._new_files: list[File] = []
        self._epochs_changed = False
        self._checkpointing: tuple[int, RecoveryPoint, list[PartitionSegment]] | None = None
        self._is_checkpoint_due = False

    @property
    def settings(self) -> LogSettings:
        return self._settings

    def change_settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._aim()

    @property
    def active(self) -> PartitionSegment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.segment.size for segment in self.segments)

    # -- beginning

    def begin(self, metadata: File | None) -> None:
        """A new log, in a folder that may hold new `metadata`. Durable with the pass that this takes part in."""
        segment = self.journal.roll(self.start)
        self.segments.append(PartitionSegment.fresh(segment, self.settings.index_interval_bytes, self.now_ms()))
        if metadata is not None:
            self._new_files.append(metadata)
        self.durable_place = Place(self.start, self.segments[0], 0)
        self._aim()

    def resume(self, end: int, undurable: PartitionSegment | None) -> None:
        """An existing log was opened: it goes on at `end`. From `undurable` on it is synced before it is read."""
        active = self.segments[-1]
        self.end = end
        self._aim()
        if undurable is None:
            self.durable_end = end
            self.durable_place = Place(end, active, active.segment.size)
        else:
            self.durable_end = self.start
            self.durable_place = Place(self.start, active, 0)
            self.journal.resync(undurable.segment)

    # -- appending

    def append(self, batch: Buffer, header: BatchHeader, leader_epoch: int) -> Ticket:
        """Give `batch`, which is exactly one and checked, the offsets from `end` on, and collect it for this pass."""
        size = len(batch)
        base_offset = self.end
        last_offset = base_offset + header.last_offset_delta
        if self._mark is None:
            self._begin_pass()
        segment = self._tail
        if segment.size + size > self._roll_bytes or last_offset > self._roll_offset:
            segment = self._roll_unless_empty(segment)
        position = segment.size
        if type(batch) is bytes or (type(batch) is memoryview and batch.readonly):
            ticket = self.journal.append(stamped_prefix(batch, base_offset, leader_epoch), _PREFIX_BYTES)
            self.journal.append(memoryview(batch)[_PREFIX_BYTES:], size - _PREFIX_BYTES)
        else:
            stamp(batch, base_offset, leader_epoch)  # type: ignore[arg-type]  # what is left can be written to
            ticket = self.journal.append(batch, size)
        self.end = last_offset + 1
        self._tail_index.note(last_offset, position, size, header.max_timestamp_ms)
        if leader_epoch > self._newest_epoch:
            self.note_epoch(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self.apply_producer(header._replace(base_offset=base_offset), batch)
        return ticket

    def latest_ticket(self) -> Ticket:
        """For an answer that says again what was said, or is about to be said, of an earlier append."""
        return self.journal.latest_ticket()

    def _roll_unless_empty(self, tail: Segment) -> Segment:
        """A batch that is larger than a segment may be gets one of its own."""
        return self.roll().segment if tail.size else tail

    def roll(self) -> PartitionSegment:
        """Seal the active segment and begin the next, which takes its name from the next offset."""
        if self._mark is None:
            self._begin_pass()
        segment = self.journal.roll(self.end)
        sealed = self.segments[-1]
        sealed.seal(self.end)
        self._sealed_in_pass.append(sealed)
        self._snapshots_in_pass.append((self.end, self.producers.encode() if len(self.producers) else b""))
        active = PartitionSegment.fresh(segment, self.settings.index_interval_bytes, self.now_ms())
        self.segments.append(active)
        self._aim()
        return active

    def _aim(self) -> None:
        """Have at hand what every append needs of the active segment."""
        active = self.segments[-1]
        self._tail = active.segment
        self._tail_index = active.growing
        self._roll_offset = active.segment.base + MAX_RELATIVE_OFFSET
        self._roll_bytes = self.settings.segment_bytes

    def note_sealed(self, segment: PartitionSegment) -> None:
        """A segment was found sealed whose indexes are not in its files yet."""
        self._sealed_in_pass.append(segment)

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.append(EpochStart(epoch, start_offset))
        self._newest_epoch = epoch
        self._epochs_changed = True

    def take_epochs(self, epochs: list[EpochStart]) -> None:
        """What the file says, which is not written again."""
        self.epochs = epochs
        self._newest_epoch = epochs[-1].epoch if epochs else -1

    def apply_producer(self, header: BatchHeader, batch: Buffer) -> None:
        """Keep the state of the batch's producer, and of its transaction, in step with the log."""
        if not header.is_control:
            self.producers.apply(header)
            return
        record = next(iterate(batch), None)  # none: compaction emptied it, the whole transaction is gone
        marker = None if record is None else read_control(record)
        if marker is not None:
            ended = self.producers.apply_control(header, marker.commit, marker.coordinator_epoch)
            if ended is not None and ended.is_aborted:
                self.segments[-1].note_aborted(ended)

    def _begin_pass(self) -> None:
        active = self.segments[-1]
        self._mark = _PassMark(self.end, active, active.mark(), len(self.epochs))
        self.producers.begin_pass()
        if active.segment.size and self.now_ms() - active.created_ms >= self.settings.segment_ms:
            self.roll()

    # -- the journal's side: passes end

    def pass_written(self, number: int, dirty: Dirty) -> None:
        self._mark = None
        active = self.segments[-1]
        self._unsettled.append(Place(self.end, active, active.segment.size))
        if self._new_files:
            dirty.files.update(self._new_files)
            dirty.folders.update((self.folder, self.folder.rpartition("/")[0]))
            self._new_files.clear()
        if self._epochs_changed:
            self._write_epochs(dirty)
        unsaved = active.segment.size - active.checkpointed_to
        if self._sealed_in_pass or self._is_checkpoint_due or unsaved >= self.settings.checkpoint_bytes:
            self._write_companions(number, dirty)

    def pass_undone(self) -> None:
        mark, self._mark = self._mark, None
        self._sealed_in_pass.clear()
        self._snapshots_in_pass.clear()
        if mark is None:
            return
        self.end = mark.end
        while self.segments[-1] is not mark.active and len(self.segments) > 1:
            self.segments.pop()
        self.segments[-1].back_to(mark.tail)
        self._aim()
        del self.epochs[mark.epochs :]
        self._newest_epoch = self.epochs[-1].epoch if self.epochs else -1
        self.producers.undo_pass()

    def pass_settled(self, number: int) -> None:
        self.durable_place = self._unsettled.popleft()
        self.durable_end = self.durable_place.offset
        if self._checkpointing is not None and self._checkpointing[0] <= number:
            _, point, sealed = self._checkpointing
            self._checkpointing = None
            self._checkpoints.save(self.folder, point)
            for segment in sealed:
                self._checkpoints.seal(self.folder, segment.segment.base, SealedMark(segment.segment.size, None))
        if self.settled is not None:
            self.settled()

    # -- checkpoints: what a restart need not scan

    def _write_epochs(self, dirty: Dirty) -> None:
        """A crash may leave this file torn: it is then built anew from the epochs in the batches."""
        self._epochs_changed = False
        name = f"{self.folder}/{LEADER_EPOCHS}"
        try:
            file = self.files.open(name, create=True)
            file.resize(0)
            file.write(0, [format_epochs(self.epochs)])
        except OSError as error:
            log.warning("%s: %s", name, error)
            return
        dirty.files.add(file)
        dirty.folders.add(self.folder)

    def _write_companions(self, number: int, dirty: Dirty) -> None:
        """Write indexes and producer state up to `end`; when this pass is durable they count as a checkpoint."""
        self._is_checkpoint_due = False
        active, sealed = self.segments[-1], list(self._sealed_in_pass)
        try:
            for segment in (*sealed, active):
                segment.write_indexes(self.files, dirty)
            self._write_snapshots(dirty)
        except OSError as error:
            # A restart scans more, nothing is lost.
            log.warning("%s: no checkpoint could be made: %s", self.folder, error)
            return
        finally:
            self._sealed_in_pass.clear()
            self._snapshots_in_pass.clear()
        active.checkpointed_to = active.segment.size
        point = RecoveryPoint(self.end, active.segment.base, active.segment.size, self.start, len(self.producers))
        earlier = self._checkpointing[2] if self._checkpointing is not None else []
        self._checkpointing = (number, point, earlier + sealed)

    def _write_snapshots(self, dirty: Dirty) -> None:
        now = (self.end, self.producers.encode() if len(self.producers) else b"")
        snapshots = {offset: data for offset, data in (*self._snapshots_in_pass, now) if data}
        for offset, data in snapshots.items():
            file = self.files.open(f"{self.folder}/{offset:020d}{PRODUCER_SNAPSHOT}", create=True)
            file.resize(0)
            file.write(0, [data])
            dirty.files.add(file)
            dirty.folders.add(self.folder)
        if snapshots:
            self._remove_old_snapshots(snapshots.keys())

    def _remove_old_snapshots(self, new: Collection[int]) -> None:
        # One older than the newest stays: the newest is not durable yet.
        names = [name for name in self.files.names(self.folder) if name.endswith(PRODUCER_SNAPSHOT)]
        old = [name for name in names if int(name[:20]) not in new]
        for name in old[:-1]:
            self.files.remove(f"{self.folder}/{name}")

    def checkpoint(self) -> None:
        """Make a checkpoint with the pass that this takes part in."""
        self._is_checkpoint_due = True
        self.journal.touch()

    def close(self) -> None:
        """Checkpoint everything. The log is closed when the pass that this begins is durable."""
        active = self.segments[-1]
        if active.checkpointed_to < active.segment.size:
            self.checkpoint()

    # -- the head

    def cut_head(self, offset: int) -> Ticket:
        """Records before `offset` are gone; segments that hold nothing else are removed."""
        if not self.start <= offset <= self.durable_end:
            raise OffsetOutOfRange(offset, self.start, self.durable_end)
        self.start = offset
        while len(self.segments) > 1 and self.segments[1].segment.base <= offset:
            self.remove(self.segments[0])
        return self._checkpoints.save(self.folder, self._point_now())

    def _point_now(self) -> RecoveryPoint:
        """The last checkpoint, with the head where it is now."""
        known = self._checkpoints.point(self.folder)
        first = self.segments[0].segment.base
        if known is None or known.base < first:
            return RecoveryPoint(first, first, 0, self.start, 0)
        return known._replace(start=self.start)

    def exchange(self, old: Sequence[PartitionSegment], new: PartitionSegment) -> None:
        """`new` holds what is left of `old`, which are neighbours, and takes their place. No file is touched."""
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = [new]
        first = self.journal.segments.index(old[0].segment)
        self.journal.segments[first : first + len(old)] = [new.segment]
        self.places.clear()

    def remove(self, segment: PartitionSegment) -> None:
        """Remove a sealed segment and its companions."""
        self.segments.remove(segment)
        self.journal.remove(segment.segment, OF_A_SEGMENT)
        self._checkpoints.forget_sealed(self.folder, segment.segment.base)
