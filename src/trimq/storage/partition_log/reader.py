"""Reads from a partition log: finds batches by offset and by time, and returns whole batches up to a byte limit. Knows
segments and indexes, never clients."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, cast

from trimq.errors import DamagedSegment, LargeSearch
from trimq.formats.kafka_batch.header import HEADER_BYTES, BadBatch, BatchHeader
from trimq.formats.kafka_batch.records import (
    INLINE_EXPANDED_BYTES,
    INLINE_RECORDS,
    PayloadTooLarge,
    find_max_timestamp,
    find_timestamp,
    iterate_records,
)
from trimq.storage.checkpoints.file_names import CorruptCompanion
from trimq.storage.io.page_cache import find_cold
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.index import OffsetPosition, TimestampOffset
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.producers import ProducerStates
from trimq.storage.partition_log.segment import PartitionSegment, SegmentPosition
from trimq.storage.partition_log.transaction_markers import apply_batch

logger = logging.getLogger(__name__)

# A consumer usually continues where it, or another, has stopped: this many end positions are remembered.
_REMEMBERED_PLACES = 16


class BatchSlice(NamedTuple):
    """Whole batches as stored, and the offset that follows them."""

    parts: Sequence[memoryview]
    size: int
    next_offset: int


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp_ms: int


def read_batches(log: PartitionLog, offset: int, max_bytes: int, limit: int, may_wait: bool = True) -> BatchSlice:
    """Returns batches of one segment from the one that holds `offset` on, none at or beyond `limit`; the first even if
    it is larger than `max_bytes`. Damaged batches are refused, not served. Unless `may_wait`, raises ColdRead if the
    bytes are not in memory."""
    place = _find(log, offset, limit, may_wait)
    if place is None:
        return BatchSlice((), 0, max(offset, limit))  # compaction may have removed everything up to there
    segment, start, stop = place
    if not may_wait:
        _require_warm(segment, start, min(start + max_bytes + HEADER_BYTES, stop))
    end, next_offset = _end(log, segment, start, stop, max_bytes, limit)
    if not may_wait and end > start + max_bytes:
        _require_warm(segment, start + max_bytes, end)
    segment.require_sound(start, end, next_offset)
    _remember(log, next_offset, segment, end)
    return BatchSlice((segment.segment.view(start, end - start),), end - start, next_offset)


def _require_way(log: PartitionLog, segment: PartitionSegment, offset: int) -> None:
    """Raises ColdRead if the headers between the index entry and `offset` are cold."""
    remembered = log.read_positions.get(offset)
    if remembered is None or remembered.segment is not segment:
        start = log.index_of(segment).lookup(offset).position
        _require_warm(segment, start, min(start + log.settings.index_interval_bytes, segment.segment.size))


def _require_warm(segment: PartitionSegment, start: int, end: int) -> None:
    if (cold := find_cold(segment.segment.file, start, end - start)) is not None:
        raise cold


def _find(
    log: PartitionLog, offset: int, limit: int, may_wait: bool = True
) -> tuple[PartitionSegment, int, int] | None:
    """Returns the segment and position of the first batch that ends at or after `offset`, and the position of
    `limit`."""
    if offset >= limit:
        return None
    number = max(bisect_right(log.segments, offset, key=_base) - 1, 0)
    for segment in log.segments[number:]:
        if not may_wait:
            _require_way(log, segment, offset)
        stop = _stop(log, segment, limit)
        start = _position(log, segment, offset, stop)
        if start < stop:
            return segment, start, stop
        if segment.end_offset < 0 or segment.end_offset >= limit:
            return None
    return None


def _stop(log: PartitionLog, segment: PartitionSegment, limit: int) -> int:
    """Returns the end position of this segment's batches before `limit`, which is the beginning of a batch or past the
    last."""
    if limit >= log.durable_end:
        durable = log.durable_position
        return durable.position if segment is durable.segment else segment.segment.size
    if 0 <= segment.end_offset <= limit:
        return segment.segment.size
    durable = log.durable_position
    stop = durable.position if segment is durable.segment else segment.segment.size
    return _first(log, segment, limit, stop, lambda header: header.base_offset >= limit)


def _position(log: PartitionLog, segment: PartitionSegment, offset: int, stop: int) -> int:
    remembered = log.read_positions.get(offset)
    if remembered is not None and remembered.segment is segment:
        return _require_beginning(segment, remembered.position, offset, stop)
    return _first(log, segment, offset, stop, lambda header: header.last_offset >= offset)


def _first(
    log: PartitionLog, segment: PartitionSegment, offset: int, stop: int, is_wanted: Callable[[BatchHeader], bool]
) -> int:
    """Returns the position of the first wanted batch, shortly after the index entry for `offset`; `stop` if there is
    none."""
    entry = log.index_of(segment).lookup(offset)
    found, next_offset, has_gap = stop, -1, False
    for position, header in _walk_from(segment, entry, stop):
        has_gap = has_gap or (0 <= next_offset != header.base_offset)
        if is_wanted(header):
            found = position
            break
        next_offset = header.next_offset
    else:  # the segment ends before the expected offset
        has_gap = has_gap or next_offset >= 0
    if has_gap:  # left by compaction, or by a damaged length or offset that skipped a batch
        segment.require_sound(entry.position, found)
    return found


def _require_beginning(segment: PartitionSegment, position: int, offset: int, stop: int) -> int:
    """Checks that the batch at `position` does not begin before `offset`, where the previous read ended."""
    if position < segment.trusted_from:
        for at, header in segment.walk(position, stop):
            if header.base_offset < offset:
                raise DamagedSegment(segment.segment.file.name, at)
            break
    return position


def _end(
    log: PartitionLog, segment: PartitionSegment, start: int, stop: int, max_bytes: int, limit: int
) -> tuple[int, int]:
    """Returns the position at which whole batches stop to fit into `max_bytes`, and the offset there."""
    if start + max_bytes < stop:
        near = log.index_of(segment).boundary_before(start + max_bytes)
        batches = _walk_from(segment, near, stop) if near.position > start else segment.walk(start, stop)
        next_offset = -1
        for position, header in batches:
            if position > start and position + header.size > start + max_bytes:
                # Only the index gives the beginning of the next batch, which is not checked.
                return position, header.base_offset if next_offset < 0 else next_offset
            next_offset = header.next_offset
    return stop, limit if segment.end_offset < 0 else min(limit, segment.end_offset)


def _walk_from(segment: PartitionSegment, entry: OffsetPosition, stop: int) -> Iterator[tuple[int, BatchHeader]]:
    """Walks from an index entry with a valid checksum: if there is no such batch, the log is damaged."""
    return segment.walk(entry.position, stop, entry.offset if entry.position else None)


def _remember(log: PartitionLog, offset: int, segment: PartitionSegment, position: int) -> None:
    read_positions = log.read_positions
    read_positions[offset] = SegmentPosition(offset, segment, position)
    if len(read_positions) > _REMEMBERED_PLACES:
        del read_positions[next(iter(read_positions))]


Outcomes = Mapping[Hashable, object]
"""Outcomes of searches in large batches, by the key of their LargeSearch."""


def find_time(
    log: PartitionLog, timestamp_ms: int, limit: int, max_expanded_bytes: int, outcomes: Outcomes | None = None
) -> OffsetAndTimestamp | None:
    """Returns the first record before `limit` that is not older than `timestamp_ms`, to the record inside its batch.
    Raises LargeSearch for a large batch whose outcome is not in `outcomes`; None: searches every batch itself."""
    for segment in log.segments:
        if segment.segment.base >= limit:
            return None
        if 0 <= segment.end_offset <= log.start or largest_timestamp(log, segment) < timestamp_ms:
            continue
        entry = log.index_of(segment).lookup_timestamp(timestamp_ms - 1)
        for position, header in _walk_time(log, segment, entry, limit):
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < log.start:
                continue
            view, start = segment.segment.view(position, header.size), log.start

            def search(limit: int, view: memoryview = view, start: int = start) -> OffsetAndTimestamp | None:
                found = find_timestamp(view, timestamp_ms, from_offset=start, max_expanded_bytes=limit)
                return None if found is None else OffsetAndTimestamp(*found)

            found = _search_in(segment, position, header, search, timestamp_ms, max_expanded_bytes, outcomes)
            if found is not None:
                return found
    return None


def _search_in(
    segment: PartitionSegment,
    position: int,
    header: BatchHeader,
    search: Callable[[int], OffsetAndTimestamp | None],
    what: object,
    max_expanded_bytes: int,
    outcomes: Outcomes | None,
) -> OffsetAndTimestamp | None:
    """Returns the result of a search in one batch. `search` gets the limit of the uncompressed size; `what` identifies
    it among the searches in this batch."""
    key = (segment.segment.file.name, position, header.base_offset, what)
    with _damage_at(segment, position):
        if outcomes is None:
            return search(max_expanded_bytes)
        if key in outcomes:
            outcome = outcomes[key]
            if isinstance(outcome, BaseException):
                raise outcome
            return cast("OffsetAndTimestamp | None", outcome)
        if header.record_count <= INLINE_RECORDS:
            try:
                return search(min(INLINE_EXPANDED_BYTES, max_expanded_bytes))
            except PayloadTooLarge:
                if max_expanded_bytes <= INLINE_EXPANDED_BYTES:
                    raise
        raise LargeSearch(key, partial(search, max_expanded_bytes))


def _walk_time(
    log: PartitionLog, segment: PartitionSegment, entry: TimestampOffset, limit: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the batch of a time index entry and the later ones before `limit`, each with a valid checksum."""
    place = log.index_of(segment).lookup(entry.offset)
    last: tuple[int, BatchHeader] | None = None
    for found in _walk_from(segment, place, _stop(log, segment, limit)):
        if last is not None:  # yielded only once the next one confirms its length, which the checksum does not cover
            yield _sound(segment, *last, limit)
        last = found
    if last is not None:
        yield _sound(segment, *last, limit)


