"""Damaged, truncated, duplicated and random bytes: an error or a clean result, never a hang, a wrong record or much
memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.kafka_batch.builder import encode_record, from_records, recompress, retain
from trimq.formats.kafka_batch.compression import BadCompression, Codec, compress, decompress
from trimq.formats.kafka_batch.header import (
    HEADER_BYTES,
    BadBatch,
    BatchHeader,
    SecondBatch,
    TruncatedBatch,
    build_batch,
    check,
    check_sent,
    check_stored,
    read_header,
    walk,
)
from trimq.formats.kafka_batch.records import (
    find_max_timestamp,
    find_timestamp,
    iterate_records,
    to_records,
    validate_records,
)
from trimq.model import Record

NOW = 1_700_000_000_000
LIMIT = 200_000
SOUND = [
    bytes(
        from_records(
            [Record(body=b"value %d" % (n // 3), key=b"key", headers=(("h", b"x"),) * (n % 2), timestamp_ms=NOW + n)]
            + [Record(body=b"v" * 20, timestamp_ms=NOW)] * n,
            codec=codec,
            producer_id=5,
            producer_epoch=0,
            base_sequence=n,
        )
    )
    for codec in Codec
    for n in (0, 1, 9)
]
sound = st.sampled_from(SOUND)
OFFSET_AND_EPOCH = {*range(8), *range(12, 16)}

READERS: list[Callable[[bytes], Any]] = [
    lambda data: list(iterate_records(data, 0, LIMIT)),
    lambda data: to_records(data, 0, LIMIT),
    lambda data: validate_records(data, max_expanded_bytes=LIMIT),
    lambda data: find_timestamp(data, NOW, max_expanded_bytes=LIMIT),
    lambda data: find_max_timestamp(data, 0, LIMIT),
    lambda data: retain(data, lambda record: record.key is not None, NOW, 0, LIMIT),
    lambda data: recompress(data, Codec.NONE, 0, LIMIT),
    lambda data: list(walk(data, 0, len(data))),
    read_header,
    check,
    check_stored,
    check_sent,
]


def read_in_every_way(data: bytes) -> None:
    """Reads in every way; only a BadBatch may be raised, within the memory limit."""
    tracemalloc.start()
    try:
        for read in READERS:
            try:
                read(data)
            except BadBatch:
                continue
        assert tracemalloc.get_traced_memory()[1] < 20 * (LIMIT + len(data))
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("original", SOUND)
def test_every_flipped_bit_outside_of_the_offset_and_the_epoch_is_detected(original: bytes) -> None:
    for at in range(len(original)):
        for bit in range(8):
            damaged = bytearray(original)
            damaged[at] ^= 1 << bit
            try:
                header = check(damaged)
            except BadBatch:
                continue
            assert at in OFFSET_AND_EPOCH
            changed = header._replace(base_offset=0, leader_epoch=-1)
            assert changed == read_header(original)


@given(sound, st.data())
def test_many_changed_bytes_are_detected(original: bytes, data: st.DataObject) -> None:
    damaged = bytearray(original)
    places = data.draw(st.lists(st.integers(16, len(original) - 1), min_size=1, max_size=8, unique=True))
    for at in places:
        damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadBatch):
        check(damaged)
    read_in_every_way(bytes(damaged))


@pytest.mark.parametrize("original", SOUND)
def test_every_truncation_is_detected(original: bytes) -> None:
    for size in range(len(original)):
        for look in (check, check_stored, check_sent):
            with pytest.raises(TruncatedBatch):
                look(original[:size])
        with pytest.raises(TruncatedBatch):
            iterate_records(original[:size])


@given(sound, sound, st.integers(0, 200))
def test_duplicated_and_following_bytes_never_reach_the_records(first: bytes, second: bytes, cut: int) -> None:
    expected = list(iterate_records(first))
    together = first + second
    assert list(iterate_records(together)) == expected
    assert check(together) == check(first)
    assert [position for position, _ in walk(together, 0, len(together))] == [0, len(first)]
    with pytest.raises(SecondBatch):
        check_sent(together)
    if 0 < cut < len(second):
        assert check_sent(together[:-cut]) == check(first)


@given(sound, st.data())
def test_a_part_that_is_missing_or_duplicated_is_detected(original: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(original) - 1))
    end = data.draw(st.integers(start + 1, len(original)))
    for damaged in (original[:start] + original[end:], original[:end] + original[start:]):
        if damaged[16:] == original[16:] or damaged.startswith(original):
            continue
        try:
            header = check(damaged)
        except BadBatch:
            continue
        assert damaged[16 : header.size] == original[16:]


@given(st.binary(max_size=400))
def test_garbage_is_an_error_or_clean(data: bytes) -> None:
    read_in_every_way(data)


fields = st.builds(
    BatchHeader,
    base_offset=st.integers(-(2**63), 2**63 - 1),
    length=st.just(0),
    leader_epoch=st.integers(-(2**31), 2**31 - 1),
    magic=st.just(2),
    crc=st.just(0),
    attributes=st.integers(0, 0x7F) | st.integers(-(2**15), 2**15 - 1),
    last_offset_delta=st.integers(-2, 10) | st.integers(-(2**31), 2**31 - 1),
    base_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    max_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    producer_id=st.integers(-(2**63), 2**63 - 1),
    producer_epoch=st.integers(-(2**15), 2**15 - 1),
    base_sequence=st.integers(-(2**31), 2**31 - 1),
    record_count=st.integers(-2, 10) | st.integers(-(2**31), 2**31 - 1),
)
pieces = st.binary(max_size=40) | st.builds(
    encode_record,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
)
payloads = st.lists(pieces, max_size=12).map(b"".join)


@given(fields, payloads, st.sampled_from([*Codec, None]))
def test_random_bytes_with_a_valid_checksum_are_an_error_or_clean(
    header: BatchHeader, payload: bytes, codec: Codec | None
) -> None:
    if codec is not None:
        header = header._replace(attributes=header.attributes & ~7 | codec)
        payload = compress(codec, payload)
    made = bytes(build_batch(header, payload))
    check(made)
    read_in_every_way(made)


@given(payloads, st.integers(0, 12), st.integers(-(2**62), 2**62))
def test_both_readers_agree_on_malformed_records(payload: bytes, count: int, base_ms: int) -> None:
    header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, base_ms, 0, -1, -1, -1, count)
    made = build_batch(header, payload)
    try:
        summary = validate_records(made)
    except BadBatch as error:
        if "64 bits" not in str(error):
            with pytest.raises(BadBatch):
                list(iterate_records(made))
    else:
        records = list(iterate_records(made))
        assert len(records) == count
        assert summary.max_timestamp_ms == max([-1, *(record.timestamp_ms for record in records)])
        assert summary.offsets_in_order == all(record.offset == n for n, record in enumerate(records))
        assert summary.first_null_key_index == next((n for n, r in enumerate(records) if r.key is None), None)


@given(st.lists(st.binary(min_size=3, max_size=3), min_size=1, max_size=100), st.data())
def test_both_readers_agree_on_one_changed_byte_in_equal_records(values: list[bytes], data: st.DataObject) -> None:
    payload = bytearray(b"".join(encode_record(0, n, b"k", value) for n, value in enumerate(values)))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    made = build_batch(BatchHeader(0, 0, -1, 2, 0, 0, len(values) - 1, NOW, 0, -1, -1, -1, len(values)), payload)
    try:
        summary = validate_records(made)
    except BadBatch as error:
        if "64 bits" not in str(error):
            with pytest.raises(BadBatch):
                list(iterate_records(made))
    else:
        records = list(iterate_records(made))
        latest_ms = max(record.timestamp_ms for record in records)
        assert summary.max_timestamp_ms == latest_ms
        assert summary.offset_of_max_timestamp == next(r.offset for r in records if r.timestamp_ms == latest_ms)
        assert summary.offsets_in_order == all(record.offset == n for n, record in enumerate(records))
        assert summary.first_null_key_index == next((n for n, r in enumerate(records) if r.key is None), None)


@given(st.sampled_from(list(Codec)[1:]), st.binary(max_size=300), st.data())
def test_damaged_compression_never_passes_its_limit(codec: Codec, content: bytes, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, content * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    tracemalloc.start()
    try:
        assert len(decompress(codec, packed, LIMIT)) <= LIMIT
    except BadCompression:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * LIMIT


def test_the_header_has_the_size_that_the_readers_assume() -> None:
    assert len(build_batch(read_header(SOUND[0]), b"")) == HEADER_BYTES
