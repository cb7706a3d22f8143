from __future__ import annotations

import tracemalloc

import pytest

from trimq.formats.kafka_batch.builder import encode_record, from_records
from trimq.formats.kafka_batch.compression import Codec, compress
from trimq.formats.kafka_batch.header import (
    BadBatch,
    BadCount,
    BatchHeader,
    TruncatedBatch,
    build_batch,
    stamp_append_time,
)
from trimq.formats.kafka_batch.records import (
    BadPayload,
    BadRecord,
    BatchRecord,
    PayloadTooLarge,
    expand,
    find_max_timestamp,
    find_timestamp,
    iterate_records,
    to_records,
    validate_records,
)
from trimq.formats.varints import encode_varint
from trimq.model import Record

NOW = 1_700_000_000_000
RECORDS = [
    Record(body=b"v", key=b"k", headers=(("h1", b"x"), ("h1", None), ("", b"")), timestamp_ms=NOW),
    Record(body=None, key=None, timestamp_ms=NOW + 5),
    Record(body=b"", key=b"", timestamp_ms=NOW - 10),
]


def craft(payload: bytes, count: int = 1, *, attributes: int = 0, base_offset: int = 0, max_ms: int = NOW) -> bytearray:
    """A batch with a right CRC around any payload."""
    return build_batch(
        BatchHeader(base_offset, 0, -1, 2, 0, attributes, count - 1, NOW, max_ms, -1, -1, -1, count), payload
    )


@pytest.mark.parametrize("codec", Codec)
def test_records_are_read_as_they_were_written(codec: Codec) -> None:
    made = b"before" + bytes(from_records(RECORDS, base_offset=100, codec=codec)) + b"after"
    assert list(iterate_records(made, 6)) == [
        BatchRecord(100, NOW, b"k", b"v", ((b"h1", b"x"), (b"h1", None), (b"", b""))),
        BatchRecord(101, NOW + 5, None, None, ()),
        BatchRecord(102, NOW - 10, b"", b"", ()),
    ]


def test_records_have_the_append_time_of_their_batch() -> None:
    made = from_records(RECORDS)
    stamp_append_time(made, NOW + 99)
    assert [record.timestamp_ms for record in iterate_records(made)] == [NOW + 99] * 3


def test_messages_are_read_as_neutral_records() -> None:
    made = from_records(RECORDS, base_offset=7)
    assert [(r.body, r.key, r.headers, r.timestamp_ms, r.offset) for r in to_records(made)] == [
        (r.body, r.key, r.headers, r.timestamp_ms, 7 + n) for n, r in enumerate(RECORDS)
    ]


def test_a_header_name_that_is_not_text_survives_decoding_and_encoding() -> None:
    made = craft(encode_record(0, 0, None, b"v", [(b"\xff\xfe", b"x")]))
    (record,) = to_records(made)
    assert list(iterate_records(from_records([record]))) == list(iterate_records(made))


def test_a_control_batch_holds_no_messages() -> None:
    assert to_records(from_records(RECORDS, control=True)) == []


