"""Apache Kafka's dump tool finds no fault in partition folders that TriMQ wrote."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compat.kafka_tools import complaints_in, complaints_of, dump
from storage.kafka_folders import FOLDERS
from storage.partition_logs import NOW_MS, SETTINGS, opened

from trimq.formats.kafka_batch.builder import from_records, retain
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import BatchHeader, empty_batch, read_header
from trimq.formats.kafka_batch.markers import control_batch
from trimq.model import Buffer, Record
from trimq.storage.partition_log import aborted_index
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.index import SegmentIndex
from trimq.storage.partition_log.producers import ProducerStates

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

START_MS = 1_780_000_000_000


class PartitionFolder:
    """Writes segments with all their index files, one after the other."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.end = 0
        self.states = ProducerStates()
        self._begin()

    def _begin(self) -> None:
        self._base = self.end
        self._log = bytearray()
        self._index = SegmentIndex(self.end, interval_bytes=200)
        self._aborted = b""

    def records(self, texts: list[str | None], codec: int = Codec.NONE, **fields: Any) -> bytearray:
        """Builds a batch of these bodies at the end of the log, for `append`."""
        numbers = range(self.end, self.end + len(texts))
        records = [
            Record(
                body=None if text is None else text.encode() * 9,
                key=None if number % 3 == 0 else b"key-%d" % (number % 7),
                headers=(("number", b"%d" % number), ("nothing", None)) if number % 2 else (),
                timestamp_ms=START_MS + number * 7 % 50,
            )
            for number, text in zip(numbers, texts, strict=True)
        ]
        return from_records(records, base_offset=self.end, codec=codec, leader_epoch=0, **fields)

    def append(self, batch: Buffer) -> None:
        header = read_header(batch)
        self._place(batch, header)
        self.states.apply(header)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        batch = control_batch(producer_id, 0, 3, commit, START_MS + 100 + self.end, self.end, leader_epoch=0)
        header = read_header(batch)
        self._place(batch, header)
        ended = self.states.apply_control(header, commit, 3)
        if ended is not None and ended.is_aborted:
            self._aborted += aborted_index.encode(AbortedTransaction(*ended[:4]))

    def _place(self, batch: Buffer, header: BatchHeader) -> None:
        timestamp_ms = header.max_timestamp_ms if header.record_count else -1
        self._index.note(header.last_offset, len(self._log), timestamp_ms)
        self._log += batch
        self.end = header.next_offset

    def roll(self) -> None:
        self._index.seal()
        self._write(self._base, ".log", self._log)
        self._write(self._base, ".index", self._index.encode_offsets())
        self._write(self._base, ".timeindex", self._index.encode_times())
        if self._aborted:
            self._write(self._base, ".txnindex", self._aborted)
        self._write(self.end, ".snapshot", self.states.encode())
        self._begin()

    def _write(self, offset: int, suffix: str, data: Buffer) -> None:
        (self.path / f"{offset:020d}{suffix}").write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> PartitionFolder:
    return PartitionFolder(tmp_path / "t-0")


def words(count: int) -> list[str | None]:
    return [None if number % 5 == 4 else f"body {number}" for number in range(count)]


def files_of(folder: PartitionFolder, suffix: str) -> int:
    return sum(path.stat().st_size > 0 for path in folder.path.glob(f"*{suffix}"))


def test_batches_of_every_codec(folder: PartitionFolder) -> None:
    for codec in Codec:
        for _ in range(4):
            folder.append(folder.records(words(6), codec))
        folder.roll()
    assert files_of(folder, ".index") == files_of(folder, ".timeindex") == 5
    assert complaints_of(folder.path) == []


def test_log_append_times(folder: PartitionFolder) -> None:
    for number in range(12):
        folder.append(
            folder.records(words(4), Codec.LZ4 if number % 2 else Codec.NONE, append_time_ms=START_MS + number)
        )
    folder.roll()
    assert complaints_of(folder.path) == []


def test_idempotent_producers(folder: PartitionFolder) -> None:
    sequence = (1 << 31) - 7
    for _ in range(2):
        for producer_id in (1000, 1001, 1000):
            folder.append(folder.records(words(5), producer_id=producer_id, producer_epoch=2, base_sequence=sequence))
            folder.append(folder.records(words(2)))
            sequence = (sequence + 5) % (1 << 31)
        folder.roll()
    dumped = dump(folder.path)
    assert complaints_in(dumped) == []
    assert (
        "producerId: 1001 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty"
        in dumped.output
    )
    assert "firstSequence: 2147483646 lastSequence: 2 " in dumped.output


