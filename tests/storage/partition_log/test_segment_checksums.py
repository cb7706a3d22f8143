from __future__ import annotations

import pytest
from storage.log_bench import FOLDER, LogBench

from trimq.formats.checksum import crc32c
from trimq.storage.partition_log import segment_checksums
from trimq.storage.partition_log.segment_checksums import SegmentChecksums


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> LogBench:
    monkeypatch.setattr(segment_checksums, "_PIECE_BYTES", 300)
    bench = LogBench(segment_bytes=1000)
    bench.fill(20)
    return bench


def sums(bench: LogBench) -> list[int | None]:
    marks = [bench.checkpoints.sealed(FOLDER, segment.segment.base) for segment in bench.log.segments[:-1]]
    return [None if mark is None else mark.crc for mark in marks]


def expected(bench: LogBench) -> list[int | None]:
    return [crc32c(bench.contents(name)) for name in bench.names(".log")[:-1]]


def test_every_sealed_segment_gets_the_checksum_of_its_file(bench: LogBench) -> None:
    checksums = SegmentChecksums(bench.checkpoints, bench.runner.offload)
    assert set(sums(bench)) == {None}
    checksums.consider(bench.log)
    checksums.consider(bench.log)
    assert len(bench.runner.offload) == 1, "more than one piece of work at a time"
    bench.settle()
    assert sums(bench) == expected(bench)
    bench.crash()
    assert sums(bench) == expected(bench)


def test_a_segment_with_a_checksum_is_not_read_again(bench: LogBench) -> None:
    checksums = SegmentChecksums(bench.checkpoints, bench.runner.offload)
    checksums.consider(bench.log)
    bench.settle()
    checksums.consider(bench.log)
    assert len(bench.runner.offload) == 0


def test_a_segment_that_is_deleted_in_between_is_skipped(bench: LogBench) -> None:
    checksums = SegmentChecksums(bench.checkpoints, bench.runner.offload)
    checksums.consider(bench.log)
    bench.runner.offload.run_one()
    bench.log.cut_head(20)
    bench.settle()
    assert bench.checkpoints.marked(FOLDER) == [segment.segment.base for segment in bench.log.segments[:-1]]
    assert sums(bench) == expected(bench)


def test_a_segment_that_cannot_be_read_is_retried(bench: LogBench) -> None:
    checksums = SegmentChecksums(bench.checkpoints, bench.runner.offload)
    checksums.consider(bench.log)
    bench.runner.offload.fail_one(OSError(5, "input/output error"))
    bench.settle()
    assert sums(bench) == [None, *expected(bench)[1:]]
    checksums.consider(bench.log)
    bench.settle()
    assert sums(bench) == expected(bench)


def test_nothing_is_begun_after_a_stop(bench: LogBench) -> None:
    checksums = SegmentChecksums(bench.checkpoints, bench.runner.offload)
    checksums.consider(bench.log)
    checksums.stop()
    bench.settle()
    assert sums(bench)[1:] == [None] * (len(bench.log.segments) - 2)