def sized(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


MALFORMED = {
    "no bytes": b"",
    "a length alone": b"\x10",
    "a length that does not end": b"\x80",
    "a length of six bytes": b"\x80\x80\x80\x80\x80\x00",
    "a negative length": b"\x01\x00\x00\x00\x01\x01\x00",
    "a negative length of the right size": b"\x0d\x00\x00\x00\x01\x01\x00",
    "an empty record": b"\x00",
    "longer than the batch": encode_varint(100) + b"\x00\x00\x00\x01\x02v\x00",
    "longest": encode_varint(2**31 - 1) + b"\x00\x00\x00\x01\x02v\x00",
    "bytes after the headers": sized(b"\x00\x00\x00\x01\x02v\x00zz"),
    "a key beyond the record": sized(b"\x00\x00\x00\x40\x02v\x00"),
    "a value beyond the record": sized(b"\x00\x00\x00\x01\x40v\x00"),
    "a value of two gigabytes": sized(b"\x00\x00\x00\x01" + encode_varint(2**31 - 1) + b"v\x00"),
    "a time that does not end": sized(b"\x00" + b"\x80" * 11 + b"\x00\x01\x02v\x00"),
    "an offset beyond 32 bits": sized(b"\x00\x00" + encode_varint(2**40) + b"\x01\x02v\x00"),
    "a negative number of headers": sized(b"\x00\x00\x00\x01\x02v\x01"),
    "more headers than bytes": sized(b"\x00\x00\x00\x01\x02v" + encode_varint(2**31 - 1)),
    "a header without name": sized(b"\x00\x00\x00\x01\x02v\x02\x01\x02x"),
    "a header beyond the record": sized(b"\x00\x00\x00\x01\x02v\x02\x02n\x40x"),
    "a header that is missing": sized(b"\x00\x00\x00\x01\x02v\x04\x02n\x02x"),
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("before", [0, 1, 70])
@pytest.mark.parametrize("after", [0, 1])
def test_a_malformed_record_is_found_by_both_readers_and_allocates_nothing(
    payload: bytes, before: int, after: int
) -> None:
    good = [encode_record(0, n, None, b"v") for n in range(before)]
    later = [encode_record(0, before + 1, None, b"v")] * after
    made = craft(b"".join([*good, payload, *later]), before + 1 + after)
    tracemalloc.start()
    try:
        for read in (validate_records, to_records):
            with pytest.raises((BadRecord, BadCount)):
                read(made)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_is_not_the_number_of_records_is_refused(codec: Codec, count: int) -> None:
    payload = encode_record(0, 0, None, b"v") + encode_record(0, 1, None, b"v")
    made = craft(compress(codec, payload), count, attributes=codec)
    for read in (validate_records, to_records):
        with pytest.raises((BadRecord, BadCount)):
            read(made)


@pytest.mark.parametrize("payload", [sized(b"\x00\x00\x00\x01\x03\x00"), sized(b"\x09\x00\x00\x05\x01\x00")])
def test_every_negative_length_is_null_and_attributes_are_ignored(payload: bytes) -> None:
    made = craft(payload)
    assert validate_records(made).first_null_key_index == 0
    assert list(iterate_records(made)) == [BatchRecord(0, NOW, None, None, ())]


def test_an_emptied_batch_has_no_records() -> None:
    made = craft(b"", 0)
    assert list(iterate_records(made)) == []
    assert validate_records(made) == (-1, -1, None, None, True)


def test_a_truncated_batch_is_refused() -> None:
    made = from_records(RECORDS)
    for cut in (1, 10, len(made) - 5):
        with pytest.raises(TruncatedBatch):
            iterate_records(made[:-cut])
    with pytest.raises(BadBatch):
        iterate_records(made[:8] + b"\x00\x00\x00\x05" + made[12:])


@pytest.mark.parametrize("codec", [*list(Codec)[1:], 5, 6, 7])
def test_a_payload_that_cannot_be_decompressed_is_refused(codec: int) -> None:
    for payload in (b"garbage", b"", encode_record(0, 0, None, b"v")):
        made = craft(payload, attributes=codec)
        for read in (validate_records, to_records):
            with pytest.raises(BadPayload):
                read(made)


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_compression_bomb_is_stopped_by_every_reader(codec: Codec) -> None:
    made = from_records([Record(body=bytes(5_000_000), timestamp_ms=NOW)], codec=codec)
    assert expand(made, max_expanded_bytes=5_000_100)[0].record_count == 1
    for read in (expand, iterate_records, to_records, find_max_timestamp):
        with pytest.raises(PayloadTooLarge):
            read(made, 0, 1_000_000)
    with pytest.raises(PayloadTooLarge):
        validate_records(made, max_expanded_bytes=1_000_000)
    with pytest.raises(PayloadTooLarge):
        find_timestamp(made, NOW, max_expanded_bytes=1_000_000)


@pytest.mark.parametrize("codec", Codec)
def test_validation_summarises_the_records(codec: Codec) -> None:
    made = from_records(RECORDS, base_offset=100, codec=codec)
    assert validate_records(made) == (NOW + 5, 101, 1, None, True)


def test_the_first_of_several_latest_records_is_reported() -> None:
    times = [3, 9, 4, 9, 9, 1]
    made = from_records([Record(body=b"v", key=b"k", timestamp_ms=NOW + t) for t in times], base_offset=10)
    assert validate_records(made) == (NOW + 9, 11, None, None, True)
    assert find_max_timestamp(made) == (11, NOW + 9)


def test_validation_does_not_trust_the_header() -> None:
    made = craft(encode_record(7, 0, b"k", b"v"), max_ms=NOW + 10**9)
    assert validate_records(made).max_timestamp_ms == NOW + 7


@pytest.mark.parametrize(
    ("times", "first"),
    [
        ([0, 1, 2], None),
        ([0, 101, 2], 1),
        ([0, 1, -101], 2),
        ([-1 - NOW, 5], None),
        ([-1 - NOW, 200], 1),
        ([100, -100], None),
    ],
)
def test_the_first_record_outside_of_the_window_is_reported_and_a_missing_timestamp_is_allowed(
    times: list[int], first: int | None
) -> None:
    made = from_records([Record(body=b"v", timestamp_ms=NOW + t) for t in times])
    assert validate_records(made, window_ms=(NOW - 100, NOW + 100)).first_outside_window_index == first


def test_records_without_a_timestamp_have_no_latest() -> None:
    made = from_records([Record(body=b"v"), Record(body=b"v")])
    assert validate_records(made) == (-1, -1, 0, None, True)
    assert find_max_timestamp(made) is None


def test_offsets_out_of_order_are_reported() -> None:
    swapped = craft(encode_record(0, 1, b"k", b"x") + encode_record(5, 0, b"k", b"y"), 2)
    assert validate_records(swapped) == (NOW + 5, 0, None, None, False)


def test_a_timestamp_beyond_64_bits_is_refused_from_a_producer_and_wraps_for_a_reader() -> None:
    made = craft(encode_record(2**63 - 1, 0, None, b"v"))
    with pytest.raises(BadRecord):
        validate_records(made)
    assert next(iterate_records(made)).timestamp_ms == NOW + 2**63 - 1 - 2**64


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("timestamp_ms", "from_offset", "found"),
    [
        (0, 0, (50, NOW)),
        (NOW, 0, (50, NOW)),
        (NOW + 1, 0, (51, NOW + 20)),
        (NOW + 20, 0, (51, NOW + 20)),
        (NOW + 20, 52, (53, NOW + 30)),
        (NOW + 30, 0, (53, NOW + 30)),
        (NOW + 31, 0, None),
        (NOW, 54, None),
    ],
)
def test_the_first_record_at_a_timestamp_is_found(
    codec: Codec, timestamp_ms: int, from_offset: int, found: tuple[int, int] | None
) -> None:
    made = from_records([Record(body=b"v", timestamp_ms=NOW + t) for t in (0, 20, 10, 30)], base_offset=50, codec=codec)
    assert find_timestamp(made, timestamp_ms, from_offset=from_offset) == found


def test_with_append_time_the_first_record_is_found() -> None:
    made = from_records(RECORDS, base_offset=9, append_time_ms=NOW + 50)
    assert find_timestamp(made, NOW + 40) == (9, NOW + 50)
    assert find_max_timestamp(made) == (9, NOW + 50)
    assert find_timestamp(made, NOW + 51) is None
