"""Damage to any one file of a stopped or crashed folder: the log opens or reports the damage, and each read returns the
right records or reports it too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from doubles import TornTails
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.log_bench import FOLDER, START_MS, LogBench, batch_of

from trimq.errors import Damage, DamagedSegment, StartupError
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.records import BatchRecord, iterate_records
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import find_aborted, find_time, read_batches

Contents = dict[str, bytes]


class World(NamedTuple):
    """A folder and its expected contents."""

    contents: Contents
    settings: dict[str, Any]
    start: int
    durable_end: int
    """Everything before it is below a checkpoint; the rest may be cut as a torn tail."""
    records: dict[int, BatchRecord]
    aborted: list[AbortedTransaction]
    producers: dict[int, Any]


def contents_of(files: MemoryFiles, folder: str = "") -> Contents:
    found: Contents = {}
    for short in files.names(folder):
        name = f"{folder}/{short}" if folder else short
        if files.names(name) or name in ("tables", "partitions", FOLDER):
            found |= contents_of(files, name)
        else:
            file = files.open(name)
            found[name] = file.read(0, file.size())
    return found


def files_of(contents: Contents) -> MemoryFiles:
    files = MemoryFiles()
    for name, data in contents.items():
        files.make_folder(name.rpartition("/")[0])
        files.open(name, create=True).write(0, [data])
    files.sync_all()
    return files


def fill(bench: LogBench, count: int) -> None:
    """Appends batches of all codecs and kinds."""
    for number in range(count):
        serial = bench.log.end
        fields: dict[str, Any] = {"codec": list(Codec)[number % 5]}
        if number % 3 == 1:
            state = bench.log.producers.get(number % 2)
            sequence = 0 if state is None else state.last_sequence + 1
            fields |= {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": sequence}
            fields["transactional"] = number % 2 == 1
        bodies = [b"%d/%d " % (serial, index) + bytes(30) for index in range(1 + number % 3)]
        timestamp_ms = START_MS + serial * 7 % 40 + serial // 2
        bench.begin_append(batch_of(*bodies, timestamp_ms=timestamp_ms, **fields), leader_epoch=number // 12)
        if number % 8 == 7:
            bench.begin_append(bench.marker(1, commit=number % 16 == 7), leader_epoch=number // 12)
        bench.settle()


EVEN_BYTES = 55


def even(bench: LogBench, count: int) -> None:
    """Appends batches of 128 bytes each: one flipped bit of a length skips a whole batch."""
    for number in range(count):
        bench.append(b"%04d" % number + bytes(EVEN_BYTES), timestamp_ms=START_MS + number)
    assert all(len(stored.data) == 128 for stored in bench.batches())


def seen(bench: LogBench, durable_end: int) -> World:
    return World(
        contents_of(bench.memory),
        {"segment_bytes": bench.settings.segment_bytes, "checkpoint_bytes": bench.settings.checkpoint_bytes},
        bench.log.start,
        durable_end,
        {record.offset: record for record in bench.records()},
        [each for segment in bench.log.segments for each in find_aborted(bench.log, segment)],
        {id: state._replace(batches=state.batches[-1:]) for id, state in bench.log.producers.items()},
    )


def stopped(write: Callable[[LogBench, int], None], **changes: Any) -> World:
    bench = LogBench(**changes)
    write(bench, 30)
    bench.restart()
    write(bench, 10)
    bench.log.cut_head(7)
    bench.settle()
    bench.restart()
    bench.close()
    return seen(bench, bench.log.end)


def crashed(write: Callable[[LogBench, int], None], **changes: Any) -> World:
    bench = LogBench(**changes)
    write(bench, 30)
    bench.restart()
    bench.log.cut_head(3)
    bench.settle()
    durable_end = bench.log.end
    write(bench, 10)
    bench.begin_append(batch_of(b"torn" * 50))
    bench.runner.end_pass()
    bench.memory.crash(TornTails(60, keeps_names=True))
    contents = contents_of(bench.memory)
    bench.open()
    return seen(bench, durable_end)._replace(contents=contents)


@cache
def world(name: str) -> World:
    return {
        "stopped, many segments": lambda: stopped(fill, segment_bytes=1500),
        "stopped, one segment": lambda: stopped(fill),
        "stopped, even batches": lambda: stopped(even, segment_bytes=2600),
        "crashed, many segments": lambda: crashed(fill, segment_bytes=1500),
        "crashed, one segment": lambda: crashed(fill),
    }[name]()


WORLDS = [
    "stopped, many segments",
    "stopped, one segment",
    "stopped, even batches",
    "crashed, many segments",
    "crashed, one segment",
]


class DamagedFile(NamedTuple):
    file: str
    data: bytes | None
    how: str

    def __repr__(self) -> str:
        return f"{self.how} in {self.file}"


@st.composite
def damages(draw: st.DrawFn, contents: Contents) -> DamagedFile:
    name = draw(st.sampled_from(sorted(name for name in contents if contents[name])), "file")
    data = contents[name]
    first = draw(st.integers(0, len(data) - 1), "first")
    last = draw(st.integers(first, min(first + draw(st.sampled_from([0, 7, 200, 5000])), len(data) - 1)), "last")
    how = draw(st.sampled_from(["flip", "cut", "zero", "double", "drop", "replace", "remove"]), "how")
    if how == "flip":
        changed = bytearray(data)
        changed[first] ^= 1 << draw(st.integers(0, 7), "bit")
        return DamagedFile(name, bytes(changed), f"flip byte {first}")
    if how == "remove":
        return DamagedFile(name, None, how)
    middle = {
        "cut": lambda: b"",
        "zero": lambda: bytes(last + 1 - first),
        "double": lambda: data[first : last + 1] * 2,
        "drop": lambda: b"",
        "replace": lambda: draw(st.binary(max_size=40), "bytes"),
    }[how]()
    return DamagedFile(
        name, data[:first] + middle + (b"" if how == "cut" else data[last + 1 :]), f"{how} {first}-{last}"
    )


def opened(found: World, damaged: DamagedFile) -> LogBench | None:
    """Opens the damaged folder; returns None if the damage was reported."""
    contents = dict(found.contents)
    if damaged.data is None:
        del contents[damaged.file]
    else:
        contents[damaged.file] = damaged.data
    try:
        return LogBench(files_of(contents), **found.settings)
    except (Damage, StartupError) as mistake:
        text = str(mistake)
        assert "tables/" in text or FOLDER in text, "the error does not name the file"
        assert any(word in text for word in ("restore", "remove", "start")), "the error has no remedy"
        return None


def read_at(log: PartitionLog, offset: int, max_bytes: int) -> dict[int, BatchRecord] | None:
    """Returns the records read at an offset, or None if damage was reported."""
    try:
        found = read_batches(log, offset, max_bytes, log.durable_end)
    except DamagedSegment:
        return None
    assert found.next_offset > offset
    records = {}
    for part in found.parts:
        position = 0
        while position < len(part):
            size = 12 + int.from_bytes(part[position + 8 : position + 12], "big")
            records |= {record.offset: record for record in iterate_records(part, position)}
            position += size
    assert all(record < found.next_offset for record in records)
    return records


def require_right_records(found: World, log: PartitionLog, max_bytes: int) -> None:
    for offset in sorted(found.records):
        if not log.start <= offset < log.durable_end:
            continue
        records = read_at(log, offset, max_bytes)
        if records is not None:
            assert offset in records, "a record was skipped"
            for number, record in records.items():
                assert number not in found.records or record == found.records[number], "a record was changed"
                assert number in found.records or number < found.start, "found a record that was never written"


def require_right_times(found: World, log: PartitionLog) -> None:
    readable = [found.records[offset] for offset in sorted(found.records) if log.start <= offset < log.durable_end]
    for timestamp_ms in {record.timestamp_ms for record in readable[::5]}:
        try:
            place = find_time(log, timestamp_ms, log.durable_end, 1 << 20)
        except DamagedSegment:
            continue
        first = next(record for record in readable if record.timestamp_ms >= timestamp_ms)
        if log.start == found.start:
            assert place == (first.offset, first.timestamp_ms)


def require_right_transactions(found: World, log: PartitionLog) -> None:
    try:
        aborted = [each for segment in log.segments for each in find_aborted(log, segment)]
    except DamagedSegment:
        return
    # Of a transaction that began before the head of the log, only the rest is found.
    assert [each.last_offset for each in aborted] == [each.last_offset for each in found.aborted]
    assert [each.producer_id for each in aborted] == [each.producer_id for each in found.aborted]
    for mine, theirs in zip(aborted, found.aborted, strict=True):
        assert mine.first_offset == theirs.first_offset or theirs.first_offset < log.segments[0].segment.base


def last_sent(producers: dict[int, Any]) -> dict[int, tuple[int, int]]:
    return {id: (state.last_sequence, state.batches[-1].last_offset) for id, state in producers.items()}


@pytest.mark.parametrize("name", WORLDS)
@settings(max_examples=250)
@given(data=st.data())
def test_any_damage_is_reported_or_harmless(name: str, data: st.DataObject) -> None:
    found = world(name)
    damaged = data.draw(damages(found.contents))
    bench = opened(found, damaged)
    if bench is None:
        return
    log = bench.log
    is_tail = damaged.file.endswith(".log") and damaged.file.startswith(FOLDER)
    end = max(found.records) + 1
    assert log.end == log.durable_end
    assert found.durable_end <= log.end <= end if is_tail else log.end == end
    if not damaged.file.startswith("tables/"):
        assert log.start == found.start
    require_right_records(found, log, data.draw(st.sampled_from([0, 200, 1 << 20]), "max_bytes"))
    require_right_times(found, log)
    if log.end == end:
        require_right_transactions(found, log)
        if damaged.file.endswith(".snapshot"):
            states = {id: state._replace(batches=state.batches[-1:]) for id, state in log.producers.items()}
            assert last_sent(states) == last_sent(found.producers)
    bench.append(b"and it goes on")
    assert bench.records(log.end - 1)[-1].value == b"and it goes on"


def error_of(call: Callable[[], object]) -> Damage | StartupError | None:
    try:
        call()
    except (Damage, StartupError) as mistake:
        return mistake
    return None


@pytest.mark.parametrize("name", ["stopped, many segments", "crashed, one segment"])
@settings(max_examples=40)
@given(data=st.data())
def test_a_damaged_log_that_opens_once_opens_again(name: str, data: st.DataObject) -> None:
    found = world(name)
    bench = opened(found, data.draw(damages(found.contents)))
    if bench is None:
        return
    end = bench.log.end
    for again in (bench.kill, bench.restart, bench.crash):
        mistake = error_of(again)
        if mistake is not None:
            assert FOLDER in str(mistake)  # damage that is read only now
            return
        assert bench.log.end == end
        require_right_records(found, bench.log, 300)


def test_a_last_batch_with_a_damaged_length_in_a_sealed_file_is_not_skipped() -> None:
    found = world("stopped, many segments")
    name = f"{FOLDER}/00000000000000000050.log"
    data = bytearray(found.contents[name])
    data[1303:1313] = bytes(10)
    bench = opened(found, DamagedFile(name, bytes(data), "zero"))
    assert bench is not None
    require_right_records(found, bench.log, 0)
