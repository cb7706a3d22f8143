"""Conversion between units and records."""

from __future__ import annotations

import pytest

from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.records import from_record, to_record
from trimq.formats.rocketmq_unit.unit import UnitDraft, encode_unit, read_unit
from trimq.model import Record

HOST = pack_host("127.0.0.1", 10911)
BORN = pack_host("10.0.0.7", 5555)
DRAFT = UnitDraft(b"orders", 3, b"hello", b"KEYS\x01k1 k2\x02TAGS\x01A\x02", 7, 1, 1_700_000_000_000, BORN, 2, 99)


def test_a_unit_is_converted_to_a_neutral_record() -> None:
    record = to_record(read_unit(encode_unit(DRAFT, 41, 0, 1, HOST)))
    assert (record.body, record.key, record.headers) == (b"hello", b"k1 k2", (("TAGS", b"A"),))
    assert (record.timestamp_ms, record.offset) == (1_700_000_000_000, 41)


def test_a_record_is_converted_back_to_its_message() -> None:
    record = to_record(read_unit(encode_unit(DRAFT, 41, 0, 1, HOST)))
    back = from_record(record, b"orders", 3, HOST)
    assert read_properties(back.properties) == read_properties(DRAFT.properties)
    assert back._replace(properties=b"") == DRAFT._replace(properties=b"")


def test_a_record_of_another_protocol_gets_this_broker_as_its_born_host() -> None:
    draft = from_record(Record(None, headers=(("a", None), ("b", b"c"))), b"t", 0, HOST)
    assert (draft.born_host, draft.body, draft.properties, draft.flag) == (HOST, b"", b"b\x01c\x02", 0)


def test_a_header_that_cannot_be_a_property_is_refused() -> None:
    with pytest.raises(ValueError, match="separator"):
        from_record(Record(b"x", headers=(("a", b"\x01"),)), b"t", 0, HOST)
