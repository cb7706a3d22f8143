"""Sparse indexes of a segment by offset and by time, in Kafka's formats. Knows entries, never the log itself.

`.index`, 8 bytes:       0  relative offset  4      4  position         4
`.timeindex`, 12 bytes:  0  timestamp        8      8  relative offset  4

An entry of the offset index holds the *last* offset of the batch that begins at its position. It is added for the
first batch that begins more than `index.interval.bytes` after the batch of the previous entry; the batch at position 0
has none. An entry of the time index holds the largest timestamp so far, and the last offset of the first batch with it.
It is added together with an offset entry, and when the segment is sealed, if the timestamp has grown.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from trimq.model import Buffer
from trimq.storage.checkpoints.file_names import OFFSET_INDEX, TIME_INDEX, CorruptCompanion

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
MAX_RELATIVE_OFFSET = (1 << 31) - 1  # Kafka reads these fields as signed
MAX_POSITION = (1 << 31) - 1
NO_TIMESTAMP = -1

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


class OffsetPosition(NamedTuple):
    """A batch begins at `position`, and `offset` is its last offset. Position 0 with the segment's base means the
    beginning."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """Up to `offset`, the last of a batch, no record is later than `timestamp_ms`; before that batch all are earlier.
    Timestamp -1 with the segment's base means unknown."""

    timestamp_ms: int
    offset: int


IndexRollbackPoint = tuple[int, int, int, int]
"""Earlier state of an index. A plain tuple, since every pass of every stream creates one."""


