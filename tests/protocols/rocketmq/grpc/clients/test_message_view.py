"""Encoding of a stored message: the same bytes as protobuf writes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.rocketmq_unit.hosts import offset_message_id, pack_host, unpack_host
from trimq.formats.rocketmq_unit.properties import read_properties, split_keys, write_properties
from trimq.formats.rocketmq_unit.schedule import parse_time_ms
from trimq.formats.rocketmq_unit.unit import COMPRESSED, Unit
from trimq.protocols.rocketmq.grpc.clients.message_view import (
    RESERVED,
    encode_message,
    message_type_of,
    set_ms,
    to_grpc_message,
)
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import DigestType, Encoding
from trimq.protocols.rocketmq.grpc.wire.fields import varint

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
    """The message built with protobuf's own classes."""
    properties = read_properties(unit.properties)
    message = wire.Message(topic=wire.Resource(name=topic), body=bytes(unit.body))
    for name in properties.keys() - RESERVED:
        message.user_properties[name] = properties[name]
    system = message.system_properties
    system.message_id = properties.get("UNIQ_KEY") or offset_message_id(unit.store_host, unit.position)
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(unit.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoding.GZIP if unit.sys_flag & COMPRESSED else Encoding.IDENTITY
    system.message_type = message_type_of(properties)
    system.born_host = properties.get("__BORNHOST") or unpack_host(unit.born_host)[0]
    system.store_host = "{}:{}".format(*unpack_host(unit.store_host))
    system.queue_id, system.queue_offset = unit.queue_id, unit.queue_offset
    system.delivery_attempt = attempt
    if handle:
        system.receipt_handle = handle
    system.keys.extend(split_keys(properties.get("KEYS", "")))
    set_ms(system.born_timestamp, unit.born_ms)
    set_ms(system.store_timestamp, unit.store_ms)
    for name, field in (("TAGS", "tag"), ("__SHARDINGKEY", "message_group"), ("TRACE_CONTEXT", "trace_context")):
        if name in properties:
            setattr(system, field, properties[name])
    if due := properties.get("TIMER_DELIVER_MS"):
        set_ms(system.delivery_timestamp, parse_time_ms(due))
    if origin := properties.get("DLQ_ORIGIN_TOPIC"):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = properties.get("DLQ_ORIGIN_MESSAGE_ID", "")
    return message


@given(units(), TEXT, st.text(max_size=150), NUMBERS)
def test_a_message_has_the_same_content_as_with_protobuf(unit: Unit, topic: str, handle: str, attempt: int) -> None:
    written = encode_message(unit, topic, handle, attempt)
    expected = filled(unit, topic, handle, attempt)
    assert wire.Message.FromString(written) == expected
    assert len(written) == expected.ByteSize()
    assert to_grpc_message(unit, topic) == filled(unit, topic, "", 1)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31 - 1, 2**63 - 1, -1, -(2**63)])
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    expected = wire.SendResultEntry(offset=number).SerializeToString()[1:]
    assert varint(number) == (expected or b"\0")
