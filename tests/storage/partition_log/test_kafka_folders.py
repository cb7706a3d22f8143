"""Opening, reading and appending to a partition folder written by Apache Kafka."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from storage.kafka_folders import FOLDERS, base_of, batches_of
from storage.partition_logs import NOW_MS, opened

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.records import iterate_records
from trimq.model import Record
from trimq.storage.partition_log.aborted_index import decode
from trimq.storage.partition_log.reader import find_time
from trimq.storage.partition_log.store import ROOT

each_folder = pytest.mark.parametrize("kafka", FOLDERS, ids=lambda folder: folder.name)


@pytest.fixture
def data_folder(tmp_path: Path, kafka: Path) -> Path:
    shutil.copytree(kafka, tmp_path / ROOT / kafka.name)
    return tmp_path


def topic(kafka: Path) -> str:
    return kafka.name.removesuffix("-0")


def stored(kafka: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(kafka.glob("*.log")))


@each_folder
def test_every_byte_is_read_as_kafka_wrote_it(kafka: Path, data_folder: Path) -> None:
    with opened(data_folder, topic(kafka)) as partition:
        assert partition.read_all() == stored(kafka)
        assert partition.log.end == max(header.next_offset for _, header, _ in batches_of(stored(kafka)))


@each_folder
def test_every_timestamp_is_found_at_its_record(kafka: Path, data_folder: Path) -> None:
    log = stored(kafka)
    records = [record for position, _, _ in batches_of(log) for record in iterate_records(log, position)]
    with opened(data_folder, topic(kafka)) as partition:
        for timestamp_ms in {record.timestamp_ms for record in records}:
            first = next(record for record in records if record.timestamp_ms >= timestamp_ms)
            found = find_time(partition.log, timestamp_ms, partition.log.durable_end, 1 << 20)
            assert found == (first.offset, first.timestamp_ms)


@each_folder
def test_the_aborted_transactions_are_those_of_kafkas_index(kafka: Path, data_folder: Path) -> None:
    with opened(data_folder, topic(kafka)) as partition:
        found = {
            segment.segment.base: segment.aborted_transactions(partition.files) for segment in partition.log.segments
        }
    kafkas = {base_of(path): decode(path.read_bytes()) for path in kafka.glob("*.txnindex")}
    assert {base: aborted for base, aborted in found.items() if aborted} == kafkas


@each_folder
def test_appends_follow_the_records_that_kafka_wrote(kafka: Path, data_folder: Path) -> None:
    batches = [from_records([Record(b"ours", timestamp_ms=NOW_MS + number)]) for number in range(9)]
    with opened(data_folder, topic(kafka)) as partition:
        end = partition.log.end
        for batch in batches:
            partition.append(batch, leader_epoch=1)
    with opened(data_folder, topic(kafka)) as partition:
        assert partition.log.end == end + 9
        read = partition.read_all()
        assert read.startswith(stored(kafka))
        ours = [header for _, header, _ in batches_of(read) if header.base_offset >= end]
        assert [(header.base_offset, header.leader_epoch) for header in ours] == [(end + n, 1) for n in range(9)]
