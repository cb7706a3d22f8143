"""The stored form of one AMQP content."""

from __future__ import annotations

import pytest

from trimq.errors import InvalidRecords
from trimq.formats.amqp_content.content import (
    FOOTER_BYTES,
    HEAD_BYTES,
    NEVER,
    SHARED,
    TRANSIENT,
    Content,
    Footer,
    blob_of,
    check_record,
    encode,
    encode_all,
    encode_content,
    encode_footer,
    encode_reference,
    encode_references,
    from_record,
    iterate_heads,
    read_footer,
    read_head,
    read_references,
    read_stored,
    record_bytes,
    references_bytes,
    to_record,
)
from trimq.formats.amqp_content.property_list import write_properties
from trimq.model import Record

CONTENT = Content(b"orders", b"a.b", write_properties(headers={"k": "v", "n": 1}, delivery_mode=2), b"hello", 1234)


def test_a_stored_content_is_read_back() -> None:
    data = encode(encode_content(CONTENT), 7, 99, TRANSIENT)
    stored, end = read_stored(data, 0) or pytest.fail("not whole")
    assert end == len(data)
    assert stored.content == CONTENT
    assert (stored.offset, stored.expires_ms, stored.is_transient) == (7, 99, True)


def test_a_batch_of_contents_is_stored_as_single_contents_are() -> None:
    contents = [
        CONTENT,
        CONTENT._replace(body=b""),
        CONTENT._replace(body=b"x" * 5000, published_ms=-1),
        CONTENT._replace(header=write_properties(delivery_mode=1)),
        CONTENT._replace(key=b"a"),
        CONTENT._replace(exchange=b"", key=b"ordersa"),
    ]
    alone = [encode(encode_content(content), 7 + index, 99, TRANSIENT) for index, content in enumerate(contents)]
    assert encode_all(contents, 7, 99, TRANSIENT) == alone


@pytest.mark.parametrize("body", [b"", b"x" * 4095, b"x" * 4096, b"x" * 100_000])
def test_bodies_of_every_length_are_stored(body: bytes) -> None:
    data = encode(encode_content(CONTENT._replace(body=body)), 1)
    assert (read_stored(data, 0) or pytest.fail("not whole"))[0].content.body == body


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    data = bytearray(encode(encode_content(CONTENT), 7))
    for at in range(len(data)):
        data[at] ^= 4
        assert check_record(data, 0) is None, f"byte {at}"
        data[at] ^= 4
    assert check_record(data, 0) is not None


def test_a_torn_record_is_not_a_record() -> None:
    data = encode(encode_content(CONTENT), 7)
    assert all(read_head(data[:size], 0) is None for size in range(len(data)))


def test_a_length_beyond_the_available_bytes_is_refused() -> None:
    data = b"\0\0\0\0\xff\xff\xff\xff" + b"\1" * HEAD_BYTES
    assert read_head(data, 0) is None
    assert record_bytes(data, 0) == 8 + 0xFFFFFFFF
    assert record_bytes(data[:7], 0) == 0


def test_iteration_ends_at_the_first_invalid_record() -> None:
    records = [encode(encode_content(CONTENT), offset) for offset in range(3)]
    found = list(iterate_heads(b"".join(records) + b"garbage" * 20))
    assert [head.offset for _, head in found] == [0, 1, 2]
    assert found[1][0] == len(records[0])


def test_a_footer_is_distinguished_from_a_content() -> None:
    footer = Footer(3, 1, 0, 10, 14, 500, NEVER, 1, 9)
    data = encode_footer(footer)
    assert len(data) == FOOTER_BYTES
    assert read_footer(data) == footer
    body_of_same_size = encode(encode_content(Content(b"", b"", b"", data[HEAD_BYTES:], NEVER)), 5)
    assert len(body_of_same_size) == FOOTER_BYTES
    assert read_footer(body_of_same_size) is None
    assert read_footer(data[:-1]) is None


def test_a_reference_has_a_body_number_and_its_length() -> None:
    data = encode(encode_reference(CONTENT, 1 << 40), 7, 99, SHARED)
    head = check_record(data, 0) or pytest.fail("not whole")
    assert (head.blob, head.body_bytes, head.end) == (1 << 40, len(CONTENT.body), len(data))
    stored, end = read_stored(data, 0) or pytest.fail("not whole")
    assert end == len(data)
    assert blob_of(stored) == 1 << 40
    assert stored.content._replace(body=CONTENT.body) == CONTENT
    with pytest.raises(InvalidRecords):
        blob_of(stored._replace(content=CONTENT))


def test_references_of_a_segment_are_read_back() -> None:
    pairs = [(0, 5), (7, 1 << 63), (4_000_000_000, 9)]
    data = encode_references(pairs, 8)
    assert len(data) == references_bytes(len(pairs))
    assert read_references(data) == pairs
    assert read_references(data[:-1]) is None
    assert read_references(encode(encode_content(CONTENT), 7)) is None
    assert read_footer(data) is None
    assert references_bytes(0) == 0


def test_a_record_gives_the_same_content_back() -> None:
    record = to_record(CONTENT, 5)
    assert (record.offset, record.body, record.timestamp_ms) == (5, b"hello", 1234)
    assert record.headers == (("k", b"v"), ("n", b"1"))
    assert from_record(record) == CONTENT


def test_a_record_of_another_protocol_becomes_a_content() -> None:
    content = from_record(Record(body=None, headers=(("a", b"1"),), timestamp_ms=5))
    assert (content.body, content.published_ms, content.key) == (b"", 5, b"")
    assert to_record(content).headers == (("a", b"1"),)


def test_damaged_headers_are_kept_unchanged() -> None:
    damaged = CONTENT._replace(header=b"\x20\x00\x00\x00\x00\x05\x09abcd")
    assert to_record(damaged).headers == ()
    assert from_record(to_record(damaged)) == damaged


def test_extras_of_another_kind_are_refused() -> None:
    with pytest.raises(InvalidRecords):
        from_record(Record(body=b"", extras={"amqp.exchange": 5, "amqp.properties": b"\0\0"}))