class SegmentIndex:
    """Growing index of the active segment, kept in memory and written to its files from time to time."""

    __slots__ = (
        "_entered_ms",
        "_offset_of_largest",
        "_offsets",
        "_positions",
        "_time_offsets",
        "_timestamps",
        "base",
        "due_after",
        "interval_bytes",
        "largest_ms",
    )

    def __init__(self, base: int, interval_bytes: int) -> None:
        self.base = base
        self.interval_bytes = interval_bytes
        self.largest_ms = NO_TIMESTAMP
        self._offset_of_largest = base
        self._offsets = array("I")
        self._positions = array("I")
        self._timestamps = array("q")
        self._time_offsets = array("I")
        self._entered_ms = NO_TIMESTAMP  # timestamp of the last entry of the time index
        self.due_after = interval_bytes
        """The first batch that begins after this position gets an entry."""

    @property
    def offset_entries(self) -> int:
        return len(self._offsets)

    @property
    def time_entries(self) -> int:
        return len(self._timestamps)

    @property
    def largest(self) -> TimestampOffset:
        """Largest timestamp so far, and the last offset of the first batch with it."""
        return TimestampOffset(self.largest_ms, self._offset_of_largest)

    def takes(self, last_offset: int, position: int) -> bool:
        """Returns whether an entry can represent this batch. If not, the segment must be rolled before it."""
        return last_offset - self.base <= MAX_RELATIVE_OFFSET and position <= MAX_POSITION

    def note(self, last_offset: int, position: int, max_timestamp_ms: int) -> None:
        """Called for each appended batch. For a batch without records (left by compaction) pass timestamp -1.

        A batch that is neither after `due_after` nor later than `largest_ms` changes nothing: appenders of many small
        batches may skip the call for those.
        """
        if max_timestamp_ms > self.largest_ms:
            self.largest_ms = max_timestamp_ms
            self._offset_of_largest = last_offset
        if position > self.due_after:
            self._offsets.append(last_offset - self.base)
            self._positions.append(position)
            if self.largest_ms > self._entered_ms:
                self._add_largest()
            self.due_after = position + self.interval_bytes

    def seal(self) -> None:
        """Adds an entry for the largest timestamp, which retention uses as the segment's age. Nothing is appended
        afterwards."""
        if self.largest_ms > self._entered_ms:
            self._add_largest()

    def _add_largest(self) -> None:
        self._timestamps.append(self.largest_ms)
        self._time_offsets.append(self._offset_of_largest - self.base)
        self._entered_ms = self.largest_ms

    # -- undo of a pass

    def mark(self) -> IndexRollbackPoint:
        return self.due_after, self._entered_ms, self.largest_ms, self._offset_of_largest

    def roll_back_to(self, mark: IndexRollbackPoint) -> None:
        """Drops everything noted since `mark` was taken."""
        self.due_after, self._entered_ms, self.largest_ms, self._offset_of_largest = mark
        offset_entries = bisect_right(self._positions, self.due_after - self.interval_bytes)
        time_entries = bisect_right(self._timestamps, self._entered_ms)
        del self._offsets[offset_entries:]
        del self._positions[offset_entries:]
        del self._timestamps[time_entries:]
        del self._time_offsets[time_entries:]

    # -- lookup

    def lookup(self, offset: int) -> OffsetPosition:
        """Returns the last entry at or before `offset`, from which to read on."""
        return self._offset_entry(bisect_right(self._offsets, _clamp(offset - self.base)) - 1)

    def boundary_before(self, position: int) -> OffsetPosition:
        """Returns the last entry whose batch begins at or before a byte."""
        return self._offset_entry(bisect_right(self._positions, _clamp(position)) - 1)

    def lookup_timestamp(self, timestamp_ms: int) -> TimestampOffset:
        """Returns the last entry that is not later. Records of this time or later are in the entry's batch or after
        it."""
        place = bisect_right(self._timestamps, timestamp_ms) - 1
        if place < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base)
        return TimestampOffset(self._timestamps[place], self.base + self._time_offsets[place])

    def _offset_entry(self, place: int) -> OffsetPosition:
        if place < 0:
            return OffsetPosition(self.base, 0)
        return OffsetPosition(self.base + self._offsets[place], self._positions[place])

    # -- to and from the files

    def encode_offsets(self, first_entry: int = 0) -> bytes:
        """Returns the contents of the offset index file from entry `first_entry` on."""
        return _interleave(self._offsets[first_entry:], self._positions[first_entry:])

    def encode_times(self, first_entry: int = 0) -> bytes:
        """Returns the contents of the time index file from entry `first_entry` on."""
        words = array("I", self._timestamps[first_entry:].tobytes())
        high, low = (1, 0) if sys.byteorder == "little" else (0, 1)
        return _interleave(words[high::2], words[low::2], self._time_offsets[first_entry:])

    @classmethod
    def resume(
        cls,
        base: int,
        interval_bytes: int,
        offsets: Buffer,
        times: Buffer,
        trusted_bytes: int,
        is_batch: Callable[[OffsetPosition], bool] = lambda entry: True,
    ) -> tuple[SegmentIndex, int]:
        """Returns the index as it was before its last entry within the trusted part of the log, and that entry's
        position.

        Note all batches from there on: that adds the entry again, and no timestamp is missed. `offsets` and `times` are
        the contents of the files, of which only the beginning need be valid. If the log has no batch matching the
        entry, as `is_batch` reports, the index starts again at position 0.
        """
        index = cls(base, interval_bytes)
        entries = list(_sound_offsets(base, offsets, trusted_bytes))
        timestamps = list(_sound_times(base, times))
        if not entries or not timestamps:  # no timestamps: the records have none, or the file is lost
            return index, 0
        last = entries.pop()
        if not is_batch(last):
            return index, 0
        for offset, position in entries:
            index._offsets.append(offset - base)
            index._positions.append(position)
        for entry in timestamps:
            # The entry added with `last` may refer to an earlier batch, which is not noted again.
            if entry.offset < last.offset:
                index._timestamps.append(entry.timestamp_ms)
                index._time_offsets.append(entry.offset - base)
                index.largest_ms, index._offset_of_largest = entry
                index._entered_ms = entry.timestamp_ms
        index.due_after = (entries[-1].position if entries else 0) + interval_bytes
        return index, last.position


