"""Removes the head of partition logs as `retention` decides. Knows logs, not their purpose."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import largest_timestamp
from trimq.storage.partition_log.retention import RetentionDecision, RetentionLimits, SegmentExtent, decide
from trimq.storage.partition_log.segment import PartitionSegment


def expire(log: PartitionLog, now_ms: int) -> RetentionDecision:
    """Removes segments that are too old or too many by the log's settings, and those before its start."""
    settings = log.settings
    limits = (
        RetentionLimits(settings.retention_ms, settings.retention_bytes) if settings.is_expired else RetentionLimits()
    )
    decision = decide(_extents(log), log.start, log.durable_end, limits, now_ms)
    if decision.reasons and not log.is_removed:
        if decision.roll_first:
            log.roll()
        log.cut_head(max(decision.start, log.start))
    return decision


def expire_oldest(logs: Iterable[PartitionLog], bytes_needed: int) -> int:
    """Frees disk space: removes the oldest sealed segments of all logs that may lose their head. Returns the number of
    bytes that are free once the removal is durable."""
    freed = 0
    oldest = [(*head, number, log) for number, log in enumerate(logs) if (head := _head(log, log.start)) is not None]
    heapq.heapify(oldest)
    cuts: dict[int, tuple[PartitionLog, int]] = {}
    while oldest and freed < bytes_needed:
        _, end_offset, size, number, log = heapq.heappop(oldest)
        freed += size
        cuts[number] = (log, end_offset)
        if (head := _head(log, end_offset)) is not None:
            heapq.heappush(oldest, (*head, number, log))
    for log, offset in cuts.values():
        log.cut_head(offset)
    return freed


def _head(log: PartitionLog, start: int) -> tuple[int, int, int] | None:
    """Returns age, end and size of the oldest sealed segment with records from `start` on, if it may be removed."""
    if not log.settings.is_expired or log.is_removed:
        return None
    for segment in log.segments[:-1]:
        if start < segment.end_offset <= log.durable_end:
            return largest_timestamp(log, segment), segment.end_offset, segment.segment.size
    return None


def _extents(log: PartitionLog) -> list[SegmentExtent]:
    return [_extent(log, segment) for segment in log.segments]


def _extent(log: PartitionLog, segment: PartitionSegment) -> SegmentExtent:
    end = log.end if segment.end_offset < 0 else segment.end_offset
    return SegmentExtent(segment.segment.base, end, segment.segment.size, largest_timestamp(log, segment))
