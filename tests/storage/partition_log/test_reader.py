"""Reading by offset and by timestamp: first batches, limits, segments, gaps, cached read positions, damage and
memory."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path

import pytest
from doubles import PassRunner
from hypothesis import given
from hypothesis import strategies as st
from storage.log_bench import FOLDER, SETTINGS, START_MS, TOPIC, CountingFiles, LogBench, batch_of, read_all

from trimq.errors import DamagedSegment
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import empty_batch, read_header
from trimq.formats.kafka_batch.markers import control_batch
from trimq.model import Record
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.io.files import DiskFiles
from trimq.storage.partition_log.index_cache import IndexCache
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import find_aborted, find_latest, find_time, largest_timestamp, read_batches
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

EXPANDED = 1 << 20


def written(counts: list[int], segment_bytes: int = 700, body_bytes: int = 40) -> LogBench:
    """Returns a log with a batch for each count of records."""
    bench = LogBench(segment_bytes=segment_bytes)
    for count in counts:
        first = bench.log.end
        bench.append(*(b"%d " % (first + index) + bytes(body_bytes) for index in range(count)))
    return bench


@pytest.fixture(scope="module")
def bench() -> LogBench:
    return written([1, 3, 2, 5, 1, 1, 4, 2, 2, 8, 1, 1, 1, 6, 3])


# -- limits


def test_the_batch_with_the_offset_is_returned_first(bench: LogBench) -> None:
    for offset in range(bench.log.end):
        found = read_batches(bench.log, offset, 1, bench.log.end)
        header = read_header(found.parts[0])
        assert header.base_offset <= offset <= header.last_offset
        assert found.size == header.size, (
            "the first batch must be returned even if it is larger than the limit, and no other"
        )
        assert found.next_offset == header.next_offset


@given(data=st.data(), max_bytes=st.integers(0, 1500))
def test_whole_batches_are_returned_up_to_the_limits(bench: LogBench, data: st.DataObject, max_bytes: int) -> None:
    boundaries = [stored.header.base_offset for stored in bench.batches()] + [bench.log.end]
    limit = data.draw(st.sampled_from(boundaries))
    offset = data.draw(st.integers(0, bench.log.end))
    found = read_batches(bench.log, offset, max_bytes, limit)
    if offset >= limit:
        assert (found.parts, found.size, found.next_offset) == ((), 0, offset)
        return
    headers = []
    position = 0
    while position < found.size:
        headers.append(read_header(found.parts[0], position))
        position += headers[-1].size
    assert position == found.size
    assert headers[0].base_offset <= offset <= headers[0].last_offset
    assert headers[-1].next_offset == found.next_offset <= limit
    assert found.size <= max(max_bytes, headers[0].size)
    segment = next(segment for segment in reversed(bench.log.segments) if segment.segment.base <= offset)
    is_more = found.next_offset < min(limit, segment.end_offset if segment.end_offset >= 0 else limit)
    if is_more:  # stopped because the next batch does not fit
        following = read_header(read_batches(bench.log, found.next_offset, 0, limit).parts[0])
        assert found.size + following.size > max_bytes


@given(max_bytes=st.integers(0, 3000))
def test_consecutive_reads_return_every_record_once(bench: LogBench, max_bytes: int) -> None:
    bench.log.read_positions.clear()
    assert [record.offset for record in bench.records(0, max_bytes)] == list(range(bench.log.end))


def test_nothing_is_read_at_or_beyond_the_last_stable_offset() -> None:
    bench = LogBench(segment_bytes=400)
    bench.fill(3, 20)
    for number in range(5):
        bench.append(b"t%d" % number, producer_id=1, producer_epoch=0, base_sequence=number, transactional=True)
        bench.fill(1, 20)
    limit = bench.log.first_unstable_offset
    assert limit == 3
    assert [stored.header.base_offset for stored in bench.batches(0, 10_000, limit)] == [0, 1, 2]
    assert read_batches(bench.log, 3, 10_000, limit).parts == ()


def test_a_transaction_is_open_until_its_marker_is_durable() -> None:
    """Otherwise readers would see records that a crash could remove."""
    bench = LogBench()
    bench.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    bench.begin_append(bench.marker(1, commit=True))
    assert bench.log.first_unstable_offset == 0
    bench.runner.end_pass()
    assert bench.log.first_unstable_offset == 0
    bench.settle()
    assert bench.log.first_unstable_offset is None


# -- gaps


def with_gaps() -> LogBench:
    """A log after compaction: offsets 0, 7, 20 to 22, 31 (without records), 40."""
    bench = LogBench(segment_bytes=250)
    for offset, count in ((0, 1), (7, 1), (20, 3), (31, 0), (40, 1)):
        batch = batch_of(*[b"%d" % (offset + index) for index in range(count or 1)])
        bench.log.end = offset
        bench.begin_append(batch if count else empty_batch(read_header(batch)))
        bench.settle()
    return bench


@pytest.mark.parametrize("max_bytes", [0, 100, 150, 10_000])
def test_reading_removed_offsets_returns_the_next_existing_one(max_bytes: int) -> None:
    bench = with_gaps()
    assert len(bench.log.segments) > 1
    for offset in range(41):
        bench.log.read_positions.clear()
        first = read_header(read_batches(bench.log, offset, max_bytes, 41).parts[0])
        present = [0, 7, 20, 21, 22, 31, 40]
        assert first.base_offset <= next(there for there in present if there >= offset) <= first.last_offset
    assert bench.offsets() == [0, 7, 20, 21, 22, 40]


def test_a_reader_reaches_the_end_although_no_records_are_left_before_it() -> None:
    bench = LogBench()
    bench.append(b"x")
    bench.log.end = 9
    bench.log.roll()
    bench.settle()
    found = read_batches(bench.log, 5, 100, bench.log.durable_end)
    assert (found.parts, found.next_offset) == ((), 9)


# -- cached read positions


def test_few_read_positions_are_cached() -> None:
    bench = LogBench(segment_bytes=700)
    bench.fill(60, 20)
    for offset in range(60):
        read_batches(bench.log, offset, 0, 60)
    assert len(bench.log.read_positions) <= 16


def test_a_cached_read_position_is_correct_after_any_change() -> None:
    bench = LogBench(segment_bytes=500)
    for round in range(30):
        bench.fill(1, 60)
        if round % 4 == 0:
            bench.begin_append(batch_of(bytes(60)))
            bench.fail_writes()
            bench.settle()
            bench.mend()
        if round % 9 == 8:
            bench.log.cut_head(bench.log.start + 4)
            bench.settle()
        for offset in range(bench.log.start, bench.log.end):
            header = read_header(read_batches(bench.log, offset, 0, bench.log.durable_end).parts[0])
            assert header.base_offset == offset


# -- timestamps


@st.composite
def times_of_batches(draw: st.DrawFn) -> list[list[int]]:
    return draw(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=20))


@given(times=times_of_batches(), codec=st.sampled_from(list(Codec)), data=st.data())
def test_the_first_record_at_a_timestamp_is_found(times: list[list[int]], codec: Codec, data: st.DataObject) -> None:
    bench = LogBench(segment_bytes=data.draw(st.sampled_from([300, 1 << 20])))
    flat = []
    for batch in times:
        records = [Record(b"%d" % time, timestamp_ms=START_MS + time) for time in batch]
        bench.begin_append(from_records(records, codec=codec))
        flat += batch
    bench.settle()
    start = data.draw(st.integers(0, len(flat)))
    bench.log.cut_head(start)
    if data.draw(st.booleans()):
        bench.restart()
    bench.begin_append(batch_of(b"not readable yet", timestamp_ms=START_MS + 100))
    for wanted in range(32):
        first = next((offset for offset in range(start, len(flat)) if flat[offset] >= wanted), None)
        found = find_time(bench.log, START_MS + wanted, bench.log.durable_end, EXPANDED)
        assert (None if found is None else found.offset) == first
    latest = max(range(start, len(flat)), key=lambda offset: (flat[offset], -offset), default=None)
    found = find_latest(bench.log, bench.log.durable_end, EXPANDED)
    assert (None if found is None else found.offset) == latest


def test_the_latest_timestamp_is_found_below_the_durable_end_while_later_ones_are_written() -> None:
    bench = LogBench()
    bench.fill(20, 60)
    for number in range(30):
        bench.begin_append(batch_of(bytes(60), timestamp_ms=START_MS + 1000 + number))
    bench.runner.end_pass()
    found = find_latest(bench.log, bench.log.durable_end, EXPANDED)
    assert found is not None
    assert found.offset == 19


def test_records_without_a_timestamp_are_not_found_by_timestamp() -> None:
    bench = LogBench()
    bench.append(b"timeless", timestamp_ms=-1)
    assert find_time(bench.log, 0, 1, EXPANDED) is None
    assert find_latest(bench.log, 1, EXPANDED) is None
    assert largest_timestamp(bench.log, bench.log.active) == -1


# -- damage


def flip(data: bytearray, position: int) -> None:
    data[position] ^= 0x10


@pytest.fixture
def restarted() -> LogBench:
    bench = LogBench(segment_bytes=1000)
    bench.fill(30)
    bench.restart()
    return bench


def test_only_reads_of_damaged_batches_are_refused(restarted: LogBench) -> None:
    name = restarted.names(".log")[0]
    sizes = [len(stored.data) for stored in restarted.batches()]
    restarted.damage(name, lambda data: flip(data, sizes[0] + sizes[1] + 80))
    restarted.kill()
    for offset in range(30):
        if offset == 2:
            with pytest.raises(DamagedSegment, match=name):
                read_batches(restarted.log, offset, 0, 30)
        else:
            assert read_header(read_batches(restarted.log, offset, 0, 30).parts[0]).base_offset == offset
    with pytest.raises(DamagedSegment):
        read_batches(restarted.log, 0, 10_000, 30)


@pytest.mark.parametrize("at", range(8), ids=lambda at: f"byte {at} of the offset")
@pytest.mark.parametrize("number", [0, 2, 4], ids=["first", "middle", "last"])
def test_a_damaged_offset_is_noticed_although_no_checksum_covers_it(restarted: LogBench, number: int, at: int) -> None:
    name = restarted.names(".log")[0]
    stored = restarted.batches()[:number]
    position = sum(len(each.data) for each in stored)
    assert len(restarted.contents(name)) > position
    restarted.damage(name, lambda data: flip(data, position + at))
    restarted.kill()
    for max_bytes in (0, 300, 10_000):
        restarted.log.read_positions.clear()
        with pytest.raises(DamagedSegment):
            read_batches(restarted.log, number, max_bytes, 30)


def test_a_batch_is_checked_once(restarted: LogBench) -> None:
    counting = CountingFiles(restarted.memory)
    restarted.memory = counting  # type: ignore[assignment]
    restarted.open()
    first = restarted.log.segments[0]
    read_batches(restarted.log, 0, 10_000, 30)
    assert first.checked_to == first.segment.size


# -- aborted transactions


def test_aborted_transactions_are_found_when_their_index_is_lost() -> None:
    bench = LogBench(segment_bytes=600)
    for number in range(12):
        bench.append(bytes(50), producer_id=1, producer_epoch=0, base_sequence=number, transactional=True)
        bench.fill(1, 50)
        bench.begin_append(control_batch(1, 0, 1, number % 3 == 0, START_MS, 0))
        bench.settle()
    bench.restart()
    before = [find_aborted(bench.log, segment) for segment in bench.log.segments]
    assert sum(map(len, before)) == 8
    bench.close()
    for name in bench.names(".txnindex"):
        bench.memory.remove(f"{FOLDER}/{name}")
    bench.open()
    assert [find_aborted(bench.log, segment) for segment in bench.log.segments] == before


# -- memory and descriptors


def opened_on_disk(folder: Path, loaded: IndexCache, segment_bytes: int) -> tuple[PartitionLog, PassRunner, DiskFiles]:
    files = DiskFiles(str(folder), open_files=8)
    runner = PassRunner(files)
    files.make_folder(ROOT)
    checkpoints = Checkpoints(open_table(files, "tables", "checkpoints", runner.passes, list, runner.offload))
    store = PartitionStore(files, runner.passes, checkpoints, lambda: START_MS)
    store._index_cache = loaded
    log = store.open("t", 0, TOPIC, replace(SETTINGS, segment_bytes=segment_bytes, index_interval_bytes=1))
    runner.settle()
    return log, runner, files


def test_indexes_in_memory_and_open_files_are_bounded(tmp_path: Path) -> None:
    loaded = IndexCache(most=3)
    log, runner, files = opened_on_disk(tmp_path, loaded, 5000)
    for number in range(400):
        batch = batch_of(b"%d" % number + bytes(60))
        log.append(batch, read_header(batch), 0)
        runner.settle()
    assert len(log.segments) > 9
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for offset in range(0, 400, 7):
            assert read_header(read_batches(log, offset, 0, 400).parts[0]).base_offset == offset
    assert sum(segment.is_index_loaded for segment in log.segments[:-1]) <= 3
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    files.close()


def test_the_age_of_segments_is_read_without_their_indexes(restarted: LogBench) -> None:
    assert len(restarted.log.segments) > 3
    for segment in restarted.log.segments[:-1]:
        assert largest_timestamp(restarted.log, segment) >= START_MS
        assert not segment.is_index_loaded


def test_a_sequential_reader_reads_every_byte_once_from_a_warm_log(restarted: LogBench) -> None:
    list(read_all(restarted.log, 0, 400))
    counting = CountingFiles(restarted.memory)
    restarted.memory = counting  # type: ignore[assignment]
    restarted.open()
    list(read_all(restarted.log, 0, 1 << 20))
    size = restarted.log.size_bytes
    read = sum(
        count for name, count in counting.read_bytes.items() if name.startswith(FOLDER) and name.endswith(".log")
    )
    assert read < 6 * size  # views of the same bytes: for the lookup, the check and the response
