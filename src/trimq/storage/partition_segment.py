"""One segment of a partition log with its indexes: where an offset, a time or a byte limit falls in it, and whether its
bytes are sound."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from trimq.errors import DamagedSegment
from trimq.formats.batch import BadBatch, BatchHeader, check_stored, walk
from trimq.storage import transaction_index
from trimq.storage.companions import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, Unusable
from trimq.storage.files import Files
from trimq.storage.flusher import Dirty
from trimq.storage.partition_index import IndexMark, SegmentIndex, StoredIndex
from trimq.storage.producer_snapshot import EndedTransaction
from trimq.storage.segment import Segment
from trimq.storage.transaction_index import AbortedTransaction

log = logging.getLogger(__name__)

_INTERVAL_BYTES = 4096  # of an index that is built anew for reading


class TailMark(NamedTuple):
    """Where a segment's indexes were when a pass began."""

    entries: IndexMark
    aborted: int


class _Written(NamedTuple):
    """How many entries of each index are in the files."""

    offsets: int
    times: int
    aborted: int


class PartitionSegment:
    __slots__ = (
        "_index",
        "_written",
        "aborted",
        "checked_to",
        "checkpointed_to",
        "created_ms",
        "end_offset",
        "segment",
        "trusted_from",
    )

    def __init__(self, segment: Segment, created_ms: int, index: SegmentIndex | None) -> None:
        self.segment = segment
        self.created_ms = created_ms
        self._index: SegmentIndex | StoredIndex | None = index
        self.aborted: list[AbortedTransaction] | None = None if index is None else []
        self.end_offset = -1  # of a sealed one: the base of the next
        # Bytes from here on were written or checked by this process; those before, up to `checked_to`, were read once.
        self.trusted_from = segment.size
        self.checked_to = 0
        self.checkpointed_to = segment.size
        self._written = _Written(0, 0, 0)

    @classmethod
    def fresh(cls, segment: Segment, interval_bytes: int, created_ms: int) -> PartitionSegment:
        """A new one, for appending."""
        return cls(segment, created_ms, SegmentIndex(segment.base, interval_bytes))

    @property
    def growing(self) -> SegmentIndex:
        """The index of a segment that is, or was in this run, appended to."""
        assert isinstance(self._index, SegmentIndex)
        return self._index

    # -- growing

    def note(self, header: BatchHeader, last_offset: int, position: int, size: int) -> None:
        self.growing.note(last_offset, position, size, header.max_timestamp_ms if header.record_count else -1)

    def note_aborted(self, ended: EndedTransaction) -> None:
        """The marker of an aborted transaction stands here. Of a segment that was sealed earlier, its file knows."""
        if self.aborted is not None:
            self.aborted.append(
                AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
            )

    def mark(self) -> TailMark:
        index = self._index
        assert isinstance(index, SegmentIndex)
        return TailMark(index.mark(), len(self.aborted) if self.aborted else 0)

    def back_to(self, mark: TailMark) -> None:
        self.growing.back_to(mark.entries)
        if self.aborted:
            del self.aborted[mark.aborted :]
        self.end_offset = -1

    def seal(self, end_offset: int) -> None:
        self.growing.seal()
        self.end_offset = end_offset

    # -- companion files

    def write_indexes(self, files: Files, dirty: Dirty) -> None:
        """Bring the index files up to what is known in memory."""
        index, written = self.growing, self._written
        _extend(files, self.path(OFFSET_INDEX), written.offsets, index.encode_offsets(written.offsets), 8, dirty)
        _extend(files, self.path(TIME_INDEX), written.times, index.encode_times(written.times), 12, dirty)
        aborted = self.aborted or []
        if len(aborted) > written.aborted:
            data = b"".join(map(transaction_index.encode, aborted[written.aborted :]))
            _extend(files, self.path(TRANSACTION_INDEX), written.aborted, data, transaction_index.ENTRY_BYTES, dirty)
        self._written = _Written(index.offset_entries, index.time_entries, len(aborted))

    def path(self, suffix: str) -> str:
        return self.segment.file.name[: -len(LOG)] + suffix

    def index(self, files: Files) -> SegmentIndex | StoredIndex:
        """The indexes, from memory, from their files, or built anew from the log if the files cannot be used."""
        if self._index is None:
            try:
                self._index = StoredIndex(
                    self.segment.base,
                    _contents(files, self.path(OFFSET_INDEX)),
                    _contents(files, self.path(TIME_INDEX)),
                    self.segment.size,
                    self.end_offset,
                )
            except (Unusable, OSError) as error:
                log.warning("%s: an index is built anew: %s", self.segment.file.name, error)
                self._index = self._build_index()
        return self._index

    def rebuild_index(self, reason: Exception) -> SegmentIndex:
        """The index files say what cannot be: the log is the truth."""
        log.warning("%s: an index is built anew: %s", self.segment.file.name, reason)
        self._index = self._build_index()
        return self._index

    def _build_index(self) -> SegmentIndex:
        index = SegmentIndex(self.segment.base, _INTERVAL_BYTES)
        for position, header in self.walk(0, self.segment.size):
            index.note(
                header.last_offset, position, header.size, header.max_timestamp_ms if header.record_count else -1
            )
        index.seal()
        return index

    def aborted_transactions(self, files: Files) -> list[AbortedTransaction]:
        """Those whose markers stand in this segment."""
        if self.aborted is None:
            try:
                self.aborted = transaction_index.decode(_contents(files, self.path(TRANSACTION_INDEX)))
            except FileNotFoundError:
                self.aborted = []
        return self.aborted

    def resume(self, files: Files, interval_bytes: int, trusted_bytes: int, markers_before: int) -> int:
        """Take the indexes up for appending again: the batches of the trusted bytes, the markers before an offset.
        Gives the position from which batches must be noted anew."""
        offsets = _contents_or_nothing(files, self.path(OFFSET_INDEX))
        times = _contents_or_nothing(files, self.path(TIME_INDEX))
        self._index, position = SegmentIndex.resume(self.segment.base, interval_bytes, offsets, times, trusted_bytes)
        try:
            known = transaction_index.decode(_contents_or_nothing(files, self.path(TRANSACTION_INDEX)))
        except Unusable as reason:
            log.warning("%s: %s", self.segment.file.name, reason)
            known = []
        self.aborted = [aborted for aborted in known if aborted.last_offset < markers_before]
        self._written = _Written(self._index.offset_entries, self._index.time_entries, len(self.aborted))
        self.end_offset = -1
        return position

    # -- reading

    def walk(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches that begin between two bytes, which are boundaries of batches. DamagedSegment: they are not."""
        if end <= position:
            return
        view = self.segment.view(position, end - position)
        try:
            for at, header in walk(view, 0, len(view)):
                yield position + at, header
        except BadBatch:
            raise DamagedSegment(self.segment.file.name, position) from None

    def require_sound(self, position: int, end: int) -> None:
        """Refuse bytes that do not match their checksums. What this process wrote or has checked is not read again."""
        if position >= self.trusted_from or end <= self.checked_to:
            return
        view = self.segment.view(position, end - position)
        at = 0
        while at < len(view):
            try:
                at += check_stored(view, at).size
            except BadBatch:
                raise DamagedSegment(self.segment.file.name, position + at) from None
        if position <= self.checked_to:
            self.checked_to = max(self.checked_to, end)


def _extend(files: Files, name: str, entries: int, data: bytes, entry_bytes: int, dirty: Dirty) -> None:
    file = files.open(name, create=True)
    size = file.size()
    if size > entries * entry_bytes:
        file.resize(entries * entry_bytes)  # what a pass that was undone, or another run, left behind
    if data:
        file.write(entries * entry_bytes, [data])
    dirty.files.add(file)
    if size == 0:
        dirty.folders.add(name.rpartition("/")[0])


def _contents(files: Files, name: str) -> memoryview | bytes:
    file = files.open(name)
    size = file.size()
    return file.view(0, size) if size else b""


def _contents_or_nothing(files: Files, name: str) -> memoryview | bytes:
    try:
        return _contents(files, name)
    except FileNotFoundError:
        return b""
