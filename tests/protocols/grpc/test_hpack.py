"""Header blocks, by the examples of RFC 7541, by what must be refused, and by what a table must not grow to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.protocols.grpc.frames import BrokenConnection
from trimq.protocols.grpc.hpack import HeaderDecoder, encode

REQUESTS = [
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    [
        *[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
        ("cache-control", "no-cache"),
    ],
    [
        *[(":method", "GET"), (":scheme", "https"), (":path", "/index.html"), (":authority", "www.example.com")],
        ("custom-key", "custom-value"),
    ],
]
PLAIN = [
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
]
PACKED = [
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
]


def decoder(most_bytes: int = 16_384) -> HeaderDecoder:
    return HeaderDecoder(most_bytes)


@pytest.mark.parametrize("blocks", [PLAIN, PACKED], ids=["plain", "packed"])
def test_three_requests_share_a_table_as_the_standard_shows(blocks: list[str]) -> None:
    reading = decoder()
    assert [list(reading.decode(bytes.fromhex(block)).fields) for block in blocks] == REQUESTS


def test_what_is_not_to_be_remembered_is_not() -> None:
    reading = decoder()
    assert reading.decode(bytes.fromhex("040c2f73616d706c652f70617468")).fields == ((":path", "/sample/path"),)
    assert reading.decode(bytes.fromhex("100870617373776f726406736563726574")).fields == (("password", "secret"),)
    with pytest.raises(BrokenConnection, match="no header has the number 62"):
        reading.decode(b"\xbe")


def remembered(name: str, value: str) -> bytes:
    return b"\x40" + encode([(name, value.encode())])[1:]


def test_the_oldest_is_forgotten_when_the_table_is_full() -> None:
    reading = decoder()
    for number in range(100):
        reading.decode(remembered(f"name{number:03}", "x" * 1000))
    # 4096 bytes hold three of 32 + 7 + 1000
    assert [reading.decode(bytes([0x80 | 62 + age])).fields[0][0] for age in range(3)] == [
        "name099",
        "name098",
        "name097",
    ]
    with pytest.raises(BrokenConnection):
        reading.decode(bytes([0x80 | 65]))


def test_a_field_larger_than_the_table_empties_it() -> None:
    reading = decoder()
    reading.decode(remembered("a", "b"))
    assert reading.decode(remembered("c", "x" * 5000)).fields == (("c", "x" * 5000),)
    with pytest.raises(BrokenConnection):
        reading.decode(b"\xbe")


def test_a_peer_may_shrink_the_table_and_let_it_grow_again() -> None:
    reading = decoder()
    reading.decode(remembered("a", "b"))
    reading.decode(b"\x20\x3f\xe1\x1f")  # to nothing, then to 4096
    with pytest.raises(BrokenConnection):
        reading.decode(b"\xbe")
    reading.decode(remembered("c", "d"))
    assert reading.decode(b"\xbe").fields == (("c", "d"),)


def test_a_block_that_comes_again_is_not_read_again_unless_the_table_changed() -> None:
    reading = decoder()
    reading.decode(remembered("a", "1"))
    once = reading.decode(b"\xbe")
    assert reading.decode(b"\xbe") is once
    reading.decode(remembered("a", "2"))
    assert reading.decode(b"\xbe").fields == (("a", "2"),)


def test_many_different_blocks_are_read_as_well_as_few() -> None:
    reading = decoder()
    for number in range(1000):
        assert reading.decode(encode([("n", b"%d" % number)])).fields == (("n", str(number)),)
    assert len(reading._known) <= 64


def test_long_blocks_are_not_kept() -> None:
    reading = decoder()
    block = encode([("n", b"x" * 2000)])
    assert reading.decode(block).fields == reading.decode(block).fields == (("n", "x" * 2000),)
    assert not reading._known


def test_fields_beyond_the_limit_are_dropped_and_the_table_goes_on() -> None:
    reading = decoder(most_bytes=100)
    block = reading.decode(remembered("a", "x" * 60) + remembered("b", "y" * 60))
    assert (block.fields, block.is_too_long) == ((("a", "x" * 60),), True)
    assert reading.decode(b"\xbe").fields == (("b", "y" * 60),)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("80", "number 0"),
        ("ff8080808010", "number"),
        ("ffffffffffff7f", "too large"),
        ("40", "too early"),
        ("4001", "1 bytes"),
        ("007f", "too early"),
        ("00056162", "has 2 left"),
        ("0001610a62", "has 1 left"),
        ("000161ffffffff07", "bytes in a block"),
        ("3fe21f", "more than it may be"),
        ("8220", "where it cannot be"),
        ("0081fe0161", "inside"),
        ("00017f81ff", "inside"),
    ],
)
def test_what_is_no_block_is_refused(raw: str, said: str) -> None:
    with pytest.raises(BrokenConnection, match=said):
        decoder().decode(bytes.fromhex(raw))


TEXT = st.text(st.characters(max_codepoint=255), max_size=300)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=20))
def test_what_we_write_is_read_as_it_was(fields: list[tuple[str, str]]) -> None:
    ascii_names = [(name.encode("ascii", "ignore").decode(), value) for name, value in fields]
    block = encode([(name, value.encode("latin-1")) for name, value in ascii_names])
    assert list(decoder(1 << 20).decode(block).fields) == ascii_names


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_any_bytes_are_fields_or_a_fault_and_the_table_stays_small(blocks: list[bytes]) -> None:
    reading = decoder(200)
    for block in blocks:
        try:
            found = reading.decode(block)
        except BrokenConnection:
            return
        assert sum(len(name) + len(value) + 32 for name, value in found.fields) <= 200
        assert reading._table_bytes == sum(len(name) + len(value) + 32 for name, value in reading._table) <= 4096
