"""Addresses and ids of message units."""

from __future__ import annotations

import pytest

from trimq.formats.rocketmq_unit.hosts import (
    BadMessageId,
    OffsetMessageId,
    offset_message_id,
    pack_host,
    read_message_id,
    unique_key,
    unpack_host,
)


def test_an_offset_id_is_the_hosts_and_the_position_in_hexadecimal() -> None:
    id = offset_message_id(pack_host("127.0.0.1", 10911), 0)
    assert id == "7F00000100002A9F0000000000000000"
    assert read_message_id(id) == OffsetMessageId("127.0.0.1", 10911, 0)


def test_an_id_with_an_ipv6_address_has_56_characters() -> None:
    id = offset_message_id(pack_host("fe80::1", 1), 2**40)
    assert len(id) == 56
    assert read_message_id(id) == OffsetMessageId("fe80::1", 1, 2**40)


@pytest.mark.parametrize("id", ["", "7F", "G" * 32, "7F " * 10 + "00", "0" * 33])
def test_an_invalid_id_is_refused(id: str) -> None:
    with pytest.raises(BadMessageId):
        read_message_id(id)


@pytest.mark.parametrize(("address", "kept"), [("::ffff:1.2.3.4", "1.2.3.4"), ("fe80::1%eth0", "fe80::1")])
def test_an_address_is_stored_in_its_shortest_form(address: str, kept: str) -> None:
    assert unpack_host(pack_host(address, 7)) == (kept, 7)


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(ValueError, match="example"):
        pack_host("example.org", 7)
    with pytest.raises(ValueError, match="9 bytes"):
        unpack_host(bytes(9))


def test_a_unique_key_has_the_form_that_producers_use() -> None:
    key = unique_key(pack_host("10.1.2.3", 0), 0x1_8765, 0xDEADBEEF, 2**31 + 5, 65_535)
    assert key == "0A0102038765DEADBEEF80000005FFFF"
