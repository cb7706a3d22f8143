from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.storage.partition_log.retention import (
    RetentionDecision,
    RetentionLimits,
    RetentionReason,
    SegmentExtent,
    decide,
)

NOW_MS = 1_000_000
EVERYTHING = 1 << 40


def extents(*sizes_and_ages_ms: tuple[int, int | None]) -> list[SegmentExtent]:
    """Returns segment extents of ten offsets each; the last is the active one."""
    return [
        SegmentExtent(10 * place, 10 * place + 10, size, -1 if age_ms is None else NOW_MS - age_ms)
        for place, (size, age_ms) in enumerate(sizes_and_ages_ms)
    ]


def reasons(
    given_extents: list[SegmentExtent], limits: RetentionLimits, start: int = 0, end: int = EVERYTHING
) -> list[str]:
    return [reason.name for reason in decide(given_extents, start, end, limits, NOW_MS).reasons]


def test_without_limits_every_segment_is_kept() -> None:
    assert decide(extents((5, 900_000), (5, 0)), 3, EVERYTHING, RetentionLimits(), NOW_MS) == RetentionDecision(start=3)


def test_no_segments_give_no_decision() -> None:
    assert decide([], 7, EVERYTHING, RetentionLimits(0, 0, 100), NOW_MS) == RetentionDecision(start=7)


# -- by age: a segment is deleted when its newest record is older than the retention


@pytest.mark.parametrize(
    ("ages_ms", "gone"),
    [
        ([101, 50, 0], 1),
        ([100, 50, 0], 0),  # a segment exactly as old as the retention is kept
        ([300, 200, 101], 3),
        ([50, 300, 0], 0),  # the oldest is kept, so all after it are
        ([None, 200, 0], 2),  # has the age of the next
        ([None, 50, 0], 0),
        ([None, None, None], 0),
    ],
)
def test_segments_are_deleted_by_age(ages_ms: list[int | None], gone: int) -> None:
    found = reasons(extents(*((5, age_ms) for age_ms in ages_ms)), RetentionLimits(retention_ms=100))
    assert found == ["AGE"] * gone


def test_a_retention_of_zero_keeps_records_of_this_millisecond() -> None:
    assert reasons(extents((5, 1), (5, 0)), RetentionLimits(retention_ms=0)) == ["AGE"]


# -- by size: the oldest segment is deleted as long as the rest has at least the size to keep


@pytest.mark.parametrize(
    ("sizes", "retention_bytes", "gone"),
    [
        ([10, 10, 10], 20, 1),
        ([10, 10, 10], 21, 0),
        ([10, 10, 10], 10, 2),
        ([10, 10, 10], 0, 3),
        ([10, 10, 0], 0, 2),  # an empty active segment is kept
        ([100, 1, 1], 2, 1),
        ([100, 1, 1], 3, 0),  # more is kept than the limit, never less
        ([10, 10, 10], -1, 0),
    ],
)
def test_segments_are_deleted_by_size(sizes: list[int], retention_bytes: int, gone: int) -> None:
    found = reasons(extents(*((size, 0) for size in sizes)), RetentionLimits(retention_bytes=retention_bytes))
    assert found == ["SIZE"] * gone


# -- by the start of the stream, and by disk pressure: the active segment is kept


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
def test_segments_before_the_start_are_deleted(start: int, gone: int) -> None:
    assert reasons(extents((5, 0), (5, 0), (5, 0)), RetentionLimits(), start=start) == ["START"] * gone


@pytest.mark.parametrize(("pressure_bytes", "gone"), [(0, 0), (1, 1), (5, 1), (6, 2), (10, 2), (99, 2)])
def test_segments_are_deleted_by_disk_pressure(pressure_bytes: int, gone: int) -> None:
    assert (
        reasons(extents((5, 0), (5, 0), (5, 0)), RetentionLimits(pressure_bytes=pressure_bytes)) == ["PRESSURE"] * gone
    )


def test_segments_deleted_for_other_reasons_relieve_disk_pressure_too() -> None:
    found = reasons(extents((5, 0), (5, 0), (5, 0), (5, 0)), RetentionLimits(pressure_bytes=10), start=10)
    assert found == ["START", "PRESSURE"]


