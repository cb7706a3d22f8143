"""Compaction of a partition log by key: decides when it is due and which segments take part, and runs it in steps.
Steps are small, so that the event loop can serve requests in between."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from trimq.errors import DamagedSegment
from trimq.formats.kafka_batch.header import HEADER_BYTES, BadBatch, BatchHeader, read_header
from trimq.formats.kafka_batch.records import MAX_EXPANDED_BYTES
from trimq.storage.checkpoints.file_names import LOG
from trimq.storage.checkpoints.log_checkpoints import Checkpoints, CleanerCheckpoint
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.cleaner_rules import BatchCleaner, OffsetMap, TransactionFilter, note_last_offsets
from trimq.storage.partition_log.compaction_swap import SegmentSwap, Step
from trimq.storage.partition_log.index import MAX_RELATIVE_OFFSET
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import find_aborted, largest_timestamp
from trimq.storage.partition_log.segment import PartitionSegment

log = logging.getLogger(__name__)

_WARM_BYTES = 1024 * 1024
_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """Resource limits of a compaction. A step ends with the first batch that reaches either `step_…` limit."""

    expanded_bytes: int = MAX_EXPANDED_BYTES
    keys: int = 1 << 19
    """More distinct keys than this take several rounds; each key needs about 130 bytes of memory."""
    step_bytes: int = 256 * 1024
    step_records: int = 500


class CompactionPlan(NamedTuple):
    """Segments from the head of a log on that may be rewritten, and the first offset not compacted yet."""

    segments: list[PartitionSegment]
    first_dirty: int


def plan_compaction(opened: PartitionLog, checkpoints: Checkpoints, now_ms: int) -> CompactionPlan | None:
    """Returns the segments to compact now, or None if there is too little to gain."""
    settings = opened.settings
    if not settings.is_compacted:
        return None
    segments = _find_eligible(opened, checkpoints, now_ms)
    if not segments:
        return None
    cleaned = checkpoints.cleaned(opened.folder)
    first_dirty = max(cleaned.offset, opened.start)
    dirty = [segment for segment in segments if segment.end_offset > first_dirty]
    is_due = (
        _size(dirty) > settings.min_cleanable_dirty_ratio * _size(segments)
        or 0 <= cleaned.due_ms <= now_ms  # an idle log gets rid of its last tombstones too
        or _has_older(dirty, now_ms - settings.max_compaction_lag_ms)
    )
    return CompactionPlan(segments, first_dirty) if is_due else None


def waits_for_compaction(opened: PartitionLog, checkpoints: Checkpoints) -> bool:
    """Returns whether sealed segments can become due for compaction without another append: by their age, by the end of
    a transaction or by the next checkpoint."""
    settings = opened.settings
    sealed_end = opened.segments[-1].segment.base
    if not settings.is_compacted or checkpoints.cleaned(opened.folder).offset >= sealed_end:
        return False
    point = checkpoints.point(opened.folder)
    return (
        settings.min_compaction_lag_ms > 0
        or settings.max_compaction_lag_ms < _NO_LIMIT
        or opened.first_unstable_offset is not None
        or point is None
        or point.base < sealed_end
    )


def _size(segments: Sequence[PartitionSegment]) -> int:
    return sum(segment.segment.size for segment in segments)


def _has_older(segments: Sequence[PartitionSegment], time_ms: int) -> bool:
    """Returns whether a segment begins with a batch from before `time_ms`."""
    if time_ms <= 0:
        return False
    heads = (segment.segment.read(0, HEADER_BYTES) for segment in segments if segment.segment.size)
    return any(0 <= read_header(head).max_timestamp_ms < time_ms for head in heads)


def _find_eligible(opened: PartitionLog, checkpoints: Checkpoints, now_ms: int) -> list[PartitionSegment]:
    """Returns the leading segments that are sealed, below the checkpoint, without undecided transactions, and old
    enough."""
    point = checkpoints.point(opened.folder)
    if point is None:
        return []
    first_unstable_offset = opened.first_unstable_offset
    limit = point.base if first_unstable_offset is None else min(point.base, first_unstable_offset)
    lag_ms = opened.settings.min_compaction_lag_ms
    eligible: list[PartitionSegment] = []
    for segment in opened.segments:
        if not segment.is_stored or segment.end_offset > limit:
            break
        if not segment.segment.file.name.endswith(LOG):
            break  # the topic was being deleted during a swap; the next start completes it
        if lag_ms and largest_timestamp(opened, segment) > now_ms - lag_ms:
            break
        eligible.append(segment)
    return eligible


class Compaction:
    """One compaction round of one log."""

    def __init__(self, opened: PartitionLog, checkpoints: Checkpoints, now_ms: int, effort: CompactionLimits) -> None:
        self._log = opened
        self._checkpoints = checkpoints
        self._now_ms = now_ms
        self._effort = effort
        self._swap: SegmentSwap | None = None

    @property
    def must_finish(self) -> bool:
        """True in the middle of a swap: if it cannot continue, only a restart can complete it."""
        return self._swap is not None and self._swap.must_finish

    def steps(self) -> Iterator[Step]:
        """Runs the round in small steps. A Refusal, OSError or CorruptCompanion ends the round; the log is then as
        before, unless it `must_finish`."""
        plan = plan_compaction(self._log, self._checkpoints, self._now_ms)
        if plan is None:
            return
        aborted = self._find_aborted()
        last = OffsetMap(self._effort.keys)
        yield from self._find_last_offsets(plan, last, TransactionFilter(aborted))
        sieve = BatchCleaner(
            last,
            TransactionFilter(aborted),
            self._log.producers,
            self._now_ms,
            self._log.settings.delete_retention_ms,
            self._effort.expanded_bytes,
        )
        reached = [segment for segment in plan.segments if segment.segment.base < last.map_end]
        for group in group_segments(reached, self._log.settings.segment_bytes):
            # If an earlier group could not be cleaned, tombstones must not expire while older values of their keys
            # stay.
            if not (yield from self._rewrite(group, sieve)):
                return
        self._checkpoints.save_cleaned(self._log.folder, CleanerCheckpoint(last.map_end, sieve.due_ms))
        self._report(reached, last)

    def _find_aborted(self) -> list[AbortedTransaction]:
        """Returns those of all segments: the marker of aborted data may be in a much later segment."""
        return [aborted for segment in self._log.segments for aborted in find_aborted(self._log, segment)]

    def _find_last_offsets(
        self, plan: CompactionPlan, last: OffsetMap, transactions: TransactionFilter
    ) -> Iterator[Step]:
        last.map_end = plan.first_dirty
        pace = _StepBudget(self._effort)
        for segment in plan.segments:
            if segment.end_offset <= plan.first_dirty:
                continue
            for position, header in segment.walk(0, segment.segment.size):
                if header.next_offset <= plan.first_dirty:
                    continue
                if not last.takes(header.record_count):
                    return
                yield from pace.before(segment, position, header)
                with _damage_at(segment, position):
                    batch = _sound(segment, position, header)
                    note_last_offsets(last, transactions, batch, header, plan.first_dirty, self._effort.expanded_bytes)
                if pace.is_enough(header):
                    yield None
            last.map_end = segment.end_offset

    def _rewrite(self, group: Sequence[PartitionSegment], sieve: BatchCleaner) -> Generator[Step, None, bool]:
        """Returns whether all obsolete records of these segments are removed."""
        swap = self._swap = SegmentSwap(self._log, group)
        try:
            is_changed = len(group) > 1
            pace = _StepBudget(self._effort)
            for segment in group:
                for position, header in segment.walk(0, segment.segment.size):
                    yield from pace.before(segment, position, header)
                    with _damage_at(segment, position):
                        batch = _sound(segment, position, header)
                        kept = sieve.clean(batch, header)
                    if kept is not None:
                        swap.add(kept)
                    is_changed = is_changed or kept is not batch
                    if pace.is_enough(header):
                        swap.write()
                        yield None
            swap.new.aborted = sieve.take_aborted()
            if is_changed:
                return (yield from swap.finish(self._checkpoints))
            swap.abort()
            return True
        except Exception:
            if not swap.must_finish:
                swap.abort()
            raise

    def _report(self, reached: Sequence[PartitionSegment], last: OffsetMap) -> None:
        before = _size(reached)
        after = _size([segment for segment in self._log.segments if segment.segment.base < last.map_end])
        log.info("%s: compacted up to offset %d, %d bytes reduced to %d", self._log.folder, last.map_end, before, after)


class _StepBudget:
    """Counts the work of a step, and has bytes read from the disk before they are needed."""

    __slots__ = ("_bytes", "_effort", "_records", "_warm", "_warm_to")

    def __init__(self, effort: CompactionLimits) -> None:
        self._effort = effort
        self._bytes = self._records = self._warm_to = 0
        self._warm: PartitionSegment | None = None

    def before(self, segment: PartitionSegment, position: int, header: BatchHeader) -> Iterator[Step]:
        """Loads a batch and the header of the next one: the event loop must not wait for the disk."""
        needed = header.size + HEADER_BYTES
        if segment is self._warm and position + needed <= self._warm_to:
            return
        size = min(max(needed, _WARM_BYTES), segment.segment.size - position)
        warm = segment.segment.file.begin_warm(position, size)
        if warm is not None:
            yield warm
        self._warm, self._warm_to = segment, position + size

    def is_enough(self, header: BatchHeader) -> bool:
        self._bytes += header.size
        self._records += header.record_count
        if self._bytes < self._effort.step_bytes and self._records < self._effort.step_records:
            return False
        self._bytes = self._records = 0
        return True


def group_segments(segments: Sequence[PartitionSegment], segment_bytes: int) -> Iterator[list[PartitionSegment]]:
    """Yields groups of neighbours that fit into one segment together, even if none of their records is removed."""
    group: list[PartitionSegment] = []
    size = 0
    for segment in segments:
        if group and (
            size + segment.segment.size > segment_bytes
            or segment.end_offset - 1 - group[0].segment.base > MAX_RELATIVE_OFFSET
        ):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.segment.size
    if group:
        yield group


def _sound(segment: PartitionSegment, position: int, header: BatchHeader) -> memoryview:
    """Returns the bytes of a batch after checking its checksum: rewriting damaged bytes with a new checksum would hide
    the damage."""
    segment.require_sound(position, position + header.size)
    return segment.segment.view(position, header.size)


@contextmanager
def _damage_at(segment: PartitionSegment, position: int) -> Iterator[None]:
    try:
        yield
    except BadBatch:
        raise DamagedSegment(segment.segment.file.name, position) from None
