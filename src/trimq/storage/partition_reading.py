"""Finding and reading in a partition log: by offset, by time, and as whole batches up to a byte limit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimq.errors import DamagedSegment
from trimq.formats.batch import BadBatch, BatchHeader
from trimq.formats.records import find_max_timestamp, find_timestamp
from trimq.storage.companions import Unusable
from trimq.storage.partition_index import OffsetPosition
from trimq.storage.partition_log import PartitionLog, Place
from trimq.storage.partition_segment import PartitionSegment

# A consumer usually goes on where it, or another, has stopped: the places of so many ends are remembered.
_REMEMBERED_PLACES = 16


class Slice(NamedTuple):
    """Whole batches as they are stored, and the offset that follows them."""

    parts: Sequence[memoryview]
    size: int
    next_offset: int


class Found(NamedTuple):
    offset: int
    timestamp_ms: int


def read_batches(log: PartitionLog, offset: int, max_bytes: int, limit: int) -> Slice:
    """Batches from the one that holds `offset` on, of one segment, none of them at or beyond `limit`; the first even
    if it is larger than `max_bytes`. What is damaged is refused, not served."""
    place = _find(log, offset, limit)
    if place is None:
        return Slice((), 0, max(offset, limit))  # compaction may have left nothing up to there
    segment, start, stop = place
    end, next_offset = _end(log, segment, start, stop, max_bytes, limit)
    segment.require_sound(start, end)
    _remember(log, next_offset, segment, end)
    return Slice((segment.segment.view(start, end - start),), end - start, next_offset)


def _find(log: PartitionLog, offset: int, limit: int) -> tuple[PartitionSegment, int, int] | None:
    """The segment of the first batch that ends at or after `offset`, its position, and where `limit` is."""
    if offset >= limit:
        return None
    number = max(bisect_right(log.segments, offset, key=_base) - 1, 0)
    for segment in log.segments[number:]:
        stop = _stop(log, segment, limit)
        start = _position(log, segment, offset, stop)
        if start < stop:
            return segment, start, stop
        if segment.end_offset < 0 or segment.end_offset >= limit:
            return None
    return None


def _stop(log: PartitionLog, segment: PartitionSegment, limit: int) -> int:
    """Where the batches of this segment before `limit` end. `limit` is the beginning of a batch, or past the last."""
    if limit >= log.durable_end:
        durable = log.durable_place
        return durable.position if segment is durable.segment else segment.segment.size
    if 0 <= segment.end_offset <= limit:
        return segment.segment.size
    stop = log.durable_place.position if segment is log.durable_place.segment else segment.segment.size
    for position, header in _walk_from(log, segment, _lookup(log, segment, limit), stop):
        if header.base_offset >= limit:
            return position
    return stop


def _position(log: PartitionLog, segment: PartitionSegment, offset: int, stop: int) -> int:
    remembered = log.places.get(offset)
    if remembered is not None and remembered.segment is segment:
        return remembered.position
    for position, header in _walk_from(log, segment, _lookup(log, segment, offset), stop):
        if header.last_offset >= offset:
            return position
    return stop


def _end(
    log: PartitionLog, segment: PartitionSegment, start: int, stop: int, max_bytes: int, limit: int
) -> tuple[int, int]:
    """Where to stop so that whole batches fit into `max_bytes`, and the offset there."""
    if start + max_bytes >= stop:
        return stop, limit if segment.end_offset < 0 else min(limit, segment.end_offset)
    near = _boundary(log, segment, start + max_bytes)
    batches = _walk_from(log, segment, near, stop) if near.position > start else segment.walk(start, stop)
    for position, header in batches:
        if position > start and position + header.size > start + max_bytes:
            return position, header.base_offset
        if position == start and header.size > max_bytes:
            return position + header.size, header.next_offset
    return stop, limit


def _lookup(log: PartitionLog, segment: PartitionSegment, offset: int) -> OffsetPosition:
    try:
        return segment.index(log.files).lookup(offset)
    except Unusable as reason:
        return segment.rebuild_index(reason).lookup(offset)


def _boundary(log: PartitionLog, segment: PartitionSegment, position: int) -> OffsetPosition:
    try:
        return segment.index(log.files).boundary_before(position)
    except Unusable as reason:
        return segment.rebuild_index(reason).boundary_before(position)


def _walk_from(
    log: PartitionLog, segment: PartitionSegment, entry: OffsetPosition, stop: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Walk from an index entry, which is a hint: when no batch begins there, the log is walked from its beginning."""
    if entry.position and not _is_boundary(segment, entry, stop):
        segment.rebuild_index(Unusable(f"no batch begins at {entry.position}"))
        entry = OffsetPosition(segment.segment.base, 0)
    return segment.walk(entry.position, stop)


