"""Decides which of a stream's oldest segments to remove. Pure: gets sizes, times and limits, and touches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

FOR_EVER = -1
ANY_SIZE = -1
NO_TIMESTAMP = -1


class SegmentExtent(NamedTuple):
    """Extent of one segment: the offsets from `base` up to, not including, `next_base`."""

    base: int
    next_base: int
    size: int
    newest_timestamp_ms: int = NO_TIMESTAMP


class RetentionLimits(NamedTuple):
    """Retention limits of a stream. `pressure_bytes` is the number of bytes to free in addition, to relieve the
    disk."""

    retention_ms: int = FOR_EVER
    retention_bytes: int = ANY_SIZE
    pressure_bytes: int = 0


class RetentionReason(Enum):
    START = "before the start of the stream"
    SIZE = "above the size to keep"
    PRESSURE = "the disk is too full"
    AGE = "older than the time to keep"


class RetentionDecision(NamedTuple):
    """Reasons for removing each of the oldest segments, oldest first. `roll_first`: the active one is among them, so a
    new one must be begun before."""

    reasons: tuple[RetentionReason, ...] = ()
    start: int = 0
    freed_bytes: int = 0
    roll_first: bool = False


def decide(
    extents: Sequence[SegmentExtent], start: int, removable_end: int, limits: RetentionLimits, now_ms: int
) -> RetentionDecision:
    """Decides which of `extents` to remove: oldest first, the last one being active.

    `start` is the first readable offset, `removable_end` the first that must stay because it is not durable or a reader
    still needs it. Only whole segments are removed, from the oldest on, without a gap.
    """
    removable = _count_removable(extents, removable_end)
    sealed = min(removable, len(extents) - 1)
    reasons: list[RetentionReason] = []
    # In this order no later step enables an earlier one, so a second call would find nothing more.
    reasons += [RetentionReason.START] * _count_before(extents[:sealed], start)
    reasons += [RetentionReason.SIZE] * _count_above(extents, len(reasons), removable, limits.retention_bytes)
    reasons += [RetentionReason.PRESSURE] * _count_to_free(extents[:sealed], len(reasons), limits.pressure_bytes)
    reasons += [RetentionReason.AGE] * _count_older(extents, len(reasons), removable, limits.retention_ms, now_ms)
    count = len(reasons)
    if count == 0:
        return RetentionDecision(start=start)
    return RetentionDecision(
        reasons=tuple(reasons),
        start=max(start, extents[count - 1].next_base),
        freed_bytes=sum(extent.size for extent in extents[:count]),
        roll_first=count == len(extents),
    )


def _count_removable(extents: Sequence[SegmentExtent], removable_end: int) -> int:
    count = 0
    while count < len(extents) and extents[count].next_base <= removable_end:
        count += 1
    if count == len(extents) and count > 0 and extents[-1].size == 0:
        count -= 1  # replacing an empty active segment by another gains nothing
    return max(count, 0)


def _count_before(sealed: Sequence[SegmentExtent], start: int) -> int:
    count = 0
    while count < len(sealed) and sealed[count].next_base <= start:
        count += 1
    return count


def _count_above(extents: Sequence[SegmentExtent], gone: int, removable: int, retention_bytes: int) -> int:
    """Counts the oldest segments that can be removed while the rest still reaches the size to keep."""
    if retention_bytes < 0:
        return 0
    excess = sum(extent.size for extent in extents[gone:]) - retention_bytes
    count = gone
    while count < removable and excess >= extents[count].size:
        excess -= extents[count].size
        count += 1
    return count - gone


def _count_to_free(sealed: Sequence[SegmentExtent], gone: int, pressure_bytes: int) -> int:
    missing = pressure_bytes - sum(extent.size for extent in sealed[:gone])
    count = gone
    while count < len(sealed) and missing > 0:
        missing -= sealed[count].size
        count += 1
    return count - gone


def _count_older(extents: Sequence[SegmentExtent], gone: int, removable: int, retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    newest = _newest_timestamps(extents)
    count = gone
    while count < removable and newest[count] != NO_TIMESTAMP and now_ms - newest[count] > retention_ms:
        count += 1
    return count - gone


def _newest_timestamps(extents: Sequence[SegmentExtent]) -> list[int]:
    """Returns the newest timestamp per segment. A segment without timestamps takes that of the next, which was written
    later."""
    known = NO_TIMESTAMP
    newest = []
    for extent in reversed(extents):
        if extent.newest_timestamp_ms >= 0:
            known = extent.newest_timestamp_ms
        newest.append(known)
    return newest[::-1]