def _interleave(*columns: array[int]) -> bytes:
    """Interleaves the columns as big-endian 32-bit numbers. A checkpoint writes thousands of entries while every
    connection waits, and struct takes thirty times as long."""
    mixed = array("I", bytes(4 * len(columns) * len(columns[0])))
    for place, column in enumerate(columns):
        mixed[place :: len(columns)] = column
    if sys.byteorder == "little":
        mixed.byteswap()
    return mixed.tobytes()


def _clamp(value: int) -> int:
    return max(-1, min(value, MAX_POSITION + 1))  # the range that an array compares without an error


class StoredIndex:
    """Index of a sealed segment, searched in place. A hint: its entries must be consistent with each other and the log.

    The constructor checks only the ends of the files, each lookup only the entries on its path; both raise
    `CorruptCompanion` for impossible entries. Readers check results against the log: the batch at the returned position
    must end at the returned offset, and a returned timestamp must be the largest of its batch. The files must not be
    truncated while this is used, because they are views of a map. An index is rebuilt in a new file.
    """

    __slots__ = ("_end_offset", "_log_bytes", "_offset_count", "_offsets", "_time_count", "_times", "base")

    def __init__(self, base: int, offsets: Buffer, times: Buffer, log_bytes: int, end_offset: int) -> None:
        """`offsets` and `times` are the contents of the files; `end_offset` is the offset after the segment's last."""
        self.base = base
        self._offsets = offsets
        self._times = times
        self._log_bytes = log_bytes
        self._end_offset = end_offset
        self._offset_count = self._count_offsets()
        self._time_count = self._count_times()
        if self._offset_count:
            self._offset_entry(self._offset_count - 1)
        if self._time_count:
            self._time_entry(self._time_count - 1)

    # Kafka creates the files larger than needed, filled with zeros, and truncates them when the segment is sealed or
    # the broker stops. After a crash the zeros are still there; no entry except the first of a time index can be all
    # zeros.

    def _count_offsets(self) -> int:
        slots = _slots(self._offsets, OFFSET_ENTRY_BYTES, OFFSET_INDEX)
        return bisect_left(range(slots), True, key=lambda place: _is_unused(_OFFSET_ENTRY, self._offsets, place))

    def _count_times(self) -> int:
        slots = _slots(self._times, TIME_ENTRY_BYTES, TIME_INDEX)
        later = bisect_left(range(1, slots), True, key=lambda place: _is_unused(_TIME_ENTRY, self._times, place))
        if slots > 1 and later == 0 and _is_unused(_TIME_ENTRY, self._times, 0):
            return 0
        return min(slots, later + 1)

    def _offset_entry(self, place: int) -> OffsetPosition:
        relative, position = _OFFSET_ENTRY.unpack_from(self._offsets, OFFSET_ENTRY_BYTES * place)
        if self.base + relative >= self._end_offset or not 0 < position < self._log_bytes:
            raise CorruptCompanion(f"{OFFSET_INDEX}: entry {place} ({relative}, {position}) is outside its segment")
        return OffsetPosition(self.base + relative, position)

    def _time_entry(self, place: int) -> TimestampOffset:
        timestamp_ms, relative = _TIME_ENTRY.unpack_from(self._times, TIME_ENTRY_BYTES * place)
        if self.base + relative >= self._end_offset or timestamp_ms < 0:
            raise CorruptCompanion(f"{TIME_INDEX}: entry {place} ({timestamp_ms}, {relative}) is outside its segment")
        return TimestampOffset(timestamp_ms, self.base + relative)

    # -- lookup, like SegmentIndex

    def lookup(self, offset: int) -> OffsetPosition:
        return self._search_offsets(0, offset - self.base)

    def boundary_before(self, position: int) -> OffsetPosition:
        return self._search_offsets(1, position)

    def _search_offsets(self, field: int, target: int) -> OffsetPosition:
        end = (self._end_offset - self.base, self._log_bytes)
        found = _search(_OFFSET_ENTRY, self._offsets, self._offset_count, field, target, (-1, 0), end)
        if found is None:
            return OffsetPosition(self.base, 0)
        return OffsetPosition(self.base + found[0], found[1])

    def lookup_timestamp(self, timestamp_ms: int) -> TimestampOffset:
        end = (1 << 63, self._end_offset - self.base)
        found = _search(_TIME_ENTRY, self._times, self._time_count, 0, timestamp_ms, (NO_TIMESTAMP, -1), end)
        if found is None:
            return TimestampOffset(NO_TIMESTAMP, self.base)
        return TimestampOffset(found[0], self.base + found[1])

    @property
    def largest(self) -> TimestampOffset:
        """Largest timestamp of the segment if it was sealed; otherwise an earlier value."""
        return self._time_entry(self._time_count - 1) if self._time_count else TimestampOffset(NO_TIMESTAMP, self.base)

    # -- iteration over all entries, for a check

    def offsets(self) -> Iterator[OffsetPosition]:
        before = OffsetPosition(self.base - 1, 0)
        for place in range(self._offset_count):
            entry = self._offset_entry(place)
            if entry.offset <= before.offset or entry.position <= before.position:
                raise CorruptCompanion(f"{OFFSET_INDEX}: entry {place} {entry} is out of order")
            yield entry
            before = entry

    def times(self) -> Iterator[TimestampOffset]:
        before = TimestampOffset(NO_TIMESTAMP, self.base - 1)
        for place in range(self._time_count):
            entry = self._time_entry(place)
            if entry.timestamp_ms <= before.timestamp_ms or entry.offset <= before.offset:
                raise CorruptCompanion(f"{TIME_INDEX}: entry {place} {entry} is out of order")
            yield entry
            before = entry


