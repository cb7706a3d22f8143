"""Property lists: single properties are read and changed, and all other bytes stay unchanged."""

from __future__ import annotations

import pytest

from trimq.formats.amqp_content import field_tables as fields
from trimq.formats.amqp_content.field_tables import BadField, Value
from trimq.formats.amqp_content.property_list import (
    EMPTY,
    PROPERTIES,
    check_properties,
    is_persistent,
    read_headers,
    read_properties,
    read_property,
    read_text,
    replace,
    write_properties,
)

ALL: dict[str, Value] = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": {"a": fields.Byte(1), "b": [None, "é"]},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": 1_700_000_000,
    "type": "t",
    "user_id": "guest",
    "app_id": "ap",
    "cluster_id": "cl",
}
RAW = write_properties(**ALL)


def test_all_properties_are_read_back() -> None:
    check_properties(RAW)
    assert read_properties(RAW) == ALL
    assert list(ALL) == list(PROPERTIES)


@pytest.mark.parametrize("name", PROPERTIES)
def test_one_property_is_found_among_all_and_alone(name: str) -> None:
    alone = write_properties(**{name: ALL[name]})
    check_properties(alone)
    assert read_property(RAW, name) == read_property(alone, name) == ALL[name]
    assert read_property(EMPTY, name) is None


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_is_removed_and_added_again(name: str) -> None:
    without = replace(RAW, **{name: None})
    assert name not in read_properties(without)
    assert replace(without, **{name: ALL[name]}) == RAW


def test_unchanged_properties_keep_their_bytes() -> None:
    # A timestamp in a table keeps its type, although the table is not decoded.
    raw = write_properties(headers={"n": fields.UnsignedShort(1), "t": fields.Timestamp(2)}, expiration="5")
    changed = replace(raw, expiration="6")
    assert changed == raw.replace(b"\x015", b"\x016")


def test_headers_are_read_alone() -> None:
    assert read_headers(RAW) == ALL["headers"]
    assert read_headers(EMPTY) == {}


@pytest.mark.parametrize(("mode", "expected"), [(None, False), (0, False), (1, False), (2, True), (3, False)])
def test_only_delivery_mode_two_is_persistent(mode: int | None, expected: bool) -> None:
    assert is_persistent(write_properties(delivery_mode=mode)) is expected


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\x00\x01x", b"\x80\x00", b"\x80\x00\x02a", EMPTY + b"x"])
def test_a_list_that_does_not_match_its_flags_is_refused(raw: bytes) -> None:
    with pytest.raises(BadField):
        check_properties(raw)


@pytest.mark.parametrize("raw", [b"\x00\x01", b"\x00\x02", b"\x80\x03\x01a"])
def test_flags_without_a_property_are_ignored(raw: bytes) -> None:
    check_properties(raw)
    assert read_text(raw, "content_type") == ("a" if raw[0] else None)


def test_every_truncated_list_is_refused() -> None:
    for size in range(len(RAW)):
        with pytest.raises(BadField):
            check_properties(RAW[:size])


@pytest.mark.parametrize("bad", [{"type": "x" * 256}, {"type": 5}, {"priority": "5"}, {"headers": "h"}])
def test_a_property_of_the_wrong_kind_is_refused(bad: dict[str, Value]) -> None:
    with pytest.raises(BadField):
        write_properties(**bad)


def test_a_property_that_is_not_utf8_is_refused_when_read() -> None:
    raw = write_properties(type="ab").replace(b"ab", b"\xff\xff")
    check_properties(raw)
    with pytest.raises(BadField):
        read_property(raw, "type")
