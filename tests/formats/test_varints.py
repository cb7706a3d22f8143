from __future__ import annotations

import pytest

from trimq.formats.varints import BadVarint, encode_varint, read_varint, read_varlong

TABLE = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-64, "7f"),
    (63, "7e"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
LONG_TABLE = [*TABLE, (2**31, "8080808010"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")]


@pytest.mark.parametrize(("number", "encoded"), LONG_TABLE)
def test_numbers_are_written_as_kafka_writes_them(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded


@pytest.mark.parametrize(("number", "encoded"), TABLE)
def test_short_numbers_are_read(number: int, encoded: str) -> None:
    data = b"." + bytes.fromhex(encoded) + b"."
    assert read_varint(data, 1) == (number, len(data) - 1)


@pytest.mark.parametrize(("number", "encoded"), LONG_TABLE)
def test_long_numbers_are_read(number: int, encoded: str) -> None:
    data = b"." + bytes.fromhex(encoded) + b"."
    assert read_varlong(data, 1) == (number, len(data) - 1)


@pytest.mark.parametrize("encoded", ["808080808000", "ffffffffff0f", "8080808010", "ffffffff1f"])
def test_more_than_32_bits_are_refused(encoded: str) -> None:
    with pytest.raises(BadVarint):
        read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["8080808080808080808000", "ffffffffffffffffff02", "ffffffffffffffffffff01"])
def test_more_than_64_bits_are_refused(encoded: str) -> None:
    with pytest.raises(BadVarint):
        read_varlong(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "8080", "80808080"])
def test_a_truncated_number_is_an_index_error(encoded: str) -> None:
    for read in (read_varint, read_varlong):
        with pytest.raises(IndexError):
            read(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(BadVarint):
        encode_varint(number)


def test_redundant_continuation_bytes_are_read_as_kafka_reads_them() -> None:
    assert read_varint(b"\x82\x80\x00", 0) == (1, 3)