def test_each_segment_may_be_deleted_for_a_different_reason() -> None:
    given_extents = extents((5, 0), (5, 0), (5, 0), (5, 300), (5, 0))
    found = decide(given_extents, 10, EVERYTHING, RetentionLimits(100, 15, 11), NOW_MS)
    assert [reason.name for reason in found.reasons] == ["START", "SIZE", "PRESSURE", "AGE"]
    assert (found.start, found.freed_bytes, found.roll_first) == (40, 20, False)


# -- segments that must be kept


@pytest.mark.parametrize(("removable_end", "gone"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_segments_beyond_the_removable_end_are_kept(removable_end: int, gone: int) -> None:
    found = decide(extents((5, 300), (5, 300), (5, 300)), 0, removable_end, RetentionLimits(100, 0, 99), NOW_MS)
    assert len(found.reasons) == gone


def test_the_active_segment_is_deleted_only_after_a_roll() -> None:
    found = decide(extents((5, 300), (5, 300)), 0, EVERYTHING, RetentionLimits(retention_ms=100), NOW_MS)
    assert found == RetentionDecision(
        (RetentionReason.AGE, RetentionReason.AGE), start=20, freed_bytes=10, roll_first=True
    )


segments = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 50), st.integers(-1, NOW_MS)), min_size=1, max_size=8
).map(
    lambda rows: [
        SegmentExtent(
            sum(count for count, _, _ in rows[:place]),
            sum(count for count, _, _ in rows[: place + 1]),
            size,
            timestamp_ms,
        )
        for place, (_, size, timestamp_ms) in enumerate(rows)
    ]
)
limits = st.builds(RetentionLimits, st.integers(-1, NOW_MS), st.integers(-1, 400), st.integers(0, 400))


@given(segments, st.integers(0, 80), st.integers(0, 80), limits)
def test_decisions_match_the_limits(
    given_extents: list[SegmentExtent], start: int, removable_end: int, given_limits: RetentionLimits
) -> None:
    found = decide(given_extents, start, removable_end, given_limits, NOW_MS)
    count = len(found.reasons)
    gone, kept = given_extents[:count], given_extents[count:]
    assert all(extent.next_base <= removable_end for extent in gone)
    assert found.roll_first == (not kept)
    assert found.freed_bytes == sum(extent.size for extent in gone)
    assert found.start >= start
    assert found.start == max([start, *(extent.next_base for extent in gone)])
    assert not gone or not found.roll_first or gone[-1].size > 0
    if RetentionReason.SIZE in found.reasons:
        left = given_extents[found.reasons.index(RetentionReason.SIZE) + found.reasons.count(RetentionReason.SIZE) :]
        assert sum(extent.size for extent in left) >= given_limits.retention_bytes
    for reason, extent in zip(found.reasons, gone, strict=True):
        if reason is RetentionReason.START:
            assert extent.next_base <= start
        if reason is RetentionReason.AGE and extent.newest_timestamp_ms >= 0:
            assert NOW_MS - extent.newest_timestamp_ms > given_limits.retention_ms


@given(segments, st.integers(0, 80), st.integers(0, 80), limits)
def test_a_second_decision_deletes_nothing_more(
    given_extents: list[SegmentExtent], start: int, removable_end: int, given_limits: RetentionLimits
) -> None:
    first = decide(given_extents, start, removable_end, given_limits, NOW_MS)
    left = given_extents[len(first.reasons) :]
    if first.roll_first:
        left = [SegmentExtent(given_extents[-1].next_base, given_extents[-1].next_base, 0)]
    relieved = given_limits._replace(pressure_bytes=max(given_limits.pressure_bytes - first.freed_bytes, 0))
    assert decide(left, first.start, removable_end, relieved, NOW_MS) == RetentionDecision(start=first.start)


@given(segments, limits, limits)
def test_a_stricter_limit_never_keeps_more(
    given_extents: list[SegmentExtent], one: RetentionLimits, other: RetentionLimits
) -> None:
    def strictest(first: int, second: int) -> int:
        return min(first, second) if min(first, second) >= 0 else max(first, second)

    both = RetentionLimits(
        strictest(one.retention_ms, other.retention_ms),
        strictest(one.retention_bytes, other.retention_bytes),
        max(one.pressure_bytes, other.pressure_bytes),
    )
    least = len(decide(given_extents, 0, EVERYTHING, one, NOW_MS).reasons)
    assert len(decide(given_extents, 0, EVERYTHING, both, NOW_MS).reasons) >= least
