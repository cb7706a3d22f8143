"""Periodic maintenance of partition logs, on a clock that the test drives."""

from __future__ import annotations

import pytest
from core.core_bench import CoreBench
from msgspec.structs import replace

from trimq.config import Settings
from trimq.formats.checksum import crc32c
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log.store import ROOT

HOUR_MS = 3_600_000


def fill(bench: CoreBench, name: str, count: int) -> None:
    stream = bench.topic(name).stream(0)
    for number in range(count):
        bench.append(stream, b"%d " % number + bytes(300))


def test_records_are_deleted_after_their_retention_and_offsets_continue() -> None:
    bench = CoreBench()
    bench.create("orders", retention_ms=str(2 * HOUR_MS), segment_bytes="1024")
    fill(bench, "orders", 10)
    bench.advance(HOUR_MS)
    assert bench.topic("orders").stream(0).start == 0
    fill(bench, "orders", 10)
    bench.advance(HOUR_MS + HOUR_MS // 2)
    stream = bench.topic("orders").stream(0)
    assert 8 <= stream.start <= 10
    bench.advance(HOUR_MS)
    assert (stream.start, stream.end) == (20, 20)
    for again in (bench.crash, bench.kill, bench.restart):
        again()
        stream = bench.topic("orders").stream(0)
        assert (stream.start, stream.end) == (20, 20)
    assert bench.append(stream, b"next") == 20


def test_records_are_deleted_beyond_the_size_limit() -> None:
    bench = CoreBench()
    bench.create("orders", retention_bytes="3000", segment_bytes="1024")
    fill(bench, "orders", 30)
    bench.advance(HOUR_MS)
    log = bench.topic("orders").stream(0).log
    assert 3000 <= log.size_bytes <= 3000 + 1024
    assert log.start > 15
    bench.crash()
    assert bench.topic("orders").stream(0).start == log.start


def test_the_oldest_records_are_deleted_when_the_disk_is_nearly_full() -> None:
    settings = Settings()
    settings = replace(settings, storage=replace(settings.storage, low_water_bytes=0))
    memory = MemoryFiles(total_bytes=1 << 40)
    bench = CoreBench(settings, memory)
    for name in ("old", "new", "compacted"):
        cleanup = {"cleanup": "compact"} if name == "compacted" else {}
        bench.create(name, segment_bytes="1024", **cleanup)
    fill(bench, "old", 20)
    bench.advance(HOUR_MS)
    fill(bench, "new", 20)
    used = memory.space().total_bytes - memory.space().free_bytes
    memory._total_bytes = (used - 3000) * 100 // settings.storage.disk_pressure_percent
    bench.advance(HOUR_MS)
    assert bench.topic("old").stream(0).start > 5
    assert bench.topic("new").stream(0).start == 0


def test_sealed_segments_get_a_checksum() -> None:
    bench = CoreBench()
    bench.create("orders", segment_bytes="1024")
    fill(bench, "orders", 10)
    bench.advance(HOUR_MS)
    log = bench.topic("orders").stream(0).log
    checkpoints = log._checkpoints
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        mark = checkpoints.sealed(log.folder, segment.segment.base)
        assert mark is not None
        assert mark.crc == crc32c(segment.segment.read(0, segment.segment.size))


def test_a_topic_that_is_deleted_during_a_round_is_skipped() -> None:
    bench = CoreBench()
    topic = bench.create("orders", retention_ms="1", segment_bytes="1024")
    fill(bench, "orders", 10)
    maintenance = bench.core.maintenance
    maintenance.stop()
    maintenance._round = iter(list(topic.streams))
    bench.topics.delete(topic)
    bench.settle()
    maintenance._turn()
    bench.settle()
    assert bench.memory.names(ROOT) == []
    bench.create("orders")
    bench.crash()
    assert bench.bodies("orders") == []


@pytest.mark.parametrize("streams", [201, 401])
def test_maintenance_of_many_streams_takes_several_turns(streams: int) -> None:
    bench = CoreBench()
    topic = bench.create("orders", streams, retention_ms="1")
    for stream in topic.streams[:: streams - 1]:
        bench.append(stream, b"x")
    bench.advance(HOUR_MS)
    assert [stream.start for stream in topic.streams[:: streams - 1]] == [1, 1]
