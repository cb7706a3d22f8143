from __future__ import annotations

import struct
from pathlib import Path

import pytest
from storage.kafka_folders import INDEX_INTERVAL_BYTES, base_of, batches_of, companions, end_of, log_of, named, printed

from trimq.storage.checkpoints.file_names import CorruptCompanion
from trimq.storage.io.files import DiskFiles
from trimq.storage.partition_log.index import (
    MAX_POSITION,
    MAX_RELATIVE_OFFSET,
    OffsetPosition,
    SegmentIndex,
    StoredIndex,
    TimestampOffset,
)

BASE = 1000
BATCH_BYTES = 100
INDEXES = companions(".index")
SEALED_OR_CLOSED = [path for path in INDEXES if named(path) != "cut-0/13.index"]


def indexed(batches: int, interval_bytes: int = 250, base: int = BASE) -> SegmentIndex:
    """Returns the index of batches with ten records and 100 bytes each, ten milliseconds apart."""
    index = SegmentIndex(base, interval_bytes)
    for number in range(batches):
        index.note(base + 10 * number + 9, BATCH_BYTES * number, 10 * number)
    return index


def stored(index: SegmentIndex, batches: int) -> StoredIndex:
    log_bytes, end_offset = BATCH_BYTES * batches, index.base + 10 * batches
    return StoredIndex(index.base, index.encode_offsets(), index.encode_times(), log_bytes, end_offset)


def offset_entries(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">II", *entry) for entry in entries)