def _search(
    entry: struct.Struct,
    data: Buffer,
    count: int,
    field: int,
    target: int,
    below: tuple[int, int],
    above: tuple[int, int],
) -> tuple[int, int] | None:
    """Returns the last entry whose `field` is not greater than `target`. All entries on the search path must be
    ascending in both fields."""
    first, last = 0, count
    while first < last:
        place = (first + last) // 2
        found: tuple[int, int] = entry.unpack_from(data, entry.size * place)
        if not (below[0] < found[0] < above[0] and below[1] < found[1] < above[1]):
            raise CorruptCompanion(f"entry {place} {found} of an index is out of order")
        if found[field] <= target:
            first, below = place + 1, found
        else:
            last, above = place, found
    return below if first else None


def _slots(data: Buffer, entry_bytes: int, name: str) -> int:
    slots, rest = divmod(len(data), entry_bytes)
    if rest:
        raise CorruptCompanion(f"{name}: {len(data)} bytes are not a multiple of {entry_bytes}")
    return slots


def _is_unused(entry: struct.Struct, data: Buffer, place: int) -> bool:
    return entry.unpack_from(data, entry.size * place) == (0, 0)


def _sound_offsets(base: int, data: Buffer, trusted_bytes: int) -> Iterator[OffsetPosition]:
    before = OffsetPosition(base - 1, 0)
    for relative, position in _OFFSET_ENTRY.iter_unpack(memoryview(data)[: len(data) // 8 * 8]):
        entry = OffsetPosition(base + relative, position)
        if not (before.offset < entry.offset and before.position < position < trusted_bytes):
            return
        yield entry
        before = entry


def _sound_times(base: int, data: Buffer) -> Iterator[TimestampOffset]:
    before = TimestampOffset(NO_TIMESTAMP, base - 1)
    for timestamp_ms, relative in _TIME_ENTRY.iter_unpack(memoryview(data)[: len(data) // 12 * 12]):
        entry = TimestampOffset(timestamp_ms, base + relative)
        if not (before.timestamp_ms < timestamp_ms and before.offset < entry.offset):
            return
        yield entry
        before = entry
