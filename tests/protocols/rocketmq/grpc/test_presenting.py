"""A stored message is written as protobuf would write it, whatever it holds."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.unit import COMPRESSED, Unit
from trimq.formats.unit_hosts import offset_message_id, pack_host, unpack_host
from trimq.formats.unit_properties import read_properties, split_keys, write_properties
from trimq.formats.unit_schedule import read_time
from trimq.protocols.rocketmq.grpc import wire
from trimq.protocols.rocketmq.grpc.fields import varint
from trimq.protocols.rocketmq.grpc.presenting import (
    RESERVED,
    _told_alike,
    kind_of,
    present,
    set_ms,
    write_message,
)
from trimq.protocols.rocketmq.grpc.words import DigestType, Encoding

HOSTS = st.sampled_from([pack_host("10.0.0.1", 80), pack_host("::1", 8081)])
TEXT = st.text(st.characters(min_codepoint=3, exclude_categories=("Cs",)), min_size=1, max_size=200)
NAMES = st.one_of(
    st.sampled_from(
        [
            *("TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY", "__BORNHOST", "TRACE_CONTEXT", "TIMER_DELIVER_MS"),
            *("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRAN_MSG", "CLUSTER", "DELAY"),
        ]
    ),
    TEXT,
)
PROPERTIES = st.dictionaries(NAMES, st.one_of(TEXT, st.sampled_from(["true", "1700000000123", "k1 k2"])), max_size=6)
NUMBERS = st.one_of(st.integers(0, 200), st.integers(0, 2**31 - 2))
UNIT = Unit(100, 0, 1, 0, 2, 3, 0, 4, pack_host("::1", 1), 5, pack_host("::1", 1), 0, 0, b"body", b"t", b"")
TIMES = st.one_of(st.integers(0, 2**53), st.integers(-5000, 5000))


@st.composite
def units(draw: st.DrawFn) -> Unit:
    body = draw(st.binary(max_size=300))
    return Unit(
        size=100,
        crc=0,
        queue_id=draw(NUMBERS),
        flag=0,
        queue_offset=draw(st.integers(0, 2**63 - 1)),
        position=draw(st.integers(0, 2**60)),
        sys_flag=draw(st.sampled_from([0, COMPRESSED, 8])),
        born_ms=draw(TIMES),
        born_host=draw(HOSTS),
        store_ms=draw(TIMES),
        store_host=draw(HOSTS),
        reconsume_times=0,
        prepared_position=0,
        body=draw(st.sampled_from([body, memoryview(body)])),
        topic=b"t",
        properties=write_properties(draw(PROPERTIES)),
    )


def filled(unit: Unit, topic: str, handle: str, attempt: int) -> Any:
    """By protobuf's own means."""
    properties = read_properties(unit.properties)
    message = wire.Message(topic=wire.Resource(name=topic), body=bytes(unit.body))
    for name in properties.keys() - RESERVED:
        message.user_properties[name] = properties[name]
    system = message.system_properties
    system.message_id = properties.get("UNIQ_KEY") or offset_message_id(unit.store_host, unit.position)
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(unit.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoding.GZIP if unit.sys_flag & COMPRESSED else Encoding.IDENTITY
    system.message_type = kind_of(properties)
    system.born_host = properties.get("__BORNHOST") or unpack_host(unit.born_host)[0]
    system.store_host = "{}:{}".format(*unpack_host(unit.store_host))
    system.queue_id, system.queue_offset = unit.queue_id, unit.queue_offset
    system.delivery_attempt, system.receipt_handle = attempt, handle
    system.keys.extend(split_keys(properties.get("KEYS", "")))
    set_ms(system.born_timestamp, unit.born_ms)
    set_ms(system.store_timestamp, unit.store_ms)
    for name, field in (("TAGS", "tag"), ("__SHARDINGKEY", "message_group"), ("TRACE_CONTEXT", "trace_context")):
        if name in properties:
            setattr(system, field, properties[name])
    if due := properties.get("TIMER_DELIVER_MS"):
        set_ms(system.delivery_timestamp, read_time(due))
    if origin := properties.get("DLQ_ORIGIN_TOPIC"):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = properties.get("DLQ_ORIGIN_MESSAGE_ID", "")
    return message


@given(units(), TEXT, st.text(max_size=150), NUMBERS)
def test_a_message_says_what_protobuf_would_have_it_say(unit: Unit, topic: str, handle: str, attempt: int) -> None:
    written = write_message(unit, topic, handle, attempt)
    expected = filled(unit, topic, handle, attempt)
    assert wire.Message.FromString(written) == expected
    assert len(written) == expected.ByteSize()
    assert present(unit, topic) == filled(unit, topic, "", 1)


PIECES = st.sampled_from(
    [
        *(b"UNIQ_KEY\x01", b"XUNIQ_KEY\x01", b"BORN_TIMESTAMP\x01", b"XBORN_TIMESTAMP\x01", b"KEYS\x01", b"TAGS\x01"),
        *(b"__BORNHOST\x01", b"WAIT\x01", b"mine\x01", b"a", b"?", b"17", b"\xc3\xa9", b"\xff", b"\x01"),
        *(b"\x02", b"\x02", b"\x02", b"\x02", b"x" * 300),
    ]
)


@given(units(), st.lists(st.lists(PIECES, max_size=12), min_size=1, max_size=3))
def test_whatever_stands_in_its_properties_and_whatever_came_before_it(unit: Unit, found: list[list[bytes]]) -> None:
    for pieces in found:
        told = unit._replace(properties=b"".join(pieces))
        written = write_message(told, "t", "h", 1)
        expected = filled(told, "t", "h", 1)
        assert wire.Message.FromString(written) == expected
        assert len(written) == expected.ByteSize()


@pytest.mark.parametrize(
    "said",
    [
        "XUNIQ_KEY=a;UNIQ_KEY=b;",
        "UNIQ_KEY=a;XUNIQ_KEY=b;",
        "UNIQ_KEY=a;UNIQ_KEY=b;",
        "UNIQ_KEY=;UNIQ_KEY=b;",
        "UNIQ_KEY=;",
        "UNIQ_KEY=a",
        "XUNIQ_KEY=a;",
        "UNIQ_KEY=a;XBORN_TIMESTAMP=1;",
        "UNIQ_KEY=a;XBORN_TIMESTAMP=1;BORN_TIMESTAMP=2;",
        "UNIQ_KEY=a;BORN_TIMESTAMP=2;XBORN_TIMESTAMP=1;",
        "UNIQ_KEY=a;BORN_TIMESTAMP=2",
        "BORN_TIMESTAMP=2;UNIQ_KEY=a;x=y;",
        "UNIQ_KEY=é;x=y;",
        "UNIQ_KEY=a;KEYS=a b;",
        "UNIQ_KEY=?;BORN_TIMESTAMP=?;",
        "x=UNIQ_KEY=y;UNIQ_KEY=a;",
        "UNIQ_KEY=a;x=BORN_TIMESTAMP=y;",
    ],
)
def test_only_what_is_the_key_is_taken_for_it(said: str) -> None:
    for value in "acb":  # what was made of the first is there for the others
        raw = said.replace("=a", f"={value}").replace("=", "\x01").replace(";", "\x02").encode()
        unit = UNIT._replace(properties=raw)
        assert wire.Message.FromString(write_message(unit, "t", "h", 1)) == filled(unit, "t", "h", 1)


def test_messages_of_one_producer_are_shown_with_their_own_keys_and_times() -> None:
    before = _told_alike.cache_info()
    for number in range(20):
        said = f"UNIQ_KEY\x01ID{number}\x02WAIT\x01true\x02mine\x01a\x02BORN_TIMESTAMP\x01{number}\x02TAGS\x01t\x02"
        shown = present(UNIT._replace(properties=said.encode()), "t")
        assert (shown.system_properties.message_id, shown.system_properties.tag) == (f"ID{number}", "t")
        assert dict(shown.user_properties) == {"mine": "a"}
    assert _told_alike.cache_info().misses - before.misses == 1


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31 - 1, 2**63 - 1, -1, -(2**63)])
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    expected = wire.SendResultEntry(offset=number).SerializeToString()[1:]
    assert varint(number) == (expected or b"\0")
