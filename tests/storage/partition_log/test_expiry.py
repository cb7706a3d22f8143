"""Deletion of the oldest segments by age, by size and on a full disk; the rest survives every restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from doubles import TornTails
from storage.log_bench import START_MS, LogBench, batch_of

from trimq.storage.partition_log.expiry import expire, expire_oldest
from trimq.storage.partition_log.retention import RetentionReason

HOUR_MS = 3_600_000


def aged(hours: int = 10, **changes: object) -> LogBench:
    """A segment for each hour, with three records each."""
    bench = LogBench(**changes)
    for hour in range(hours):
        if hour:
            bench.roll()
        bench.now_ms = START_MS + hour * HOUR_MS
        bench.fill(3, first_ms=bench.now_ms)
    return bench


def expired(bench: LogBench) -> int:
    """Deletes expired segments and returns their number."""
    decision = expire(bench.log, bench.now_ms)
    bench.settle()
    return len(decision.reasons)


@pytest.fixture(params=[LogBench.restart, LogBench.kill, LogBench.crash], ids=["stop", "kill", "crash"])
def again(request: pytest.FixtureRequest) -> Callable[[LogBench], None]:
    return request.param  # type: ignore[no-any-return]


def test_no_segment_is_deleted_before_its_retention() -> None:
    bench = aged(retention_ms=10 * HOUR_MS)
    assert expired(bench) == 0
    assert bench.log.start == 0


def test_expired_segments_are_deleted_and_stay_deleted(again: Callable[[LogBench], None]) -> None:
    bench = aged(retention_ms=5 * HOUR_MS)
    bench.now_ms += 100  # newer than the newest record
    assert expired(bench) == 5
    assert bench.log.start == 15
    assert len(bench.names(".log")) == 5
    again(bench)
    assert bench.log.start == 15
    assert bench.offsets() == list(range(15, 30))


def test_an_expired_active_segment_is_deleted_too_and_offsets_continue(
    again: Callable[[LogBench], None],
) -> None:
    bench = aged(retention_ms=HOUR_MS)
    bench.now_ms += 2 * HOUR_MS
    assert expired(bench) == 10
    assert (bench.log.start, bench.log.end) == (30, 30)
    assert bench.names(".log") == [f"{30:020d}.log"]
    assert expired(bench) == 0, "an empty segment was replaced by another"
    again(bench)
    assert (bench.log.start, bench.log.end, bench.offsets()) == (30, 30, [])
    bench.append(b"next")
    assert bench.offsets() == [30]


def test_a_new_record_keeps_the_old_ones_of_its_segment() -> None:
    bench = LogBench(retention_ms=HOUR_MS)
    bench.fill(3)
    bench.now_ms += 2 * HOUR_MS
    bench.append(b"new", timestamp_ms=bench.now_ms)
    assert expired(bench) == 0


def test_whole_segments_beyond_the_size_limit_are_deleted(again: Callable[[LogBench], None]) -> None:
    bench = aged()
    last_four = sum(segment.segment.size for segment in bench.log.segments[-4:])
    bench.log.change_settings(replace(bench.settings, retention_bytes=last_four + 1))
    assert expired(bench) == 5
    assert bench.log.start == 15
    again(bench)
    assert bench.offsets() == list(range(15, 30))


def test_a_compacted_log_loses_only_segments_before_its_start() -> None:
    bench = aged(retention_ms=0, retention_bytes=0, is_expired=False, is_compacted=True)
    assert expired(bench) == 0
    bench.log.cut_head(7)
    bench.settle()
    assert expired(bench) == 0
    assert bench.log.start == 7
    assert len(bench.names(".log")) == 8


def test_segments_that_are_not_durable_are_kept() -> None:
    bench = LogBench(segment_bytes=300, retention_bytes=0)
    bench.fill(3)
    for _ in range(6):
        bench.begin_append(batch_of(bytes(100)))
    bench.runner.end_pass()
    expire(bench.log, bench.now_ms)
    assert bench.log.start <= 3
    bench.settle()
    assert bench.offsets() == list(range(bench.log.start, 9))


@pytest.mark.parametrize("rounds", range(7))
@pytest.mark.parametrize("kept_percent", [0, 50, 100])
@pytest.mark.parametrize("keeps_names", [False, True])
def test_a_crash_at_any_moment_of_a_deletion_loses_nothing_else(
    rounds: int, kept_percent: int, keeps_names: bool
) -> None:
    bench = aged(4, retention_ms=HOUR_MS)
    bench.now_ms += 3 * HOUR_MS
    expire(bench.log, bench.now_ms)  # the active segment is among them
    for _ in range(rounds):
        bench.runner.end_pass()
        bench.runner.offload.run_one()
    bench.crash(TornTails(kept_percent, keeps_names))
    assert bench.log.start in (0, 12)
    assert bench.offsets() == list(range(bench.log.start, 12))
    assert bench.log.end == 12
    expired(bench)
    assert bench.log.start == 12
    bench.append(b"next")
    bench.crash()
    assert bench.offsets() == [12]


def test_segments_left_before_the_start_by_a_crash_are_deleted_at_the_next_check() -> None:
    bench = aged()
    bench.log.cut_head(20)
    for _ in range(2):
        bench.runner.end_pass()
        bench.runner.offload.run_one()
    bench.crash()
    if bench.log.start == 20:
        decision = expire(bench.log, bench.now_ms)
        assert set(decision.reasons) <= {RetentionReason.START}
    bench.settle()
    assert bench.offsets() == list(range(bench.log.start, 30))


# -- disk pressure


def test_the_oldest_segments_of_all_logs_are_deleted_first() -> None:
    early, late = aged(4), aged(4)
    late.memory = early.memory
    for segment in late.log.segments:
        segment.written = segment.written and segment.written._replace(newest_ms=segment.written.newest_ms + 10**12)
    size = early.log.segments[0].segment.size
    freed = expire_oldest([late.log, early.log], 2 * size)
    early.settle()
    late.settle()
    assert freed >= 2 * size
    assert (early.log.start, late.log.start) == (6, 0)


def test_no_more_is_deleted_than_needed_and_never_the_active_segment() -> None:
    bench = aged(4)
    sizes = [segment.segment.size for segment in bench.log.segments]
    assert expire_oldest([bench.log], 1) == sizes[0]
    bench.settle()
    assert bench.log.start == 3
    assert expire_oldest([bench.log], 10**9) == sizes[1] + sizes[2]
    bench.settle()
    assert bench.offsets() == [9, 10, 11]
    assert expire_oldest([bench.log], 10**9) == 0


def test_logs_without_retention_are_not_shortened() -> None:
    bench = aged(is_expired=False, is_compacted=True)
    assert expire_oldest([bench.log], 10**9) == 0
    bench.log.abandon()
    assert expire_oldest([bench.log], 10**9) == 0
