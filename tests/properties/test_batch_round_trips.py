"""Round trips of batches between TriMQ and other implementations, in both directions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from trimq.formats.kafka_batch.builder import from_records, recompress, retain
from trimq.formats.kafka_batch.compression import Codec, compress, decompress
from trimq.formats.kafka_batch.header import (
    check_sent,
    check_stored,
    empty_batch,
    read_header,
    stamp_batch,
    stamped_prefix,
)
from trimq.formats.kafka_batch.records import find_max_timestamp, iterate_records, to_records, validate_records
from trimq.formats.varints import encode_varint, read_varint, read_varlong
from trimq.model import Record

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

times = st.integers(min_value=0, max_value=2**45)
contents = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), contents), max_size=4).map(tuple)
records = st.lists(
    st.builds(Record, body=contents, key=contents, headers=headers, timestamp_ms=times), min_size=1, max_size=20
)
# Many records of one size and nearly one timestamp: typical of producers, and read on the fast path by columns.
alike = st.builds(
    lambda sizes, start_ms: [
        Record(body=bytes(size), key=b"key", timestamp_ms=start_ms + n // 7) for n, size in enumerate(sizes)
    ],
    st.lists(st.sampled_from([10, 10, 10, 10, 10, 10, 11]), min_size=1, max_size=200),
    times,
)
batches_of_records = records | alike
codecs = st.sampled_from(Codec)
offsets = st.integers(min_value=0, max_value=2**62)


def numbered(made: list[Record], base_offset: int = 0) -> list[tuple[Any, ...]]:
    return [(base_offset + n, r.timestamp_ms, r.key, r.body, r.headers) for n, r in enumerate(made)]


def flat(made: list[Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.body, r.headers) for r in made]


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1), st.binary(max_size=3))
def test_numbers(number: int, after: bytes) -> None:
    encoded = encode_varint(number)
    assert read_varlong(encoded + after, 0) == (number, len(encoded))
    if -(2**31) <= number < 2**31:
        assert read_varint(encoded + after, 0) == (number, len(encoded))


@given(codecs, st.binary(max_size=5000), st.integers(min_value=0, max_value=50))
def test_compressed_bytes(codec: Codec, content: bytes, repeated: int) -> None:
    content *= repeated
    assert decompress(codec, compress(codec, content), len(content)) == content


@given(batches_of_records, codecs, offsets)
def test_our_batches_are_valid_and_read_back(made: list[Record], codec: Codec, base_offset: int) -> None:
    batch = from_records(made, codec=codec)
    check_sent(batch)
    stamp_batch(batch, base_offset, 5)
    check_stored(batch)
    assert flat(to_records(batch)) == numbered(made, base_offset)
    assert stamped_prefix(from_records(made, codec=codec), base_offset, 5) == batch[:16]


@given(batches_of_records, codecs)
def test_validation_agrees_with_the_records(made: list[Record], codec: Codec) -> None:
    batch = from_records(made, codec=codec)
    summary = validate_records(batch)
    latest = max(made, key=lambda record: record.timestamp_ms)
    keys = [record.key for record in made]
    assert summary.max_timestamp_ms == read_header(batch).max_timestamp_ms == latest.timestamp_ms
    assert summary.offset_of_max_timestamp == made.index(latest)
    assert summary.first_null_key_index == (keys.index(None) if None in keys else None)
    assert summary.offsets_in_order
    assert find_max_timestamp(batch) == (made.index(latest), latest.timestamp_ms)


@given(batches_of_records, codecs, codecs)
def test_another_codec_keeps_the_records(made: list[Record], codec: Codec, other: Codec) -> None:
    batch = recompress(from_records(made, codec=codec), other)
    check_sent(batch)
    assert flat(to_records(batch)) == numbered(made)


@given(batches_of_records, codecs, offsets, st.none() | times, st.data())
def test_compaction_keeps_exactly_the_selected_records(
    made: list[Record], codec: Codec, base_offset: int, horizon_ms: int | None, data: st.DataObject
) -> None:
    before = from_records(made, codec=codec, base_offset=base_offset, producer_id=1, producer_epoch=1, base_sequence=0)
    wanted = data.draw(st.sets(st.integers(base_offset, base_offset + len(made) - 1)))
    after = retain(before, lambda record: record.offset in wanted, horizon_ms)
    kept = [record for record in iterate_records(before) if record.offset in wanted]
    if after is None:
        assert not kept
        after = empty_batch(read_header(before))
    header, original = check_stored(after), read_header(before)
    assert list(iterate_records(after)) == kept
    assert (header.base_offset, header.last_offset) == (original.base_offset, original.last_offset)
    assert header.last_sequence == original.last_sequence
    has_tombstone = any(record.value is None for record in kept)
    assert header.delete_horizon_ms == (horizon_ms if has_tombstone else None)


@pytest.mark.parametrize("oracle", [KafkaPythonBuilder, AiokafkaBuilder])
@given(made=records, codec=codecs)
def test_batches_of_other_encoders_are_read(oracle: Any, made: list[Record], codec: Codec) -> None:
    if oracle is KafkaPythonBuilder and codec > Codec.GZIP:
        codec = Codec.GZIP  # the only codec it has without further packages
    builder = oracle(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10**6,
    )
    for n, record in enumerate(made):
        builder.append(n, record.timestamp_ms, record.key, record.body, list(record.headers))
    batch = bytes(builder.build())
    check_sent(batch)
    assert validate_records(batch).offsets_in_order
    assert flat(to_records(batch)) == numbered(made)


@given(made=records)
def test_uncompressed_batches_equal_those_of_another_encoder_to_the_byte(made: list[Record]) -> None:
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=7,
        producer_epoch=2,
        base_sequence=9,
        batch_size=10**6,
    )
    for n, record in enumerate(made):
        builder.append(n, record.timestamp_ms, record.key, record.body, list(record.headers))
    ours = from_records(made, transactional=True, producer_id=7, producer_epoch=2, base_sequence=9)
    theirs = builder.build()
    assert ours[16:] == theirs[16:]


@pytest.mark.parametrize("oracle", [KafkaPythonBatch, AiokafkaBatch])
@given(made=records, codec=codecs, base_offset=offsets)
def test_our_batches_are_read_by_other_decoders(
    oracle: Any, made: list[Record], codec: Codec, base_offset: int
) -> None:
    if oracle is KafkaPythonBatch and codec > Codec.GZIP:
        codec = Codec.GZIP
    theirs = oracle(bytes(from_records(made, codec=codec, base_offset=base_offset)))
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in theirs]
    assert read == numbered(made, base_offset)


@given(made=records, base_offset=offsets)
def test_our_uncompressed_batches_are_read_by_kio(made: list[Record], base_offset: int) -> None:
    batch = bytes(from_records(made, base_offset=base_offset))
    theirs, size = read_batch(batch, 0)
    assert size == len(batch)
    assert [(r.key, r.value) for r in theirs.records] == [(r.key, r.body) for r in made]
