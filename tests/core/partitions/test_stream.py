"""The three ends of a stream, reads, and waiting readers."""

from __future__ import annotations

import pytest
from core.core_bench import EXPANDED, CoreBench

from trimq.core.partitions.stream import Stream
from trimq.errors import DamagedSegment, OffsetOutOfRange
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import check_sent, read_header
from trimq.formats.kafka_batch.markers import control_batch
from trimq.model import Record
from trimq.storage.partition_log.expected_segments import remedy


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


@pytest.fixture
def stream(bench: CoreBench) -> Stream:
    return bench.create("orders").stream(0)


def begin(bench: CoreBench, stream: Stream, body: bytes, **fields: object) -> None:
    batch = from_records([Record(body, timestamp_ms=bench.time.now_ms())], **fields)  # type: ignore[arg-type]
    bench.core.appender.append(stream, batch, check_sent(batch))


def ends(stream: Stream) -> tuple[int, int, int]:
    return (stream.end, stream.durable_end, stream.readable_end)


def test_the_end_the_durable_end_and_the_readable_end_move_in_this_order(bench: CoreBench, stream: Stream) -> None:
    assert ends(stream) == (0, 0, 0)
    begin(bench, stream, b"a")
    assert ends(stream) == (1, 0, 0)
    bench.runner.end_pass()
    assert ends(stream) == (1, 0, 0)
    bench.settle()
    assert ends(stream) == (1, 1, 1)


def test_a_refused_pass_resets_the_end(bench: CoreBench, stream: Stream) -> None:
    bench.append(stream, b"kept")
    begin(bench, stream, b"refused")
    bench.fail_writes(".log")
    bench.settle()
    assert ends(stream) == (1, 1, 1)


def test_offsets_before_the_start_and_after_the_end_are_out_of_range(bench: CoreBench, stream: Stream) -> None:
    for number in range(5):
        bench.append(stream, b"%d" % number)
    stream.log.cut_head(2)
    begin(bench, stream, b"not durable")
    for offset in (-1, 0, 1, 6, 99):
        with pytest.raises(OffsetOutOfRange) as caught:
            stream.read(offset, 100)
        assert (caught.value.start, caught.value.end) == (2, 5)
    assert stream.read(5, 100).parts == ()
    assert stream.start == 2


def test_records_are_read_as_they_were_appended_with_every_codec(bench: CoreBench, stream: Stream) -> None:
    sent = []
    for codec in Codec:
        records = [
            Record(b"%d" % codec, key=b"k", headers=(("h", b"v"), ("n", None)), timestamp_ms=bench.time.now_ms())
        ]
        batch = from_records(records * 2, codec=codec)
        bench.core.appender.append(stream, batch, check_sent(batch))
        sent += [(b"%d" % codec, b"k", (("h", b"v"), ("n", None)))] * 2
    bench.settle()
    found = list(stream.records(0, EXPANDED))
    assert [(record.body, record.key, record.headers) for record in found] == sent
    assert [record.offset for record in found] == list(range(10))
    assert [record.offset for record in stream.records(7, EXPANDED)] == [7, 8, 9]


def test_reading_records_ends_at_the_end_and_skips_markers(bench: CoreBench, stream: Stream) -> None:
    bench.append(stream, b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    marker = control_batch(1, 0, 0, True, bench.time.now_ms(), 0)
    stream.append(marker, read_header(marker), 0)
    bench.settle()
    bench.append(stream, b"b")
    assert [(record.offset, record.body) for record in stream.records(0, EXPANDED)] == [(0, b"a"), (2, b"b")]


def test_reading_records_ends_although_the_last_offsets_were_compacted_away(bench: CoreBench, stream: Stream) -> None:
    bench.append(stream, b"a")
    stream.log.end = 7  # as if compaction had removed these records
    stream.log.roll()
    bench.settle()
    assert [record.offset for record in stream.records(0, EXPANDED)] == [0]


def test_the_stable_end_waits_for_a_durable_marker(bench: CoreBench, stream: Stream) -> None:
    bench.append(stream, b"plain")
    bench.append(stream, b"open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    bench.append(stream, b"behind")
    assert (stream.stable_end, stream.readable_end) == (1, 3)
    marker = control_batch(1, 0, 0, True, bench.time.now_ms(), 0)
    stream.append(marker, read_header(marker), 0)
    assert stream.stable_end == 1
    bench.settle()
    assert stream.stable_end == 4


def test_a_marker_that_is_refused_decides_nothing(bench: CoreBench, stream: Stream) -> None:
    bench.append(stream, b"open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    marker = control_batch(1, 0, 0, True, bench.time.now_ms(), 0)
    stream.append(marker, read_header(marker), 0)
    bench.fail_writes(".log")
    bench.settle()
    assert stream.stable_end == 0
    bench.mend()
    bench.crash()
    assert bench.topic("orders").stream(0).stable_end == 0


def test_a_timestamp_is_looked_up_among_readable_records(bench: CoreBench, stream: Stream) -> None:
    first_ms = bench.time.now_ms()
    bench.append(stream, b"a")
    bench.advance(10)
    bench.append(stream, b"b")
    bench.advance(10)
    begin(bench, stream, b"not readable")
    found = stream.find_time(first_ms + 1, EXPANDED)
    assert found == (1, first_ms + 10)
    assert stream.find_time(first_ms + 1, EXPANDED, limit=1) is None
    assert stream.find_time(first_ms + 20, EXPANDED) is None
    assert stream.find_latest(EXPANDED) == (1, first_ms + 10)


def test_a_waiter_is_called_once_when_there_is_more_to_read(bench: CoreBench, stream: Stream) -> None:
    called: list[int] = []
    stream.watch(lambda: called.append(stream.readable_end))
    cancelled = stream.watch(lambda: called.append(-1))
    cancelled.cancel()
    begin(bench, stream, b"a")
    bench.runner.end_pass()
    assert called == []
    bench.settle()
    assert called == [1]
    bench.append(stream, b"b")
    assert called == [1]


def test_damage_in_a_sealed_segment_is_logged_once_with_a_remedy_and_counted(
    bench: CoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    topic = bench.create("orders", segment_bytes="2000")
    stream = topic.stream(0)
    for _ in range(20):
        bench.append(stream, bytes(300))
    bench.restart()
    assert b"trimq_damaged_places 0.0" in bench.metrics.render()
    stream = bench.topic("orders").stream(0)
    segment = stream.log.segments[0].segment
    (byte,) = segment.file.read(20, 1)
    segment.file.write(20, [bytes([byte ^ 1])])
    for _ in range(3):
        with pytest.raises(DamagedSegment):
            stream.read(0, 1000)
    (message,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    name = segment.file.name
    assert message == f"{name} is damaged at byte 0; reads of it fail. Stop the broker, then {remedy(name)}"
    assert b"trimq_damaged_places 1.0" in bench.metrics.render()
