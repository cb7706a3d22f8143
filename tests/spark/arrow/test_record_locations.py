"""The decoder of whole batches has the same results as the plain one."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_trimq.arrow.columns import arrow_schema, row_schema
from pyspark_trimq.arrow.kafka_rows import KafkaRows
from pyspark_trimq.arrow.record_locations import BadRecords, RecordRange, locate
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import read_header
from trimq.formats.kafka_batch.markers import control_batch
from trimq.formats.kafka_batch.records import to_records
from trimq.model import Record

SCHEMA = arrow_schema(row_schema(True))
EVERYTHING = RecordRange(0, 1 << 62)

some_bytes = st.none() | st.binary(max_size=20) | st.integers(100, 20_000).map(bytes)
names = st.text(max_size=10)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
records = st.builds(Record, some_bytes, some_bytes, headers, st.integers(0, 1 << 45))
batches = st.lists(st.tuples(st.lists(records, min_size=1, max_size=5), st.sampled_from(list(Codec))), max_size=4)


def rows_of(stored: bytes, wanted: RecordRange = EVERYTHING) -> list[dict[str, object]]:
    found = list(KafkaRows(SCHEMA, "t", 3).batches(locate(stored, wanted)))
    for batch in found:
        batch.validate(full=True)
    rows: list[dict[str, object]] = pa.Table.from_batches(found, SCHEMA).to_pylist()
    return rows


@given(batches)
def test_every_record_of_every_batch_is_read_as_it_was_sent(given_batches: list[tuple[list[Record], Codec]]) -> None:
    stored = b""
    expected = []
    offset = 5
    for sent, codec in given_batches:
        batch = from_records(sent, base_offset=offset, codec=codec, producer_id=7, producer_epoch=2, base_sequence=9)
        expected += [(record, 9 + at) for at, record in enumerate(to_records(batch))]
        stored += batch
        offset += len(sent)
    rows = rows_of(stored)
    assert len(rows) == len(expected)
    for row, (record, sequence) in zip(rows, expected, strict=True):
        assert (row["key"], row["value"], row["offset"]) == (record.key, record.body, record.offset)
        listed = row["headers"]
        assert isinstance(listed, list)
        assert tuple((header["key"], header["value"]) for header in listed) == record.headers
        assert (row["producerId"], row["producerEpoch"], row["sequence"]) == (7, 2, sequence)
        assert (row["topic"], row["partition"], row["keys"], row["properties"]) == ("t", 3, [], [])


def test_records_outside_of_the_range_are_left_out() -> None:
    stored = bytes(from_records([Record(b"%d" % index, timestamp_ms=0) for index in range(6)], base_offset=10))
    assert [row["offset"] for row in rows_of(stored, RecordRange(12, 14))] == [12, 13]


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    sent = [Record(b"x", timestamp_ms=0)]
    stored = b""
    for offset, producer in ((0, 1), (1, 2), (2, 1)):
        stored += from_records(
            sent, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
    stored += control_batch(1, 0, 0, commit=False, timestamp_ms=0, offset=3)
    stored += from_records(sent, base_offset=4, producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    assert [row["offset"] for row in rows_of(stored, RecordRange(0, 9, [(1, 0)]))] == [1, 4]


@given(st.data())
def test_damaged_records_are_an_error_or_other_records_never_anything_else(data: st.DataObject) -> None:
    stored = bytearray(from_records([Record(b"v" * 30, b"k", (("h", b"1"),), 5) for _ in range(3)]))
    at = data.draw(st.integers(61, len(stored) - 1))
    stored[at] = data.draw(st.integers(0, 255))
    assert read_header(stored).record_count == 3
    with suppress(BadRecords, pa.ArrowInvalid):
        rows_of(bytes(stored))


def test_a_cut_batch_is_an_error() -> None:
    stored = bytes(from_records([Record(b"v" * 30, timestamp_ms=5)]))
    payload = bytearray(stored)
    payload[61] = 0x7E
    with pytest.raises(BadRecords):
        locate(bytes(payload), EVERYTHING)
