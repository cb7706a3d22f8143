"""Checks before every append to a partition log."""

from __future__ import annotations

import pytest
from core.core_bench import START_MS, CoreBench

from trimq.core.metadata.cluster import Node
from trimq.core.partitions.stream import Stream
from trimq.errors import DiskFull, DiskStalled, MessageTooLong, NotOwner, NotRunning, ReadOnly
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent
from trimq.model import Record
from trimq.storage.guards.slow_disk import RECHECK_AFTER_MS
from trimq.storage.io.memory_files import MemoryFiles


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


@pytest.fixture
def stream(bench: CoreBench) -> Stream:
    return bench.create("orders", message_bytes="500").stream(0)


def test_a_stopped_broker_refuses_appends(bench: CoreBench, stream: Stream) -> None:
    bench.core.stop_writes()
    with pytest.raises(NotRunning):
        bench.append(stream, b"x")
    with pytest.raises(NotRunning):
        bench.core.gate.require_writable()


def test_a_batch_that_is_too_long_is_refused_and_not_counted(bench: CoreBench, stream: Stream) -> None:
    with pytest.raises(MessageTooLong) as caught:
        bench.append(stream, bytes(600))
    assert caught.value.limit == 500
    assert (caught.value.size, stream.end) == (len(from_records([Record(bytes(600), timestamp_ms=START_MS)])), 0)
    assert bench.append(stream, bytes(400)) == 0


def test_the_limit_follows_the_topic_s_settings(bench: CoreBench, stream: Stream) -> None:
    bench.topics.change_settings(bench.topic("orders"), {"message_bytes": "5000"})
    bench.settle()
    assert bench.append(stream, bytes(600)) == 0


def test_another_node_s_stream_is_refused(bench: CoreBench, stream: Stream) -> None:
    bench.core.cluster.join(Node(99))
    bench.core.cluster.place(stream.id, 99, 7)
    with pytest.raises(NotOwner):
        bench.append(stream, b"x")


def test_batches_carry_the_current_leader_epoch(bench: CoreBench, stream: Stream) -> None:
    bench.append(stream, b"first run")
    bench.crash()
    stream = bench.topic("orders").stream(0)
    bench.append(stream, b"second run")
    assert [start.start_offset for start in stream.log.epochs] == [0, 1]


def test_records_are_sealed_into_one_batch(bench: CoreBench, stream: Stream) -> None:
    records = [Record(b"%d" % number, key=b"k", timestamp_ms=START_MS + number) for number in range(3)]
    appended = bench.core.appender.append_records(stream, records)
    bench.settle()
    assert appended.base_offset == 0
    assert [record.body for record in stream.records(0, 1 << 20)] == [b"0", b"1", b"2"]


def test_writes_are_refused_before_the_disk_is_full_and_accepted_again_when_there_is_room() -> None:
    memory = MemoryFiles(total_bytes=2_000_000_000)
    bench = CoreBench(None, memory)
    low_water_bytes = bench.settings.storage.low_water_bytes
    stream = bench.create("orders").stream(0)
    bench.append(stream, b"fits")
    filler = memory.open("filler", create=True)
    memory._total_bytes = low_water_bytes // 2
    bench.time.step(bench.time.now_ms() + 2000)
    with pytest.raises(DiskFull):
        bench.append(stream, b"does not")
    memory._total_bytes = 100 * low_water_bytes
    bench.advance(3000)
    assert bench.append(stream, b"fits again") == 1
    filler.close()


def test_the_metrics_count_appended_records(bench: CoreBench, stream: Stream) -> None:
    batch = from_records([Record(b"x", timestamp_ms=START_MS)], producer_id=1, producer_epoch=0, base_sequence=0)
    counted = bench.core.gate._batches
    before = counted.value
    for _ in range(3):
        bench.core.appender.append(stream, bytes(batch), check_sent(batch))
    bench.settle()
    assert counted.value == before + 1, "a duplicate was counted as appended"
    assert stream.end == 1


def test_a_read_only_topic_refuses_appends_until_it_is_writable_again(bench: CoreBench, stream: Stream) -> None:
    bench.append(stream, b"kept")
    bench.topics.change_settings(bench.topic("orders"), {"writable": "false"})
    bench.settle()
    with pytest.raises(ReadOnly, match="topic orders is read-only"):
        bench.append(stream, b"late")
    assert [record.body for record in stream.records(0, 1 << 20)] == [b"kept"]
    bench.topics.change_settings(bench.topic("orders"), {})
    bench.settle()
    assert bench.append(stream, b"again") == 1


def pass_time(bench: CoreBench, milliseconds: int) -> None:
    """Moves the clock while no sync ends."""
    end_ms = bench.time.now_ms() + milliseconds
    while bench.time.step(end_ms):
        pass


def test_writes_are_refused_while_a_sync_takes_too_long(bench: CoreBench, stream: Stream) -> None:
    batch = from_records([Record(b"x", timestamp_ms=START_MS)])
    gate, appender, busy_after_ms = bench.core.gate, bench.core.appender, bench.settings.storage.busy_after_ms
    appender.append(stream, bytes(batch), check_sent(batch))
    bench.runner.end_pass()
    pass_time(bench, busy_after_ms - 1)
    appender.append(stream, bytes(batch), check_sent(batch))
    bench.runner.end_pass()
    pass_time(bench, 1 + RECHECK_AFTER_MS)
    with pytest.raises(DiskStalled) as caught:
        appender.append(stream, bytes(batch), check_sent(batch))
    assert caught.value.retriable
    with pytest.raises(DiskStalled):
        gate.require_writable()
    bench.settle()
    assert appender.append(stream, bytes(batch), check_sent(batch)).base_offset == 2


def test_syncs_that_make_progress_refuse_no_writes_however_many_there_are(bench: CoreBench, stream: Stream) -> None:
    batch = from_records([Record(b"x", timestamp_ms=START_MS)])
    for number in range(10):
        bench.advance(bench.settings.storage.busy_after_ms - 1)
        assert bench.core.appender.append(stream, bytes(batch), check_sent(batch)).base_offset == number
        bench.settle()


def test_a_sync_whose_completion_waited_for_a_busy_event_loop_is_not_a_slow_disk(
    bench: CoreBench, stream: Stream
) -> None:
    batch = from_records([Record(b"x", timestamp_ms=START_MS)])
    bench.core.appender.append(stream, bytes(batch), check_sent(batch))
    bench.runner.end_pass()
    pass_time(bench, bench.settings.storage.busy_after_ms)
    bench.settle()
    pass_time(bench, RECHECK_AFTER_MS)
    assert bench.core.appender.append(stream, bytes(batch), check_sent(batch)).base_offset == 1