def time_entries(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qI", *entry) for entry in entries)


# -- same bytes as Kafka


def built_from(log: bytes, base: int) -> SegmentIndex:
    index = SegmentIndex(base, INDEX_INTERVAL_BYTES)
    for position, header, _ in batches_of(log):
        index.note(header.last_offset, position, header.max_timestamp_ms)
    return index


@pytest.mark.parametrize("path", SEALED_OR_CLOSED, ids=named)
def test_the_index_built_from_a_kafka_log_equals_kafkas_own_byte_for_byte(path: Path) -> None:
    index = built_from(log_of(path), base_of(path))
    index.seal()
    assert index.encode_offsets() == path.read_bytes()
    assert index.encode_times() == path.with_suffix(".timeindex").read_bytes()


def test_the_index_of_a_killed_kafka_equals_ours_followed_by_zeros() -> None:
    (path,) = set(INDEXES) - set(SEALED_OR_CLOSED)
    index = built_from(log_of(path), base_of(path))
    assert path.read_bytes() == index.encode_offsets().ljust(2400, b"\0")
    assert path.with_suffix(".timeindex").read_bytes() == index.encode_times().ljust(2400, b"\0")


@pytest.mark.parametrize("path", INDEXES, ids=named)
def test_a_stored_index_has_the_entries_that_kafkas_tool_prints(path: Path) -> None:
    times = path.with_suffix(".timeindex")
    log = log_of(path)
    index = StoredIndex(base_of(path), path.read_bytes(), times.read_bytes(), len(log), end_of(log))
    assert [entry._asdict() for entry in index.offsets()] == printed(path)
    assert [{"timestamp": time, "offset": offset} for time, offset in index.times()] == printed(times)


@pytest.mark.parametrize("path", INDEXES, ids=named)
def test_every_offset_and_timestamp_of_a_kafka_log_is_found_from_its_index_entry(path: Path) -> None:
    log = log_of(path)
    batches = [(position, header) for position, header, _ in batches_of(log)]
    index = StoredIndex(
        base_of(path), path.read_bytes(), path.with_suffix(".timeindex").read_bytes(), len(log), end_of(log)
    )
    for position, header in batches:
        for offset in (header.base_offset, header.last_offset):
            assert index.lookup(offset).position <= position
        entry = index.lookup_timestamp(header.max_timestamp_ms)
        first = min(found for found, other in batches if other.max_timestamp_ms >= header.max_timestamp_ms)
        assert index.lookup(entry.offset).position <= first


# -- the growing index


def test_an_entry_names_the_last_offset_of_the_first_batch_after_the_interval() -> None:
    index = indexed(10)
    assert list(stored(index, 10).offsets()) == [(1039, 300), (1069, 600), (1099, 900)]
    assert list(stored(index, 10).times()) == [(30, 1039), (60, 1069), (90, 1099)]


def test_a_batch_right_after_the_interval_has_no_entry_yet() -> None:
    assert indexed(4, interval_bytes=300).offset_entries == 0
    assert indexed(5, interval_bytes=300).offset_entries == 1


def test_a_time_entry_names_the_first_batch_with_that_timestamp() -> None:
    index = SegmentIndex(0, 100)
    for number, timestamp_ms in enumerate([5, 9, 9, 7, 9, 8, 10]):
        index.note(number, 100 * number, timestamp_ms)
    index.seal()
    assert list(StoredIndex(0, index.encode_offsets(), index.encode_times(), 700, 7).times()) == [(9, 1), (10, 6)]


def test_sealing_adds_the_largest_timestamp_once() -> None:
    index = indexed(9)
    index.seal()
    index.seal()
    assert list(stored(index, 9).times()) == [(30, 1039), (60, 1069), (80, 1089)]
    assert index.largest == stored(index, 9).largest == (80, 1089)


def test_batches_without_a_timestamp_leave_the_time_index_empty() -> None:
    index = SegmentIndex(0, 0)
    for number in range(5):
        index.note(number, 100 * number, -1)
    index.seal()
    assert (index.offset_entries, index.time_entries) == (4, 0)
    assert index.lookup_timestamp(5) == index.largest == (-1, 0)


@pytest.mark.parametrize("kind", ["growing", "stored"])
def test_a_lookup_gives_the_last_entry_that_is_not_after_it(kind: str) -> None:
    growing = indexed(10)
    index = growing if kind == "growing" else stored(growing, 10)
    beginning = OffsetPosition(BASE, 0)
    assert [index.lookup(offset) for offset in (-1, 0, BASE, 1038)] == [beginning] * 4
    assert [index.lookup(offset) for offset in (1039, 1068)] == [(1039, 300)] * 2
    assert [index.lookup(offset) for offset in (1099, 1100, 1 << 62)] == [(1099, 900)] * 3
    assert [index.boundary_before(position) for position in (-1, 0, 299)] == [beginning] * 3
    assert [index.boundary_before(position) for position in (300, 599)] == [(1039, 300)] * 2
    assert [index.boundary_before(position) for position in (900, 1 << 62)] == [(1099, 900)] * 2
    unknown = TimestampOffset(-1, BASE)
    assert [index.lookup_timestamp(time) for time in (-(1 << 63), -1, 0, 29)] == [unknown] * 4
    assert [index.lookup_timestamp(time) for time in (30, 59)] == [(30, 1039)] * 2
    assert [index.lookup_timestamp(time) for time in (90, (1 << 63) - 1)] == [(90, 1099)] * 2


def test_entries_added_since_a_savepoint_can_be_removed() -> None:
    index = indexed(7)
    mark = index.mark()
    before = (index.encode_offsets(), index.encode_times(), index.largest)
    for number in range(7, 20):
        index.note(BASE + 10 * number + 9, BATCH_BYTES * number, 10 * number)
    index.seal()
    index.roll_back_to(mark)
    assert (index.encode_offsets(), index.encode_times(), index.largest) == before
    for number in range(7, 12):
        index.note(BASE + 10 * number + 9, BATCH_BYTES * number, 10 * number)
    assert index.encode_offsets() == indexed(12).encode_offsets()
    assert index.encode_times() == indexed(12).encode_times()


def test_only_new_entries_are_written() -> None:
    index = indexed(20)
    offsets, times = index.encode_offsets(), index.encode_times()
    assert index.encode_offsets(2) == offsets[16:]
    assert index.encode_times(2) == times[24:]
    assert index.encode_offsets(index.offset_entries) == index.encode_times(index.time_entries) == b""


def test_an_offset_or_position_beyond_the_range_of_an_entry_is_refused() -> None:
    index = SegmentIndex(BASE, 0)
    assert index.takes(BASE + MAX_RELATIVE_OFFSET, MAX_POSITION)
    assert not index.takes(BASE + MAX_RELATIVE_OFFSET + 1, 0)
    assert not index.takes(BASE, MAX_POSITION + 1)
    index.note(BASE, 0, 0)
    index.note(BASE + MAX_RELATIVE_OFFSET, MAX_POSITION, 1)
    assert index.lookup(1 << 62) == (BASE + MAX_RELATIVE_OFFSET, MAX_POSITION)


# -- resuming an index after a restart


@pytest.mark.parametrize("trusted_batches", [0, 1, 3, 4, 6, 7, 19, 20])
@pytest.mark.parametrize("tail", [b"", b"\0" * 100, b"\xff" * 8, b"torn"], ids=["clean", "zeros", "garbage", "torn"])
def test_a_resumed_index_equals_the_original(trusted_batches: int, tail: bytes) -> None:
    timestamps = [(number * 7 % 20) * 10 for number in range(20)]
    whole = SegmentIndex(BASE, 250)
    for number, timestamp_ms in enumerate(timestamps):
        whole.note(BASE + 10 * number + 9, BATCH_BYTES * number, timestamp_ms)
    files = (whole.encode_offsets() + tail, whole.encode_times() + tail)
    index, position = SegmentIndex.resume(BASE, 250, *files, trusted_bytes=BATCH_BYTES * trusted_batches)
    assert position == (trusted_batches - 1) // 3 * 300 if trusted_batches > 3 else position == 0
    for number in range(position // BATCH_BYTES, 20):
        index.note(BASE + 10 * number + 9, BATCH_BYTES * number, timestamps[number])
    assert index.encode_offsets() == whole.encode_offsets()
    assert index.encode_times() == whole.encode_times()
    assert index.largest == whole.largest


@pytest.mark.parametrize("lost", ["offsets", "times"])
def test_an_index_without_one_of_its_files_is_rebuilt(lost: str) -> None:
    whole = indexed(20)
    files = (b"", whole.encode_times()) if lost == "offsets" else (whole.encode_offsets(), b"")
    index, position = SegmentIndex.resume(BASE, 250, *files, trusted_bytes=2000)
    assert (index.offset_entries, index.time_entries, position) == (0, 0, 0)


def test_an_index_whose_last_entry_names_no_batch_is_rebuilt() -> None:
    whole = indexed(20)
    asked = []

    def is_batch(entry: OffsetPosition) -> bool:
        asked.append(entry)
        return False

    files = (whole.encode_offsets(), whole.encode_times())
    index, position = SegmentIndex.resume(BASE, 250, *files, trusted_bytes=1000, is_batch=is_batch)
    assert (index.offset_entries, index.time_entries, position) == (0, 0, 0)
    assert index.largest == (-1, BASE)
    assert asked == [(1099, 900)]


# -- the stored index


def test_a_stored_index_is_read_from_a_mapped_file(tmp_path: Path) -> None:
    files = DiskFiles(str(tmp_path))
    index = indexed(1000)
    for name, data in (("a.index", index.encode_offsets()), ("a.timeindex", index.encode_times())):
        files.open(name, create=True).write(0, [data])
    views = [file.view(0, file.size()) for file in (files.open("a.index"), files.open("a.timeindex"))]
    assert StoredIndex(BASE, views[0], views[1], 100_000, BASE + 10_000).lookup(6000) == index.lookup(6000)
    for view in views:
        view.release()
    files.close()


def test_an_empty_index_returns_the_beginning() -> None:
    index = StoredIndex(BASE, b"", b"", 0, BASE)
    assert index.lookup(BASE) == index.boundary_before(5) == (BASE, 0)
    assert index.lookup_timestamp(0) == index.largest == (-1, BASE)
    assert [*index.offsets(), *index.times()] == []


@pytest.mark.parametrize("unused", [0, 1, 1000])
@pytest.mark.parametrize("batches", [1, 4, 7, 50])
def test_preallocated_zeros_are_no_entries(batches: int, unused: int) -> None:
    index = indexed(batches)
    offsets = index.encode_offsets() + bytes(8 * unused)
    times = index.encode_times() + bytes(12 * unused)
    if unused == 1 and not index.time_entries:
        times = b""  # a single entry of zeros is valid: see below
    found = StoredIndex(BASE, offsets, times, BATCH_BYTES * batches, BASE + 10 * batches)
    assert list(found.offsets()) == list(stored(index, batches).offsets())
    assert list(found.times()) == list(stored(index, batches).times())


def test_a_first_time_entry_of_zeros_is_valid_if_others_follow_or_it_is_the_only_one() -> None:
    assert list(StoredIndex(0, b"", time_entries((0, 0)), 100, 50).times()) == [(0, 0)]
    assert list(StoredIndex(0, b"", time_entries((0, 0), (5, 9), (0, 0)), 100, 50).times()) == [(0, 0), (5, 9)]


GOOD_OFFSETS = offset_entries((9, 100), (19, 200), (29, 300))
GOOD_TIMES = time_entries((5, 9), (6, 19), (7, 29))


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        (GOOD_OFFSETS[:-1], GOOD_TIMES),
        (GOOD_OFFSETS, GOOD_TIMES[:-1]),
        (GOOD_OFFSETS + offset_entries((39, 400)), GOOD_TIMES),
        (GOOD_OFFSETS + offset_entries((40, 399)), GOOD_TIMES),
        (GOOD_OFFSETS, GOOD_TIMES + time_entries((8, 40))),
        (GOOD_OFFSETS, GOOD_TIMES + time_entries((-1, 39))),
    ],
)
def test_an_index_that_does_not_fit_its_segment_is_unusable(offsets: bytes, times: bytes) -> None:
    StoredIndex(0, GOOD_OFFSETS, GOOD_TIMES, 400, 40)
    with pytest.raises(CorruptCompanion):
        StoredIndex(0, offsets, times, 400, 40)


