"""Header blocks: the examples of RFC 7541, invalid blocks, and the size limit of the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.grpc.huffman_encoder import encoded

from trimq.protocols.grpc.frames import Http2ConnectionError
from trimq.protocols.grpc.hpack import _STATIC, HeaderDecoder, encode

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


def decoder(max_bytes: int = 16_384) -> HeaderDecoder:
    return HeaderDecoder(max_bytes)


@pytest.mark.parametrize("blocks", [PLAIN, PACKED], ids=["plain", "packed"])
def test_three_requests_share_a_table_as_in_the_rfc(blocks: list[str]) -> None:
    reading = decoder()
    assert [list(reading.decode(bytes.fromhex(block)).fields) for block in blocks] == REQUESTS


def test_a_field_without_indexing_is_not_stored() -> None:
    reading = decoder()
    assert reading.decode(bytes.fromhex("040c2f73616d706c652f70617468")).fields == ((":path", "/sample/path"),)
    assert reading.decode(bytes.fromhex("100870617373776f726406736563726574")).fields == (("password", "secret"),)
    with pytest.raises(Http2ConnectionError, match="invalid header index 62"):
        reading.decode(b"\xbe")


def remembered(name: str, value: str) -> bytes:
    return b"\x40" + encode([(name, value.encode())])[1:]


def test_the_oldest_entry_is_evicted_when_the_table_is_full() -> None:
    reading = decoder()
    for number in range(100):
        reading.decode(remembered(f"name{number:03}", "x" * 1000))
    # 4096 bytes hold three entries of 32 + 7 + 1000 bytes
    assert [reading.decode(bytes([0x80 | 62 + age])).fields[0][0] for age in range(3)] == [
        "name099",
        "name098",
        "name097",
    ]
    with pytest.raises(Http2ConnectionError):
        reading.decode(bytes([0x80 | 65]))


def test_a_field_larger_than_the_table_empties_it() -> None:
    reading = decoder()
    reading.decode(remembered("a", "b"))
    assert reading.decode(remembered("c", "x" * 5000)).fields == (("c", "x" * 5000),)
    with pytest.raises(Http2ConnectionError):
        reading.decode(b"\xbe")


def test_a_peer_may_shrink_the_table_and_let_it_grow_again() -> None:
    reading = decoder()
    reading.decode(remembered("a", "b"))
    reading.decode(b"\x20\x3f\xe1\x1f")  # table size 0, then 4096
    with pytest.raises(Http2ConnectionError):
        reading.decode(b"\xbe")
    reading.decode(remembered("c", "d"))
    assert reading.decode(b"\xbe").fields == (("c", "d"),)


def test_a_repeated_block_is_decoded_again_only_if_the_table_changed() -> None:
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


def test_long_blocks_are_not_cached() -> None:
    reading = decoder()
    block = encode([("n", b"x" * 2000)])
    assert reading.decode(block).fields == reading.decode(block).fields == (("n", "x" * 2000),)
    assert not reading._known


def test_fields_beyond_the_limit_are_dropped_and_the_table_stays_valid() -> None:
    reading = decoder(max_bytes=100)
    block = reading.decode(remembered("a", "x" * 60) + remembered("b", "y" * 60))
    assert (block.fields, block.is_too_long) == ((("a", "x" * 60),), True)
    assert reading.decode(b"\xbe").fields == (("b", "y" * 60),)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("80", "index 0"),
        ("ff8080808010", "index"),
        ("ffffffffffff7f", "too large"),
        ("40", "truncated"),
        ("4001", "1 bytes"),
        ("007f", "truncated"),
        ("00056162", "with 2 left"),
        ("0001610a62", "with 1 left"),
        ("000161ffffffff07", "bytes in a block"),
        ("3fe21f", "exceeds the maximum"),
        ("8220", "misplaced"),
        ("0081fe0161", "inside"),
        ("00017f81ff", "inside"),
    ],
)
def test_an_invalid_block_is_refused(raw: str, reason: str) -> None:
    with pytest.raises(Http2ConnectionError, match=reason):
        decoder().decode(bytes.fromhex(raw))


TEXT = st.text(st.characters(max_codepoint=255), max_size=300)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=20))
def test_our_encoding_survives_a_round_trip(fields: list[tuple[str, str]]) -> None:
    ascii_names = [(name.encode("ascii", "ignore").decode(), value) for name, value in fields]
    block = encode([(name, value.encode("latin-1")) for name, value in ascii_names])
    assert list(decoder(1 << 20).decode(block).fields) == ascii_names


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_random_bytes_are_fields_or_an_error_and_the_table_stays_small(blocks: list[bytes]) -> None:
    reading = decoder(200)
    for block in blocks:
        try:
            found = reading.decode(block)
        except Http2ConnectionError:
            return
        assert sum(len(name) + len(value) + 32 for name, value in found.fields) <= 200
        table = reading._fields[62 + 128 :]
        assert reading._table_bytes == sum(len(name) + len(value) + 32 for name, value in table) <= 4096


# -- any encoder of a peer


class Encoder:
    """Encodes fields in every representation of RFC 7541, with a table of its own."""

    def __init__(self) -> None:
        self._table: list[tuple[str, str]] = []

    def field(self, field: tuple[str, str], way: str, is_compressed: bool) -> bytes:
        numbered = [*_STATIC, *self._table]
        if way == "number" and field in numbered:
            return written(0x80, 0x7F, numbered.index(field) + 1)
        first, mask = {"plain": (0, 0x0F), "secret": (0x10, 0x0F)}.get(way, (0x40, 0x3F))
        names = [name for name, _ in numbered]
        index = names.index(field[0]) + 1 if field[0] in names else 0
        raw = written(first, mask, index) + (b"" if index else self._text(field[0], is_compressed))
        if mask == 0x3F:
            self._table.insert(0, field)
            while sum(len(name) + len(value) + 32 for name, value in self._table) > 4096:
                self._table.pop()
        return raw + self._text(field[1], is_compressed)

    def _text(self, text: str, is_compressed: bool) -> bytes:
        raw = text.encode("latin-1")
        if is_compressed:
            raw = encoded(raw)
        return written(0x80 if is_compressed else 0, 0x7F, len(raw)) + raw


def written(first: int, mask: int, number: int) -> bytes:
    if number < mask:
        return bytes((first | number,))
    found, number = [first | mask], number - mask
    while number > 0x7F:
        found.append(0x80 | number & 0x7F)
        number >>= 7
    return bytes((*found, number))


WAYS = st.sampled_from(["number", "number", "number", "remembered", "plain", "plain", "secret"])
CALL = [
    *[(":method", "POST"), (":scheme", "http"), (":path", "/s/Send"), ("te", "trailers"), ("user-agent", "x" * 60)],
    *[("x-id", ""), ("x-time", ""), ("x-client", "me"), ("x-long", "y" * 700)],
]


@st.composite
def blocks(draw: st.DrawFn) -> list[list[tuple[tuple[str, str], str, bool]]]:
    """Blocks with mostly the same fields in the same representation: each has its own id, the time changes now and
    then, and some fields are added, omitted or represented differently."""
    ways = [(draw(WAYS), draw(st.integers(0, 4)) == 0) for _ in CALL]
    found = []
    for number in range(draw(st.integers(1, 12))):
        values = {"x-id": f"id {number}", "x-time": str(number // 4)}
        made = [((name, values.get(name, value)), *way) for (name, value), way in zip(CALL, ways, strict=True)]
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            place = draw(st.integers(0, len(made) - 1))
            name, value = made[place][0]
            change = draw(st.sampled_from(["way", "value", "more", "less"]))
            if change == "less":
                del made[place]
                continue
            other = (name, draw(st.sampled_from([value, "", "z" * 126, "z" * 127, "z" * 900, "\xe9"])))
            made[place : place + (change != "more")] = [(other, draw(WAYS), draw(st.booleans()))]
        found.append(made)
    return found


@given(blocks())
def test_every_representation_of_a_peer_is_decoded(
    found: list[list[tuple[tuple[str, str], str, bool]]],
) -> None:
    writing, reading = Encoder(), decoder()
    for made in found:
        block = reading.decode(b"".join(writing.field(*each) for each in made))
        fields = tuple(field for field, _, _ in made)
        size = sum(len(name) + len(value) + 32 for name, value in fields)
        assert (block.fields, block.is_too_long, block.long_bytes) == (fields, False, size if size > 4096 else 0)
        assert reading._fields[62 + 128 :] == writing._table


@given(blocks(), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 1200), st.integers(0, 255)), max_size=3))
def test_damaged_blocks_are_read_as_without_a_cache(
    found: list[list[tuple[tuple[str, str], str, bool]]], damage: list[tuple[int, int, int]]
) -> None:
    writing, reading, other = Encoder(), decoder(), decoder()
    for number, made in enumerate(found):
        raw = bytearray(b"".join(writing.field(*each) for each in made))
        for at, place, byte in damage:
            if at == number and raw:
                raw[place % len(raw)] = byte
        other._known, other._alike, other._last = {}, None, ()
        got, expected = (read_or_refused(each, bytes(raw)) for each in (reading, other))
        assert got == expected
        if isinstance(got, str):
            return
        assert reading._fields == other._fields


def read_or_refused(reading: HeaderDecoder, raw: bytes) -> object:
    try:
        found = reading.decode(raw)
    except Http2ConnectionError as error:
        return str(error)
    return found.fields, found.is_too_long, found.long_bytes


def test_blocks_that_differ_in_an_id_share_the_other_fields() -> None:
    reading = decoder()
    shared = [("a", b"1"), ("b", b"2")], [("c", b"3")]
    _, *rest = (reading.decode(encode([*shared[0], ("id", b"%d" % number), *shared[1]])) for number in range(5))
    assert [block.fields[2] for block in rest] == [("id", str(number)) for number in range(1, 5)]
    assert all(block.fields[0] is rest[0].fields[0] and block.fields[3] is rest[0].fields[3] for block in rest)
    reading.decode(remembered("a", "1"))
    assert reading.decode(encode([*shared[0], ("id", b"9")])).fields == (("a", "1"), ("b", "2"), ("id", "9"))


def test_a_block_shorter_than_the_shared_prefix_and_suffix_is_read_correctly() -> None:
    reading = decoder()
    shared = encode([("a", b"1")])
    for number in range(3):
        assert reading.decode(shared + encode([("id", b"%d" % number)]) + shared).fields[1] == ("id", str(number))
    assert reading.decode(shared).fields == (("a", "1"),)
    assert reading.decode(shared + shared).fields == (("a", "1"), ("a", "1"))
    assert reading.decode(shared + shared + shared).fields == (("a", "1"),) * 3


def test_a_table_filled_with_long_fields_cannot_make_a_block_too_long_unseen() -> None:
    reading = decoder(8000)
    reading.decode(remembered("a", "x" * 3000))
    reading.decode(remembered("b", "y"))
    assert reading.decode(b"\xbf\xbe").long_bytes == 0
    assert reading.decode(b"\xbf\xbf").long_bytes == 2 * 3033
    block = reading.decode(b"\xbf\xbf\xbf")
    assert (len(block.fields), block.is_too_long, block.long_bytes) == (2, True, 8000)


def literal(value: bytes) -> bytes:
    """Encodes a header field that is not indexed."""
    return b"\x00\x01n" + bytes([len(value)]) + value


def test_the_cached_prefix_is_dropped_when_the_table_changes() -> None:
    decoder = HeaderDecoder(8192)
    decoder.decode(b"\x40\x01a\x011")
    for value in (b"1", b"2", b"3"):
        decoder.decode(b"\xbe" + literal(value))
    decoder.decode(b"\x40\x01a\x012")
    assert decoder.decode(b"\xbe" + literal(b"4")).fields == (("a", "2"), ("n", "4"))


def test_a_block_with_more_fields_than_the_shared_ones_loses_nothing() -> None:
    decoder = HeaderDecoder(8192)
    for value in (b"1", b"2", b"3"):
        decoder.decode(literal(value) + b"\x84")
    found = decoder.decode(literal(b"4") + b"\x83\x84").fields
    assert found == (("n", "4"), (":method", "POST"), (":path", "/"))