def _is_boundary(segment: PartitionSegment, entry: OffsetPosition, stop: int) -> bool:
    if entry.position >= stop:
        return True
    try:
        _, header = next(segment.walk(entry.position, stop))
    except (DamagedSegment, StopIteration):
        return False
    return header.last_offset == entry.offset


def _remember(log: PartitionLog, offset: int, segment: PartitionSegment, position: int) -> None:
    places = log.places
    places[offset] = Place(offset, segment, position)
    if len(places) > _REMEMBERED_PLACES:
        del places[next(iter(places))]


def find_time(log: PartitionLog, timestamp_ms: int, limit: int, max_expanded_bytes: int) -> Found | None:
    """The first record, before `limit`, that is not older than `timestamp_ms`: to the record, inside its batch."""
    for segment in log.segments:
        if segment.segment.base >= limit:
            return None
        if 0 <= segment.end_offset <= log.start or largest_timestamp(log, segment) < timestamp_ms:
            continue
        for position, header in _walk_time(log, segment, timestamp_ms, limit):
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < log.start:
                continue
            found = _search(segment, position, header, timestamp_ms, max_expanded_bytes)
            if found is not None and log.start <= found.offset < limit:
                return found
    return None


def _walk_time(
    log: PartitionLog, segment: PartitionSegment, timestamp_ms: int, limit: int
) -> Iterator[tuple[int, BatchHeader]]:
    try:
        entry = segment.index(log.files).lookup_timestamp(timestamp_ms - 1)
    except Unusable as reason:
        entry = segment.rebuild_index(reason).lookup_timestamp(timestamp_ms - 1)
    return _walk_from(log, segment, _lookup(log, segment, entry.offset), _stop(log, segment, limit))


def _search(
    segment: PartitionSegment, position: int, header: BatchHeader, timestamp_ms: int, max_expanded_bytes: int
) -> Found | None:
    segment.require_sound(position, position + header.size)
    try:
        found = find_timestamp(
            segment.segment.view(position, header.size), timestamp_ms, max_expanded_bytes=max_expanded_bytes
        )
    except BadBatch:
        raise DamagedSegment(segment.segment.file.name, position) from None
    return None if found is None else Found(*found)


def find_latest(log: PartitionLog, limit: int, max_expanded_bytes: int) -> Found | None:
    """The record with the largest timestamp before `limit`; the lowest offset among equals."""
    best: tuple[int, PartitionSegment, int, BatchHeader] | None = None
    for segment in log.segments:
        largest = largest_timestamp(log, segment)
        if best is not None and largest <= best[0]:
            continue
        for position, header in _walk_time(log, segment, largest, limit):
            if (
                header.record_count
                and header.last_offset >= log.start
                and (best is None or header.max_timestamp_ms > best[0])
            ):
                best = (header.max_timestamp_ms, segment, position, header)
    if best is None:
        return None
    _, segment, position, header = best
    segment.require_sound(position, position + header.size)
    found = find_max_timestamp(segment.segment.view(position, header.size), max_expanded_bytes=max_expanded_bytes)
    return None if found is None else Found(*found)


def largest_timestamp(log: PartitionLog, segment: PartitionSegment) -> int:
    """The newest time of a segment's records; -1 if none has one."""
    try:
        return segment.index(log.files).largest.timestamp_ms
    except Unusable as reason:
        return segment.rebuild_index(reason).largest.timestamp_ms


def _base(segment: PartitionSegment) -> int:
    return segment.segment.base
