"""Field tables: every type keeps its width, and invalid tables are refused."""

from __future__ import annotations

import struct

import pytest

from trimq.formats.amqp_content import field_tables as fields
from trimq.formats.amqp_content.field_tables import BadField, read_table, read_value, write_table, write_value

# (encoded value with its type, decoded value)
VALUES: list[tuple[bytes, fields.Value]] = [
    (b"t\x01", True),
    (b"t\x00", False),
    (b"b\xff", fields.Byte(-1)),
    (b"B\xff", fields.UnsignedByte(255)),
    (b"s\x80\x00", fields.Short(-32768)),
    (b"u\xff\xff", fields.UnsignedShort(65535)),
    (b"I\x80\x00\x00\x00", fields.Integer(-(2**31))),
    (b"i\xff\xff\xff\xff", fields.UnsignedInteger(2**32 - 1)),
    (b"l" + b"\xff" * 8, -1),
    (b"L" + b"\xff" * 8, fields.LongLong(-1)),
    (b"T" + b"\xff" * 8, fields.Timestamp(2**64 - 1)),
    (b"f\x3f\xc0\x00\x00", fields.Single(1.5)),
    (b"d\x3f\xf8" + bytes(6), 1.5),
    (b"D\x02\x00\x00\x01\x3a", fields.Decimal(2, 314)),
    (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
    (b"S\x00\x00\x00\x01\xff", fields.Octets(b"\xff")),
    (b"x\x00\x00\x00\x01\xff", b"\xff"),
    (b"V", None),
    (b"A\x00\x00\x00\x03t\x01V", [True, None]),
    (b"F\x00\x00\x00\x04\x01at\x01", {"a": True}),
]


@pytest.mark.parametrize(("raw", "value"), VALUES)
def test_a_value_is_read_and_written_with_its_own_type(raw: bytes, value: fields.Value) -> None:
    read, end = read_value(raw, 0, len(raw))
    assert (read, type(read), end) == (value, type(value), len(raw))
    assert write_value(value) == raw


@pytest.mark.parametrize(("raw", "value"), VALUES)
def test_a_truncated_value_is_refused(raw: bytes, value: fields.Value) -> None:
    for end in range(len(raw)):
        with pytest.raises(BadField):
            read_value(raw, 0, end)


def test_a_length_beyond_the_table_is_refused() -> None:
    inner = b"\x01aS" + struct.pack(">I", 2**31)
    with pytest.raises(BadField, match="beyond its table"):
        read_table(struct.pack(">I", len(inner)) + inner, 0, 4 + len(inner))


def test_tables_nested_too_deep_are_refused() -> None:
    raw = b""
    for _ in range(fields.MAX_DEPTH + 2):
        raw = b"A" + struct.pack(">I", len(raw)) + raw
    with pytest.raises(BadField, match="deep"):
        read_value(raw, 0, len(raw))
    raw = b""
    for _ in range(fields.MAX_DEPTH + 2):
        raw = struct.pack(">I", len(raw)) + raw
        raw = b"\x00F" + raw
    with pytest.raises(BadField, match="deep"):
        read_table(struct.pack(">I", len(raw)) + raw, 0, 4 + len(raw))


@pytest.mark.parametrize("raw", [b"\x01\xffV", b"\x05aV", b"\x01a?", b"\x01a"])
def test_an_invalid_entry_is_refused(raw: bytes) -> None:
    with pytest.raises(BadField):
        read_table(struct.pack(">I", len(raw)) + raw, 0, 4 + len(raw))


@pytest.mark.parametrize("value", [2**63, fields.Byte(200), fields.Single(1e300), fields.Decimal(300, 0), object()])
def test_a_value_that_cannot_be_encoded_is_refused(value: fields.Value) -> None:
    with pytest.raises(BadField):
        write_table({"a": value})


def test_a_name_over_255_bytes_is_refused() -> None:
    assert write_table({"n" * 255: None})
    with pytest.raises(BadField, match="256 bytes"):
        write_table({"n" * 256: None})


def test_numbers_compare_by_value_across_widths() -> None:
    assert fields.Byte(1) == 1 == fields.UnsignedInteger(1)
