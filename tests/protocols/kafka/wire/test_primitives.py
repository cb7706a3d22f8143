from __future__ import annotations

import pytest

from trimq.protocols.kafka.wire.primitives import MalformedMessage, read_varint, refuse_length, skip_tags, varint

VARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2097151, "ffff7f"),
    (2097152, "80808001"),
    (268435455, "ffffff7f"),
    (268435456, "8080808001"),
    (2147483647, "ffffffff07"),
]


@pytest.mark.parametrize(("value", "written"), VARINTS)
def test_a_varint_is_written_and_read(value: int, written: str) -> None:
    data = bytes.fromhex(written)
    assert varint(value) == data
    assert read_varint(b"x" + data + b"y", 1) == (value, 1 + len(data))


@pytest.mark.parametrize(("written", "value"), [("ffffffff0f", -1), ("8080808008", -(2**31)), ("ffffffff7f", -1)])
def test_the_fifth_byte_of_a_varint_may_make_it_negative_as_in_java(written: str, value: int) -> None:
    assert read_varint(bytes.fromhex(written), 0) == (value, 5)


@pytest.mark.parametrize("written", ["808080808000", "ffffffffffff01"])
def test_a_varint_of_six_bytes_is_refused(written: str) -> None:
    with pytest.raises(MalformedMessage, match="five bytes"):
        read_varint(bytes.fromhex(written), 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    data = bytes.fromhex("020503aabbccc80100ff")
    assert skip_tags(data, 1, data[0], len(data)) == len(data) - 1


@pytest.mark.parametrize("written", ["0500", "ffffffff07", "010005aa", "ffffffff0f"])
def test_tagged_fields_beyond_the_end_are_refused(written: str) -> None:
    data = bytes.fromhex(written)
    with pytest.raises(MalformedMessage):
        skip_tags(data, 1, data[0], len(data))


@pytest.mark.parametrize(
    ("length", "left", "reason"),
    [(-1, 10, "must not be null"), (11, 10, "only 10 bytes are left"), (40000, 50000, "more than 32767")],
)
def test_a_refusal_names_the_wrong_length(length: int, left: int, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        refuse_length("name", length, left)