def _sound(segment: PartitionSegment, position: int, header: BatchHeader, limit: int) -> tuple[int, BatchHeader]:
    segment.require_sound(position, position + header.size, limit)
    return position, header


def find_latest(
    log: PartitionLog, limit: int, max_expanded_bytes: int, outcomes: Outcomes | None = None
) -> OffsetAndTimestamp | None:
    """Returns the record with the largest timestamp before `limit`; the lowest offset among equals. Raises LargeSearch
    as `find_time` does."""
    best: OffsetAndTimestamp | None = None
    for segment in log.segments:
        largest_ms = largest_timestamp(log, segment)
        if segment.segment.base >= limit or (best is not None and largest_ms <= best.timestamp_ms):
            continue
        index = log.index_of(segment)
        entry = index.lookup_timestamp(largest_ms - 1)
        while entry.offset >= limit and entry.timestamp_ms >= 0:  # the index may hold unreadable later records
            entry = index.lookup_timestamp(entry.timestamp_ms - 1)
        for position, header in _walk_time(log, segment, entry, limit):
            if header.last_offset < log.start or (best is not None and header.max_timestamp_ms <= best.timestamp_ms):
                continue
            search = partial(_latest_of, segment.segment.view(position, header.size), header, log.start)
            found = _search_in(segment, position, header, search, "latest", max_expanded_bytes, outcomes)
            if found is not None and (best is None or found.timestamp_ms > best.timestamp_ms):
                best = found
    return best