def test_transactions_committed_aborted_and_open(folder: PartitionFolder) -> None:
    for turn in range(4):
        for producer_id in (7, 8, 9):
            batch = folder.records(
                words(2), producer_id=producer_id, producer_epoch=0, base_sequence=2 * turn, transactional=True
            )
            folder.append(batch)
        if turn == 1:
            folder.roll()
        folder.append(folder.records(words(1)))
        folder.end_transaction(8, commit=turn % 2 == 0)
        folder.end_transaction(7, commit=False)
        if turn < 3:
            folder.end_transaction(9, commit=True)
    folder.roll()
    dumped = dump(folder.path)
    assert complaints_in(dumped) == []
    assert files_of(folder, ".txnindex") == 2
    assert "version: 0 producerId: 7 firstOffset: 0 lastOffset: 8 lastStableOffset: 4\n" in dumped.output
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in dumped.output
    assert dumped.output.count("currentTxnFirstOffset: OptionalLong[") == 4  # three at the roll, one at the end


def test_a_compacted_log(folder: PartitionFolder) -> None:
    for number in range(24):
        codec = list(Codec)[number % 5]
        batch = folder.records(
            words(6), codec, producer_id=number % 3, producer_epoch=0, base_sequence=6 * (number // 3)
        )
        header = read_header(batch)
        thinned = retain(batch, lambda record: record.offset % 6 in (2, 3, 4), START_MS + 10**6)
        assert thinned is not None
        folder.append(empty_batch(header) if number % 4 == 3 else thinned)
        if number % 12 == 11:
            folder.roll()
    dumped = dump(folder.path)
    assert complaints_in(dumped, has_gaps=True) == []
    assert complaints_in(dumped) != []
    assert "count: 0 " in dumped.output
    assert f"deleteHorizonMs: OptionalLong[{START_MS + 10**6}]" in dumped.output


def test_a_partition_log_that_rolled_and_was_opened_again(tmp_path: Path) -> None:
    settings = replace(SETTINGS, segment_bytes=1500, checkpoint_bytes=400)
    for run in range(2):
        with opened(tmp_path, "t", settings) as partition:
            for number in range(20):
                fields = {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": 10 * run + number // 2}
                record = Record(b"body" * 20, timestamp_ms=START_MS + number * 7 % 20)
                batch = from_records([record], codec=number % 5, transactional=number % 2 == 1, **fields)
                partition.append(batch, leader_epoch=run)
                if number % 6 == 5:
                    partition.append(control_batch(1, 0, 0, number % 4 == 1, START_MS + number, 0), leader_epoch=run)
    folder = tmp_path / "partitions" / "t-0"
    assert len(list(folder.glob("*.log"))) > 3
    assert len(list(folder.glob("*.txnindex"))) > 1
    assert complaints_of(folder) == []


@pytest.mark.parametrize("kafka", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_of_kafka_continued_by_trimq(kafka: Path, tmp_path: Path) -> None:
    folder = tmp_path / "partitions" / kafka.name
    shutil.copytree(kafka, folder)
    with opened(tmp_path, kafka.name.removesuffix("-0")) as partition:
        for number in range(9):
            partition.append(from_records([Record(b"ours", timestamp_ms=NOW_MS + number)]), leader_epoch=1)
    assert complaints_of(folder, has_gaps=kafka.name == "profiles-0") == []


def spoil(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("suffix", "position"),
    [(".log", 100), (".index", 3), (".timeindex", 7), (".timeindex", 11), (".snapshot", 12)],
)
def test_the_tool_does_find_a_fault(folder: PartitionFolder, suffix: str, position: int) -> None:
    for number in range(9):
        folder.append(folder.records(words(4), producer_id=5, producer_epoch=0, base_sequence=4 * number))
    folder.roll()
    spoil(next(folder.path.glob(f"*{suffix}")), position)
    assert complaints_of(folder.path) != []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_recorded_output_of_the_tool_about_kafkas_folders_is_current(folder: Path) -> None:
    dumped = dump(folder)
    assert dumped.output == folder.with_name(f"{folder.name}.dump.txt").read_text()
    complaints = complaints_in(dumped, has_gaps=folder.name == "profiles-0")
    if folder.name == "profiles-0":
        # Kafka allows time index entries for a batch that compaction emptied, for which its tool then finds no
        # timestamp.
        assert complaints[0].startswith("Found timestamp mismatch in :")
        assert all(line.endswith("log timestamp: -1") for line in complaints[1:])
    else:
        assert complaints == []
