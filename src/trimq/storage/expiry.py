"""Lets the head of partition logs go: asks `retention` what may go, and removes it. Knows logs, not why they exist."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from trimq.storage.partition_log import PartitionLog
from trimq.storage.partition_reading import largest_timestamp
from trimq.storage.partition_segment import PartitionSegment
from trimq.storage.retention import Decision, Extent, Limits, decide


def expire(log: PartitionLog, now_ms: int) -> Decision:
    """Remove what is too old or too much by the log's own settings, and what lies before its start."""
    settings = log.settings
    limits = Limits(settings.retention_ms, settings.retention_bytes) if settings.is_expired else Limits()
    decision = decide(_extents(log), log.start, log.durable_end, limits, now_ms)
    if decision.reasons:
        if decision.roll_first:
            log.roll()
        log.cut_head(max(decision.start, log.start))
    return decision


def expire_oldest(logs: Iterable[PartitionLog], bytes_needed: int) -> int:
    """Free the disk: remove the oldest sealed segments of all logs that may lose their head. Gives the bytes freed."""
    freed = 0
    heads = [(_age(log), number, log) for number, log in enumerate(logs) if _may_lose_head(log)]
    heapq.heapify(heads)
    while heads and freed < bytes_needed:
        _, number, log = heapq.heappop(heads)
        head = log.segments[0]
        freed += head.segment.size
        log.cut_head(max(head.end_offset, log.start))
        if _may_lose_head(log):
            heapq.heappush(heads, (_age(log), number, log))
    return freed


def _may_lose_head(log: PartitionLog) -> bool:
    return log.settings.is_expired and len(log.segments) > 1 and log.segments[1].segment.base <= log.durable_end


def _age(log: PartitionLog) -> int:
    return largest_timestamp(log, log.segments[0])


def _extents(log: PartitionLog) -> list[Extent]:
    return [_extent(log, segment) for segment in log.segments]


def _extent(log: PartitionLog, segment: PartitionSegment) -> Extent:
    end = log.end if segment.end_offset < 0 else segment.end_offset
    return Extent(segment.segment.base, end, segment.segment.size, largest_timestamp(log, segment))
