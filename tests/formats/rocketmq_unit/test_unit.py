"""Message units: the layout of Apache RocketMQ, and refused units."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.unit import (
    FILLER_BYTES,
    LONGEST_SHORT_TOPIC,
    MIN_BYTES,
    BadUnit,
    BadUnitChecksum,
    Unit,
    UnitDraft,
    _read_any_unit,
    check_unit,
    draft_size,
    encode_unit,
    filler,
    filler_size,
    iterate_units,
    read_unit,
    stamp_unit,
)
from trimq.model import Buffer

HOST = pack_host("127.0.0.1", 10911)
HOST_V6 = pack_host("::1", 10911)
DRAFT = UnitDraft(
    b"orders", 3, b"hello", b"TAGS\x01TagA\x02", 7, 1, 1_700_000_000_000, pack_host("10.0.0.7", 5555), 2, 99
)


def test_the_layout_is_that_of_apache_rocketmq() -> None:
    unit = encode_unit(DRAFT, 41, 4096, 1_700_000_000_123, HOST)
    assert len(unit) == 91 + 5 + 6 + 10
    assert struct.unpack_from(">iIiii", unit) == (len(unit), 0xDAA320A7, zlib.crc32(b"hello") & 0x7FFFFFFF, 3, 7)
    assert struct.unpack_from(">qqiq", unit, 20) == (41, 4096, 1, 1_700_000_000_000)
    assert struct.unpack_from(">4Biq4Bi", unit, 48) == (10, 0, 0, 7, 5555, 1_700_000_000_123, 127, 0, 0, 1, 10911)
    assert struct.unpack_from(">iqi5sB6sh10s", unit, 72) == (2, 99, 5, b"hello", 6, b"orders", 10, b"TAGS\x01TagA\x02")


def test_a_topic_of_more_than_127_bytes_takes_the_second_magic() -> None:
    draft = DRAFT._replace(topic=b"t" * 128)
    unit = encode_unit(draft, 0, 0, 1, HOST)
    assert unit[4:8] == bytes.fromhex("DAA320AB")
    assert check_unit(unit).topic == draft.topic
    assert len(unit) == draft_size(draft, HOST)


@pytest.mark.parametrize(("born", "store", "bits"), [(HOST, HOST, 0), (HOST_V6, HOST, 16), (HOST, HOST_V6, 32)])
def test_the_hosts_set_the_address_flags(born: bytes, store: bytes, bits: int) -> None:
    unit = encode_unit(DRAFT._replace(born_host=born, sys_flag=48), 0, 0, 5, store)
    found = check_unit(unit)
    assert (found.sys_flag, found.born_host, found.store_host, found.store_ms) == (bits, born, store, 5)


@pytest.mark.parametrize("born", [HOST, HOST_V6])
def test_a_unit_can_be_moved_to_another_position(born: bytes) -> None:
    unit = bytearray(encode_unit(DRAFT._replace(born_host=born), 0, 0, 5, HOST))
    stamp_unit(unit, 8, 9, 10)
    found = check_unit(unit, position=9)
    assert (found.queue_offset, found.position, found.store_ms, found.born_ms) == (8, 9, 10, DRAFT.born_ms)


def test_a_unit_at_another_position_than_it_states_is_refused() -> None:
    with pytest.raises(BadUnit, match="position 0 is at 7"):
        check_unit(encode_unit(DRAFT, 0, 0, 1, HOST), position=7)


def test_a_flipped_byte_of_the_body_is_found() -> None:
    unit = bytearray(encode_unit(DRAFT, 0, 0, 1, HOST))
    unit[88] ^= 1
    assert read_unit(unit).body == b"iello"
    with pytest.raises(BadUnitChecksum):
        check_unit(unit)


@pytest.mark.parametrize(
    ("at", "value"), [(0, 10_000), (0, 12), (0, -1), (4, 0), (84, -1), (84, 10_000), (84, 6), (84, 4)]
)
def test_sizes_that_disagree_are_refused(at: int, value: int) -> None:
    unit = bytearray(encode_unit(DRAFT, 0, 0, 1, HOST))
    struct.pack_into(">i", unit, at, value)
    with pytest.raises(BadUnit):
        check_unit(unit)


def test_a_field_too_long_for_its_length_field_is_refused() -> None:
    with pytest.raises(BadUnit):
        encode_unit(DRAFT._replace(properties=b"p" * 32_768), 0, 0, 1, HOST)
    with pytest.raises(BadUnit):
        encode_unit(DRAFT._replace(topic=b"t" * 32_768), 0, 0, 1, HOST)


def test_the_shortest_unit_has_91_bytes() -> None:
    shortest = encode_unit(DRAFT._replace(body=b"", topic=b"", properties=b""), 0, 0, 1, HOST)
    assert len(shortest) == MIN_BYTES == 91
    assert check_unit(shortest).size == 91


def test_consecutive_units_are_read() -> None:
    data = b"".join(encode_unit(DRAFT, offset, offset * 112, 1, HOST) for offset in range(3))
    assert [unit.queue_offset for unit in iterate_units(data)] == [0, 1, 2]
    with pytest.raises(BadUnit):
        list(iterate_units(data[:-1]))


def test_a_filler_states_the_distance_to_the_next_file() -> None:
    assert filler_size(filler(500)) == 500
    assert filler(500) == bytes.fromhex("000001F4CBD43194")
    assert filler_size(filler(4)) is None
    assert filler_size(filler(500)[: FILLER_BYTES - 1]) is None
    assert filler_size(encode_unit(DRAFT, 0, 0, 1, HOST)) is None


def read_or_refused(read: Callable[[Buffer, int], Unit], data: Buffer, at: int) -> object:
    try:
        return read(data, at)
    except BadUnit as refusal:
        return str(refusal)


@given(
    st.sampled_from([HOST, HOST_V6]),
    st.sampled_from([HOST, HOST_V6]),
    st.sampled_from([0, 5, LONGEST_SHORT_TOPIC, LONGEST_SHORT_TOPIC + 1]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 40),
    st.integers(0, 3),
)
def test_the_fast_path_reads_a_unit_as_the_general_reader_does(
    born: bytes, store: bytes, topic: int, flips: list[tuple[int, int]], cut: int, at: int
) -> None:
    draft = DRAFT._replace(topic=b"t" * topic, born_host=born)
    data = bytearray(b"..." + encode_unit(draft, 41, 4096, 1_700_000_000_123, store) + b"...")[3 - at :]
    for place, byte in flips:
        data[min(place, len(data) - 1)] = byte
    raw = bytes(data[: len(data) - cut])
    assert read_or_refused(read_unit, raw, at) == read_or_refused(_read_any_unit, raw, at)
