"""Compaction of a partition log by key: when it is due, what of the log takes part, and the steps it is done in. The
steps are small, so that one event loop can serve requests in between."""

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


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """What a compaction may use. A step ends with the first batch that reaches either bound."""

    expanded_bytes: int = MAX_EXPANDED_BYTES
    keys: int = 1 << 19
    """More than so many different keys are done in several rounds; each takes about 130 bytes of memory."""
    step_bytes: int = 256 * 1024
    step_records: int = 500


class CompactionPlan(NamedTuple):
    """The segments from the head of a log on that may be rewritten, and the first offset not compacted yet."""

    segments: list[PartitionSegment]
    first_dirty: int


def plan_compaction(opened: PartitionLog, checkpoints: Checkpoints, now_ms: int) -> CompactionPlan | None:
    """What to compact now. None: nothing, or too little to be worth it."""
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
        or 0 <= cleaned.due_ms <= now_ms  # a log that is no longer written to gets rid of its last tombstones, too
        or _has_older(dirty, now_ms - settings.max_compaction_lag_ms)
    )
    return CompactionPlan(segments, first_dirty) if is_due else None


def _size(segments: Sequence[PartitionSegment]) -> int:
    return sum(segment.segment.size for segment in segments)


def _has_older(segments: Sequence[PartitionSegment], time_ms: int) -> bool:
    """Whether one begins with a batch from before `time_ms`."""
    if time_ms <= 0:
        return False
    heads = (segment.segment.read(0, HEADER_BYTES) for segment in segments if segment.segment.size)
    return any(0 <= read_header(head).max_timestamp_ms < time_ms for head in heads)


def _find_eligible(opened: PartitionLog, checkpoints: Checkpoints, now_ms: int) -> list[PartitionSegment]:
    """Sealed, below the checkpoint, with every transaction durably decided, and old enough: up to the first that is
    not."""
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
            break  # a swap was left alone when its topic was about to go; the next start finishes it
        if lag_ms and largest_timestamp(opened, segment) > now_ms - lag_ms:
            break
        eligible.append(segment)
    return eligible


class Compaction:
    """One round over one log."""

    def __init__(self, opened: PartitionLog, checkpoints: Checkpoints, now_ms: int, effort: CompactionLimits) -> None:
        self._log = opened
        self._checkpoints = checkpoints
        self._now_ms = now_ms
        self._effort = effort
        self._swap: SegmentSwap | None = None

    @property
    def must_finish(self) -> bool:
        """A swap is in the middle: if it cannot go on, only a restart puts it right."""
        return self._swap is not None and self._swap.must_finish

    def steps(self) -> Iterator[Step]:
        """Everything, a little at a time. Refusal, OSError or Unusable: given up; the log is as good as before, unless
        it `must_finish`."""
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
            # Without the group before, tombstones would be on their way out while older values of their keys stay.
            if not (yield from self._rewrite(group, sieve)):
                return
        self._checkpoints.save_cleaned(self._log.folder, CleanerCheckpoint(last.map_end, sieve.due_ms))
        self._report(reached, last)

    def _find_aborted(self) -> list[AbortedTransaction]:
        """Of all segments: the marker of what was aborted may stand far behind its data."""
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
        """Whether all that had to go from these segments is gone."""
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
            swap.give_up()
            return True
        except Exception:
            if not swap.must_finish:
                swap.give_up()
            raise

    def _report(self, reached: Sequence[PartitionSegment], last: OffsetMap) -> None:
        before = _size(reached)
        after = _size([segment for segment in self._log.segments if segment.segment.base < last.map_end])
        log.info("%s: compacted up to offset %d, %d bytes became %d", self._log.folder, last.map_end, before, after)


class _StepBudget:
    """Counts what a step has done, and has bytes read from the disk before they are needed."""

    __slots__ = ("_bytes", "_effort", "_records", "_warm", "_warm_to")

    def __init__(self, effort: CompactionLimits) -> None:
        self._effort = effort
        self._bytes = self._records = self._warm_to = 0
        self._warm: PartitionSegment | None = None

    def before(self, segment: PartitionSegment, position: int, header: BatchHeader) -> Iterator[Step]:
        """The event loop must not wait for the disk: neither for a batch nor for the header of the next."""
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
    """Neighbours that fit into one segment together, even if nothing of them goes."""
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
    """The bytes of a batch that match its checksum: others, written anew with a new one, would hide that."""
    segment.require_sound(position, position + header.size)
    return segment.segment.view(position, header.size)


@contextmanager
def _damage_at(segment: PartitionSegment, position: int) -> Iterator[None]:
    try:
        yield
    except BadBatch:
        raise DamagedSegment(segment.segment.file.name, position) from None