@pytest.mark.parametrize(
    "offsets",
    [
        offset_entries((19, 100), (9, 200), (29, 300)),
        offset_entries((9, 200), (19, 100), (29, 300)),
        offset_entries((9, 100), (9, 200), (29, 300)),
        offset_entries((9, 100), (19, 100), (29, 300)),
        offset_entries((9, 100), (1 << 31, 200), (29, 300)),
        offset_entries((9, 100), (19, 1 << 31), (29, 300)),
    ],
)
def test_entries_out_of_order_are_noticed_during_a_lookup(offsets: bytes) -> None:
    index = StoredIndex(0, offsets, b"", 400, 40)
    with pytest.raises(CorruptCompanion):
        list(index.offsets())
    with pytest.raises(CorruptCompanion):
        [index.lookup(offset) for offset in range(40)]
    with pytest.raises(CorruptCompanion):
        [index.boundary_before(position) for position in range(400)]


@pytest.mark.parametrize(
    "times",
    [
        time_entries((6, 9), (5, 19), (7, 29)),
        time_entries((5, 19), (6, 9), (7, 29)),
        time_entries((5, 9), (5, 19), (7, 29)),
        time_entries((5, 9), (-6, 19), (7, 29)),
    ],
)
def test_timestamps_out_of_order_are_noticed_during_a_lookup(times: bytes) -> None:
    index = StoredIndex(0, b"", times, 400, 40)
    with pytest.raises(CorruptCompanion):
        list(index.times())
    with pytest.raises(CorruptCompanion):
        [index.lookup_timestamp(time) for time in range(10)]


def test_a_lookup_reads_few_entries_of_a_large_index() -> None:
    entries = 1 << 16
    sound = b"".join(struct.pack(">II", 10 * place + 9, 100 * place + 100) for place in range(entries))
    asked = 10 * 12_345
    steps = _steps_to(entries, 12_344)
    assert len(steps) <= 17
    spoiled = bytearray(b"\xff" * len(sound))
    for place in (*steps, entries - 1):
        spoiled[8 * place : 8 * place + 8] = sound[8 * place : 8 * place + 8]
    index = StoredIndex(0, spoiled, b"", 100 * entries + 200, 10 * entries)
    assert index.lookup(asked) == (10 * 12_344 + 9, 100 * 12_344 + 100)
    with pytest.raises(CorruptCompanion):
        index.lookup(10 * 54_321)


def _steps_to(entries: int, place: int) -> list[int]:
    first, last = 0, entries
    steps = []
    while first < last:
        steps.append((first + last) // 2)
        if steps[-1] <= place:
            first = steps[-1] + 1
        else:
            last = steps[-1]
    return steps
