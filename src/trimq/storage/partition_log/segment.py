"""One segment of a partition log with its indexes: finds the position of an offset, a time or a byte limit, and checks
its bytes against their checksums. Knows batches, never clients."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import NamedTuple

from trimq.errors import DamagedSegment
from trimq.formats.checksum import crc32c
from trimq.formats.kafka_batch.header import BadBatch, BatchHeader, check_bounds, check_stored
from trimq.model import Buffer
from trimq.storage.checkpoints.file_names import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, CorruptCompanion
from trimq.storage.checkpoints.log_checkpoints import IndexSums
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.segment import Segment, segment_name
from trimq.storage.io.files import Files
from trimq.storage.partition_log import aborted_index
from trimq.storage.partition_log.aborted_index import ENTRY_BYTES as ABORTED_BYTES
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.index import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexRollbackPoint,
    SegmentIndex,
    StoredIndex,
)
from trimq.storage.partition_log.producers import EndedTransaction

log = logging.getLogger(__name__)

_INTERVAL_BYTES = 4096  # of an index that is rebuilt for reading
_COPIED_BYTES = 64 * 1024


class PartitionSegment:
    __slots__ = (
        "_index",
        "aborted",
        "checked_to",
        "checkpointed_to",
        "created_ms",
        "end_offset",
        "is_gone",
        "is_stored",
        "segment",
        "trusted_from",
        "written",
    )

    def __init__(self, segment: Segment, created_ms: int, index: SegmentIndex | None) -> None:
        self.segment = segment
        self.created_ms = created_ms
        self._index: SegmentIndex | StoredIndex | None = index
        self.aborted: list[AbortedTransaction] | None = None if index is None else []
        self.end_offset = -1  # if sealed: the base of the next one
        self.is_stored = False  # its index files are whole and durable, and their checksums saved
        self.is_gone = False  # removed from its log
        # Bytes from here on were written or checked by this process; of those before, the bytes up to `checked_to` were
        # checked on a read.
        self.trusted_from = segment.size
        self.checked_to = 0
        self.checkpointed_to = segment.size
        # Contents of the index files; None if unknown, so that they must not be used.
        self.written: IndexSums | None = IndexSums()

    @classmethod
    def fresh(cls, segment: Segment, interval_bytes: int, created_ms: int) -> PartitionSegment:
        """Returns a new segment, for appending."""
        return cls(segment, created_ms, SegmentIndex(segment.base, interval_bytes))

    @classmethod
    def stored(cls, segment: Segment, end_offset: int, index: IndexSums | None) -> PartitionSegment:
        """Returns a segment that an earlier process has sealed."""
        stored = cls(segment, 0, None)
        stored.end_offset = end_offset
        stored.written = index
        stored.is_stored = True
        return stored

    @property
    def is_index_loaded(self) -> bool:
        return self._index is not None

    def release(self) -> None:
        """Drops data that can be read from the files again."""
        self._index = self.aborted = None

    @property
    def growing(self) -> SegmentIndex:
        """Index of a segment that this process appends, or has appended, to."""
        assert isinstance(self._index, SegmentIndex)
        return self._index

    # -- growing

    def note(self, header: BatchHeader, last_offset: int, position: int) -> None:
        self.growing.note(last_offset, position, header.max_timestamp_ms if header.record_count else -1)

    def note_aborted(self, ended: EndedTransaction) -> None:
        """Called for the marker of an aborted transaction in this segment. Does nothing if the index is not loaded: the
        file of a segment sealed earlier has it."""
        if self.aborted is not None:
            self.aborted.append(AbortedTransaction(*ended[:4]))

    def roll_back_to(self, mark: IndexRollbackPoint, end: int) -> None:
        """Restores the indexes to the state before the append of offset `end`."""
        self.growing.roll_back_to(mark)
        if self.aborted:
            self.aborted = [aborted for aborted in self.aborted if aborted.last_offset < end]
        self.end_offset = -1

    def seal(self, end_offset: int) -> None:
        self.growing.seal()
        self.end_offset = end_offset

    # -- companion files

    def write_indexes(self, files: Files, dirty: Dirty) -> IndexSums:
        """Brings the index files up to date with memory. Returns their entry counts and checksums."""
        index, written, aborted = self.growing, self.written or IndexSums(), self.aborted or []
        offsets = index.encode_offsets(written.offsets)
        times = index.encode_times(written.times)
        markers = b"".join(map(aborted_index.encode, aborted[written.aborted :]))
        _extend(files, self.path(OFFSET_INDEX), written.offsets * OFFSET_ENTRY_BYTES, offsets, dirty)
        _extend(files, self.path(TIME_INDEX), written.times * TIME_ENTRY_BYTES, times, dirty)
        if markers or self._file_size(files, TRANSACTION_INDEX):
            _extend(files, self.path(TRANSACTION_INDEX), written.aborted * ABORTED_BYTES, markers, dirty)
        self.written = IndexSums(
            index.offset_entries,
            crc32c(offsets, written.offsets_crc),
            index.time_entries,
            crc32c(times, written.times_crc),
            len(aborted),
            crc32c(markers, written.aborted_crc),
            index.largest.timestamp_ms,
        )
        return self.written

    def has_leftovers(self, files: Files, names: Collection[str], sums: IndexSums | None) -> bool:
        """Returns whether an index file is longer than recorded: the crash was during its write. `names`: the files in
        the folder; querying the disk for missing files takes a fifth of the time to open a log."""
        known = sums or IndexSums()
        sizes = {
            OFFSET_INDEX: known.offsets * OFFSET_ENTRY_BYTES,
            TIME_INDEX: known.times * TIME_ENTRY_BYTES,
            TRANSACTION_INDEX: known.aborted * ABORTED_BYTES,
        }
        return any(
            segment_name(self.segment.base, suffix) in names and self._file_size(files, suffix) > size
            for suffix, size in sizes.items()
        )

    def _file_size(self, files: Files, suffix: str) -> int:
        try:
            return files.open(self.path(suffix)).size()
        except FileNotFoundError:
            return 0

    def path(self, suffix: str) -> str:
        return self.segment.file.name[: -len(LOG)] + suffix

    def index(self, files: Files) -> SegmentIndex | StoredIndex:
        """Returns the indexes from memory or from their files; rebuilds them from the log if the files are invalid."""
        if self._index is None:
            try:
                self._index = self._load_index(files)
            except (CorruptCompanion, OSError) as error:
                log.warning("%s: rebuilding the index: %s", self.segment.file.name, error)
                self._index = self._build_index()
        return self._index

    def _load_index(self, files: Files) -> StoredIndex:
        known = self.written
        if known is None:
            raise CorruptCompanion("the checkpoint has no record of its files")
        offsets = self._contents(files, OFFSET_INDEX, known.offsets * OFFSET_ENTRY_BYTES, known.offsets_crc)
        times = self._contents(files, TIME_INDEX, known.times * TIME_ENTRY_BYTES, known.times_crc)
        return StoredIndex(self.segment.base, offsets, times, self.segment.size, self.end_offset)

    def _contents(self, files: Files, suffix: str, size: int, crc: int) -> Buffer:
        """Returns the recorded bytes. Raises CorruptCompanion if they are no longer there."""
        if size == 0:
            return b""
        file = files.open(self.path(suffix))
        if file.size() < size:
            raise CorruptCompanion(f"{suffix}: {file.size()} bytes are present, {size} were written")
        # Small contents are copied: a map keeps a descriptor open as long as it is used.
        data = file.read(0, size) if size <= _COPIED_BYTES else file.view(0, size)
        file.close()
        if crc32c(data) != crc:
            raise CorruptCompanion(f"{suffix}: the checksum does not match")
        return data

    def _build_index(self) -> SegmentIndex:
        index = SegmentIndex(self.segment.base, _INTERVAL_BYTES)
        for position, header in self.walk(0, self.segment.size):
            index.note(header.last_offset, position, header.max_timestamp_ms if header.record_count else -1)
        index.seal()
        return index

    def newest_timestamp(self, files: Files) -> int:
        """Returns the newest timestamp of the records; -1 if none has one."""
        if self.is_stored and self.written is not None:
            return self.written.newest_ms
        return self.index(files).largest.timestamp_ms

    def aborted_transactions(self, files: Files) -> list[AbortedTransaction]:
        """Returns the aborted transactions whose markers are in this segment. Raises CorruptCompanion if the index file
        is invalid."""
        if self.aborted is None:
            known = self.written
            if known is None:
                raise CorruptCompanion(f"{TRANSACTION_INDEX}: the checkpoint has no record of it")
            try:
                data = self._contents(files, TRANSACTION_INDEX, known.aborted * ABORTED_BYTES, known.aborted_crc)
            except OSError as error:
                raise CorruptCompanion(f"{TRANSACTION_INDEX}: {error}") from error
            self.aborted = aborted_index.decode(data)
        return self.aborted

    def resume(self, files: Files, interval_bytes: int, trusted_bytes: int, known: IndexSums | None) -> int:
        """Loads the indexes of the batches in the trusted bytes for further appends; `known` describes the files.
        Returns the position from which batches must be noted again. `aborted` is None afterwards if the markers in the
        trusted bytes must be found again too."""
        try:
            if known is None and trusted_bytes:
                raise CorruptCompanion("the checkpoint has no record of its files")
            return self._resume(files, interval_bytes, trusted_bytes, known or IndexSums())
        except (CorruptCompanion, OSError) as error:
            log.warning("%s: rebuilding the index: %s", self.segment.file.name, error)
            self._resume(files, interval_bytes, 0, IndexSums())
            self.aborted = None
            return 0

    def _resume(self, files: Files, interval_bytes: int, trusted_bytes: int, known: IndexSums) -> int:
        offsets = self._contents(files, OFFSET_INDEX, known.offsets * OFFSET_ENTRY_BYTES, known.offsets_crc)
        times = self._contents(files, TIME_INDEX, known.times * TIME_ENTRY_BYTES, known.times_crc)
        markers = self._contents(files, TRANSACTION_INDEX, known.aborted * ABORTED_BYTES, known.aborted_crc)
        index, position = SegmentIndex.resume(self.segment.base, interval_bytes, offsets, times, trusted_bytes)
        self._index = index
        self.aborted = aborted_index.decode(markers)
        self.written = IndexSums(
            index.offset_entries,
            crc32c(offsets[: index.offset_entries * OFFSET_ENTRY_BYTES]),
            index.time_entries,
            crc32c(times[: index.time_entries * TIME_ENTRY_BYTES]),
            known.aborted,
            known.aborted_crc,
        )
        self.end_offset = -1
        self.is_stored = False
        return position

    def forget_markers(self, first_offset: int) -> None:
        """Drops the markers from `first_offset` on, which will be noted again."""
        kept = [aborted for aborted in self.aborted or () if aborted.last_offset < first_offset]
        assert self.written is not None
        crc = crc32c(b"".join(map(aborted_index.encode, kept)))
        self.written = self.written._replace(aborted=len(kept), aborted_crc=crc)
        self.aborted = kept

    # -- reading

    def walk(self, position: int, end: int, first_ends_at: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yields the batches that begin between two batch boundaries, in order, without checking their records. Raises
        DamagedSegment if these are not batch boundaries, or if the first batch does not end at `first_ends_at`."""
        if end <= position:
            return
        view = self.segment.view(position, end - position)
        at, length, min_offset = 0, len(view), self.segment.base
        limit = min_offset + MAX_RELATIVE_OFFSET + 1 if self.end_offset < 0 else self.end_offset
        while at < length:
            try:
                header = check_bounds(view, at)
            except BadBatch:
                raise DamagedSegment(self.segment.file.name, position + at) from None
            last_offset = header.last_offset
            is_in_order = min_offset <= header.base_offset <= last_offset < limit
            if not is_in_order or first_ends_at not in (None, last_offset):
                raise DamagedSegment(self.segment.file.name, position + at)
            first_ends_at = None
            yield position + at, header
            min_offset = last_offset + 1
            at += header.size

    def walk_sound(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Like `walk`, but checks each checksum. Does not read again bytes that this process wrote or has checked."""
        view = self.segment.view(position, end - position) if end > position else b""
        for at, header in self.walk(position, end):
            if at < self.trusted_from and at + header.size > self.checked_to:
                try:
                    check_stored(view, at - position)
                except BadBatch:
                    raise DamagedSegment(self.segment.file.name, at) from None
            yield at, header

    def require_sound(self, position: int, end: int, next_offset: int | None = None) -> None:
        """Raises DamagedSegment for bytes that do not match their checksums, or that do not end before
        `next_offset`."""
        if position >= self.trusted_from or end <= self.checked_to:
            return
        for at, header in self.walk_sound(position, end):
            if next_offset is not None and header.next_offset > next_offset:
                raise DamagedSegment(self.segment.file.name, at)
        if position <= self.checked_to:
            self.checked_to = max(self.checked_to, end)


class SegmentPosition(NamedTuple):
    """An offset and the position where its bytes begin."""

    offset: int
    segment: PartitionSegment
    position: int


def _extend(files: Files, name: str, position: int, data: bytes, dirty: Dirty) -> None:
    file = files.open(name, create=True)
    size, end = file.size(), position + len(data)
    if data:
        file.write(position, [data])
    if size > end:
        file.resize(end)  # leftover of an undone pass or an earlier process
    dirty.files.add(file)
    if size == 0:
        dirty.folders.add(name.rpartition("/")[0])