def _latest_of(view: memoryview, header: BatchHeader, start: int, max_expanded_bytes: int) -> OffsetAndTimestamp | None:
    """Returns the latest record of one batch at or after `start`."""
    if header.base_offset >= start:
        found = find_max_timestamp(view, max_expanded_bytes=max_expanded_bytes)
        return None if found is None else OffsetAndTimestamp(*found)
    readable = [record for record in iterate_records(view, 0, max_expanded_bytes) if record.offset >= start]
    latest = max(readable, key=lambda record: record.timestamp_ms, default=None)
    return None if latest is None or latest.timestamp_ms < 0 else OffsetAndTimestamp(latest.offset, latest.timestamp_ms)


def collect_aborted(log: PartitionLog, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Returns the aborted transactions with records between `from_offset` and, exclusively, `to_offset`, in the order
    of their markers."""
    found: list[AbortedTransaction] = []
    first = max(bisect_right(log.segments, from_offset, key=_base) - 1, 0)
    for segment in log.segments[first:]:
        for aborted in find_aborted(log, segment):
            if aborted.last_offset >= from_offset and aborted.first_offset < to_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= to_offset:
                return found  # transactions aborted later also began later
    return found


def find_aborted(log: PartitionLog, segment: PartitionSegment) -> list[AbortedTransaction]:
    """Returns the aborted transactions whose markers are in a segment: from its index or, if that is invalid, from all
    batches up to there."""
    try:
        return segment.aborted_transactions(log.files)
    except CorruptCompanion as error:
        logger.warning("%s: scanning for aborted transactions (index unusable: %s)", segment.segment.file.name, error)
    producers = ProducerStates()
    found: list[AbortedTransaction] = []
    for each in log.segments[: log.segments.index(segment) + 1]:
        found = []
        for position, header in each.walk_sound(0, each.segment.size):
            if header.producer_id >= 0:
                with _damage_at(each, position):
                    ended = apply_batch(producers, header, each.segment.view(position, header.size))
                if ended is not None and ended.is_aborted:
                    found.append(AbortedTransaction(*ended[:4]))
    segment.aborted = found
    return found


@contextmanager
def _damage_at(segment: PartitionSegment, position: int) -> Iterator[None]:
    try:
        yield
    except BadBatch:
        raise DamagedSegment(segment.segment.file.name, position) from None


def largest_timestamp(log: PartitionLog, segment: PartitionSegment) -> int:
    """Returns the newest timestamp of a segment's records; -1 if none has one."""
    return segment.newest_timestamp(log.files)


def _base(segment: PartitionSegment) -> int:
    return segment.segment.base
