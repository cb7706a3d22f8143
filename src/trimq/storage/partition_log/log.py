"""Partition log: one stream in Kafka's own files. Owns offsets, ends, segment rolls and checkpoints; does not know what
records are for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from trimq.errors import OffsetOutOfRange, UnknownTopic
from trimq.formats.kafka_batch.header import LENGTH_ENDS_AT, PREFIX, BatchHeader, stamped_prefix
from trimq.model import Buffer
from trimq.storage.checkpoints.file_names import LOG, SEGMENT_COMPANIONS
from trimq.storage.checkpoints.leader_epochs import EpochStart
from trimq.storage.checkpoints.log_checkpoints import Checkpoints, RecoveryPoint
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.group_commit.segment import Segment
from trimq.storage.io.files import File, Files
from trimq.storage.partition_log.checkpointing import LogCheckpointer, LogState
from trimq.storage.partition_log.index import (
    MAX_POSITION,
    MAX_RELATIVE_OFFSET,
    IndexRollbackPoint,
    SegmentIndex,
    StoredIndex,
)
from trimq.storage.partition_log.index_cache import IndexCache
from trimq.storage.partition_log.producers import ProducerStates
from trimq.storage.partition_log.segment import PartitionSegment, SegmentPosition
from trimq.storage.partition_log.settings import LogSettings
from trimq.storage.partition_log.transaction_markers import apply_batch

_stamp = PREFIX.pack_into

# Plain tuples, since one of each is made for every pass of every stream.
RollbackPoint = tuple[int, int]
"""End and leader epoch at the start of a pass, restored when the pass cannot be written."""
WrittenPass = tuple[int, PartitionSegment, int, int | None]
"""End, segment, position in it and first unstable offset after a pass; they take effect when the pass is durable."""

_NO_ROOM = -1
_NO_PARTS: list[Buffer] = []  # never appended to


class PartitionLog:
    """The fields that every append touches stand in this one object: with 1,000 streams each append misses the CPU
    cache, so an append touches as few objects as possible."""

    __slots__ = (
        "_active",
        "_awaited",
        "_checkpoint_at",
        "_checkpoints",
        "_durable",
        "_has_producers",
        "_index_cache",
        "_index_mark",
        "_later",
        "_mark",
        "_new",
        "_newest_epoch",
        "_parts",
        "_passes",
        "_roll_at_ms",
        "_roll_bytes",
        "_roll_offset",
        "_rolls",
        "_room_to",
        "_tail",
        "_tail_index",
        "_ticket",
        "checkpointing",
        "durable_end",
        "end",
        "epochs",
        "files",
        "first_unstable_offset",
        "folder",
        "is_removed",
        "journal",
        "needs_checkpoint",
        "now_ms",
        "on_durable_end",
        "on_first_checkpoint",
        "producers",
        "read_positions",
        "segments",
        "settings",
        "start",
    )

    def __init__(
        self,
        files: Files,
        folder: str,
        passes: Passes,
        settings: LogSettings,
        checkpoints: Checkpoints,
        now_ms: Callable[[], int],
        loaded: IndexCache | None = None,
    ) -> None:
        self.settings = settings
        self.files = files
        self.folder = folder
        self._passes = passes
        self._checkpoints = checkpoints
        self.now_ms = now_ms
        self._index_cache = IndexCache() if loaded is None else loaded
        self.journal = Journal(files, folder, LOG, passes, self)
        self.segments: list[PartitionSegment] = []
        self.producers = ProducerStates()
        self.epochs: list[EpochStart] = []
        self.start = 0
        self.end = 0
        self.durable_end = 0
        self.is_removed = False
        self.first_unstable_offset: int | None = None  # start of the oldest transaction without a durable marker
        self.needs_checkpoint = False  # an adopted folder is ours only once its first checkpoint is on disk
        self.on_first_checkpoint: Callable[[], None] | None = None
        self.on_durable_end: Callable[[], None] | None = None
        self._durable: WrittenPass
        self.read_positions: dict[int, SegmentPosition] = {}
        self._new: Dirty | None = None
        self.checkpointing = LogCheckpointer(files, folder, passes, checkpoints, self._drop_head)
        # The active segment, unpacked for `append`.
        self._active: PartitionSegment
        self._tail: Segment
        self._tail_index: SegmentIndex
        # The current pass.
        self._ticket: Ticket
        self._room_to = _NO_ROOM  # an append that ends before this needs nothing but its bytes collected
        self._newest_epoch = -1
        self._has_producers = False
        self._mark: RollbackPoint | None = None
        self._index_mark: IndexRollbackPoint | None = None  # set when this pass first changes the index
        self._rolls = 0  # number of segments begun in this pass
        self._parts = _NO_PARTS
        self._awaited: WrittenPass | None = None  # the next pass to become durable
        self._later: deque[WrittenPass] | None = None  # passes after it; usually none

    def change_settings(self, settings: LogSettings) -> None:
        self.settings = settings
        self._set_active(self.segments[-1])

    def _set_active(self, active: PartitionSegment) -> None:
        """Unpacks the active segment for `append`."""
        self._active = active
        self._tail = active.segment
        self._tail_index = active.growing
        self._room_to = _NO_ROOM
        self._roll_offset = active.segment.base + MAX_RELATIVE_OFFSET
        self._roll_bytes = min(self.settings.segment_bytes, MAX_POSITION)
        self._roll_at_ms = active.created_ms + self.settings.segment_ms
        self._set_checkpoint_limit()

    def _set_checkpoint_limit(self) -> None:
        self._checkpoint_at = self._active.checkpointed_to + self.settings.checkpoint_bytes

    @property
    def active(self) -> PartitionSegment:
        return self.segments[-1]

    @property
    def durable_position(self) -> SegmentPosition:
        return SegmentPosition(*self._durable[:3])

    @property
    def size_bytes(self) -> int:
        return sum(segment.segment.size for segment in self.segments)

    # -- beginning

    def begin(self, metadata: File | None) -> None:
        """Starts an empty log in a folder that may hold a new `metadata` file. Durable with the current pass."""
        segment = self.journal.roll(self.start)
        self.segments.append(PartitionSegment.fresh(segment, self.settings.index_interval_bytes, self.now_ms()))
        self.note_new(metadata)
        self._durable = (self.start, self.segments[0], 0, None)
        self._set_active(self.segments[-1])

    def note_new(self, metadata: File | None) -> None:
        """Marks the folder entries of this log as unsynced: the next pass syncs them."""
        self._new = self._new or Dirty()
        if metadata is not None:
            self._new.files.add(metadata)
        self._new.folders.update((self.folder, self.folder.rpartition("/")[0]))

    def resume(self, end: int, undurable: PartitionSegment | None) -> None:
        """Continues an existing log at `end`. Segments from `undurable` on are synced before they are read."""
        active = self.segments[-1]
        self.end = end
        self._has_producers = len(self.producers) > 0
        self.first_unstable_offset = self.producers.commit_pass()
        self._set_active(self.segments[-1])
        if undurable is None:
            self.durable_end = end
            self._durable = (end, active, active.segment.size, None)
        else:
            self.durable_end = self.start
            self._durable = (self.start, active, 0, None)
            self.journal.resync(undurable.segment)

    # -- appending

    def append(self, batch: Buffer, header: BatchHeader, leader_epoch: int) -> Ticket:
        """Assigns offsets from `end` on to `batch` (exactly one, already checked) and collects it for this pass."""
        size = len(batch)
        base_offset = self.end
        last_offset = base_offset + header.last_offset_delta
        segment = self._tail
        position = segment.size
        if position + size > self._room_to or last_offset > self._roll_offset:
            segment = self._make_room(size, last_offset)
            position = segment.size
        try:
            _stamp(batch, 0, base_offset, size - LENGTH_ENDS_AT, leader_epoch)
            self._parts.append(batch)
        except TypeError:  # read-only buffer
            self._parts += (stamped_prefix(batch, base_offset, leader_epoch), memoryview(batch)[PREFIX.size :])
        segment.size = position + size
        self.end = last_offset + 1
        index = self._tail_index
        if position > index.due_after or header.max_timestamp_ms > index.largest_ms:
            if self._index_mark is None:
                self._index_mark = index.mark()
            index.note(last_offset, position, header.max_timestamp_ms)
        if leader_epoch > self._newest_epoch:
            self.note_epoch(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self.apply_producer(header._replace(base_offset=base_offset), batch)
        return self._ticket

    def latest_ticket(self) -> Ticket:
        """Returns the ticket of the last append, for a response that repeats that of an earlier append."""
        return self.journal.latest_ticket()

    def _make_room(self, size: int, last_offset: int) -> Segment:
        """Returns the segment for the next batch. Called for the first batch of a pass and when the segment is full."""
        if self._mark is None:
            self._begin_pass()
        end = self._tail.size + size
        # A batch larger than `segment_bytes` gets a segment of its own.
        if (end > self._roll_bytes or last_offset > self._roll_offset) and end > size:
            self.roll()
        # Keep the list that this pass collects batches in: asking the journal for every batch doubles the cost.
        self._parts, self._ticket = self.journal.collect(self._tail)
        self._room_to = self._roll_bytes
        return self._tail

    def roll(self) -> PartitionSegment:
        """Seals the active segment and starts the next, named by the next offset."""
        if self._mark is None:
            self._begin_pass()
        sealed = self.segments[-1]
        if not sealed.segment.size:
            return sealed  # the next would have the same name: this pass began with a roll by age
        segment = self.journal.roll(self.end)
        self._rolls += 1
        self._index_mark = self._index_mark or self._tail_index.mark()
        sealed.seal(self.end)
        self.checkpointing.note_sealed(sealed)
        self.checkpointing.note_snapshot(self.end, self.producers)
        active = PartitionSegment.fresh(segment, self.settings.index_interval_bytes, self.now_ms())
        self.segments.append(active)
        self._set_active(self.segments[-1])
        return active

    def index_of(self, segment: PartitionSegment) -> SegmentIndex | StoredIndex:
        """Returns the offset and time index of a segment."""
        index = segment.index(self.files)
        if segment.is_stored:
            self._index_cache.use(segment)
        return index

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.append(EpochStart(epoch, start_offset))
        self._newest_epoch = epoch
        self.checkpointing.note_epochs()

    def take_epochs(self, epochs: list[EpochStart]) -> None:
        """Takes the leader epochs that were saved with a checkpoint."""
        self.epochs = epochs
        self.checkpointing.are_epochs_saved = True
        self._newest_epoch = epochs[-1].epoch if epochs else -1

    def apply_producer(self, header: BatchHeader, batch: Buffer) -> None:
        """Updates the state of the batch's producer and of its transaction."""
        self._has_producers = True
        ended = apply_batch(self.producers, header, batch)
        if ended is not None and ended.is_aborted:
            self.segments[-1].note_aborted(ended)

    def _begin_pass(self) -> None:
        if self.is_removed:
            raise UnknownTopic(self.folder)
        self._mark = (self.end, self._newest_epoch)
        now_ms = self.now_ms()
        if not self._tail.size:
            self._active.created_ms = now_ms  # a segment ages from its first record on
            self._roll_at_ms = now_ms + self.settings.segment_ms
        elif now_ms >= self._roll_at_ms:
            self.roll()

    # -- callbacks of the journal at the end of a pass

    def pass_written(self, number: int, dirty: Dirty) -> None:
        self._mark = self._index_mark = None
        self._rolls = 0
        self._room_to = _NO_ROOM
        self._parts = _NO_PARTS  # release the receive buffers that the written batches are views of
        if self.is_removed:
            return
        active, size = self._active, self._tail.size
        written = (self.end, active, size, self.producers.commit_pass() if self._has_producers else None)
        if self._awaited is None:
            self._awaited = written
        else:
            if self._later is None:
                self._later = deque()
            self._later.append(written)
        if self._new is not None:
            dirty.merge(self._new)
            self._new = None
        if self.checkpointing.has_work or size >= self._checkpoint_at:
            # The start before a head cut of this pass, which may still be refused: `cut_head` saves its start itself.
            tail = LogState(self.segments[0].segment.base, self.end, active, self.producers, self.epochs)
            self.checkpointing.write_pass(number, tail, self.settings.checkpoint_bytes, dirty)
            self._set_checkpoint_limit()

    def pass_undone(self) -> None:
        mark, index_mark, rolls = self._mark, self._index_mark, self._rolls
        self._mark = self._index_mark = None
        self._rolls = 0
        self._parts = _NO_PARTS
        if mark is None:
            return
        self.end, self._newest_epoch = mark
        del self.segments[len(self.segments) - rolls :]
        active = self.segments[-1]
        active.roll_back_to(index_mark or active.growing.mark(), self.end)
        self._set_active(self.segments[-1])
        while self.epochs and self.epochs[-1].epoch > self._newest_epoch:
            self.epochs.pop()
        self.producers.undo_pass()
        self.checkpointing.roll_back_to(active.segment.base)

    def pass_durable(self, number: int) -> None:
        if self.is_removed:
            return
        assert self._awaited is not None, "only a written pass becomes durable"
        self._durable = self._awaited
        self._awaited = self._later.popleft() if self._later else None
        self.durable_end, _, _, self.first_unstable_offset = self._durable
        if self.on_durable_end is not None:
            self.on_durable_end()

    def checkpoint(self) -> None:
        """Writes a checkpoint with the current pass."""
        self.checkpointing.request()
        self.journal.join_pass()

    def close(self) -> None:
        """Writes a last checkpoint. The log is closed when the pass that this starts is durable."""
        active = self.segments[-1]
        if active.checkpointed_to < active.segment.size or self.checkpointing.has_work:
            self.checkpoint()
        self.journal.trim_preallocation()

    # -- the head

    def cut_head(self, offset: int) -> Ticket:
        """Deletes records before `offset`. Segments that hold only such records are removed once the new start is on
        disk, or a restart would look for them."""
        if not self.start <= offset <= self.durable_end:
            raise OffsetOutOfRange(offset, self.start, self.durable_end)
        if offset == self.start and self._checkpoints.point(self.folder) is None:
            return self.latest_ticket()  # nothing to save; the folder itself may not be on disk yet
        self.start = offset
        if self._passes.is_all_on_disk:
            return self._save_head()
        # Sync first: a restart must not find the new start while records before it exist only in the page cache.
        ticket = self.journal.join_pass()
        self._passes.on_synced(ticket, lambda done: self._restore_head() if done.refusal else self._save_head())
        return ticket

    def _save_head(self) -> Ticket:
        if self.is_removed:
            return Ticket(0)
        if self.checkpointing.has_work:
            self.journal.join_pass()  # segments stay until the checkpoint is written
        point = self._point_now()
        ticket = self._checkpoints.save(self.folder, point)
        self._passes.on_synced(ticket, lambda done: self._restore_head() if done.refusal else self._drop_head(point))
        return ticket

    def _point_now(self) -> RecoveryPoint:
        """Returns the last checkpoint with the present start. Later records are still needed for producer states."""
        known = self._checkpoints.point(self.folder)
        if known is not None:
            return known._replace(start=self.start)
        base = self.segments[0].segment.base
        return RecoveryPoint(base, base, 0, self.start, -1)

    def _restore_head(self) -> None:
        known = self._checkpoints.point(self.folder)
        self.start = max(self.segments[0].segment.base, 0 if known is None else known.start)

    def _drop_head(self, point: RecoveryPoint) -> None:
        """Removes the segments and epochs that a restart from `point` does not need."""
        if self.is_removed:
            return
        if self.needs_checkpoint:
            self.needs_checkpoint = False
            if self.on_first_checkpoint is not None:
                self.on_first_checkpoint()
        while len(self.segments) > 1 and self.segments[1].segment.base <= min(point.start, point.base):
            self.remove(self.segments[0])
        while len(self.epochs) > 1 and self.epochs[1].start_offset <= point.start:
            del self.epochs[0]
            self.checkpointing.note_epochs()

    def replace_segments(self, old: Sequence[PartitionSegment], new: PartitionSegment) -> None:
        """Replaces the adjacent segments `old` by `new`, which holds their remaining records. Touches no file."""
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = [new]
        first = self.journal.segments.index(old[0].segment)
        self.journal.segments[first : first + len(old)] = [new.segment]
        self.read_positions.clear()
        for segment in old:
            segment.is_gone = True
            self._index_cache.forget(segment)

    def remove(self, segment: PartitionSegment) -> None:
        """Removes a sealed segment and its companion files."""
        self.segments.remove(segment)
        segment.is_gone = True
        self._index_cache.forget(segment)
        self.read_positions = {
            offset: place for offset, place in self.read_positions.items() if place.segment is not segment
        }
        self.journal.remove(segment.segment, SEGMENT_COMPANIONS)
        self._checkpoints.forget_sealed(self.folder, segment.segment.base)

    def abandon(self) -> None:
        """Stops all writes: the folder is about to be deleted, and another log may reuse its name."""
        self.is_removed = True
        self.checkpointing.stop()
        self.journal.abandon(UnknownTopic(self.folder))
