"""Stored messages in the form of the gRPC API, and the message type that follows from their properties."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trimq.formats.rocketmq_unit.dead_letters import TRANSACTIONAL
from trimq.formats.rocketmq_unit.hosts import offset_message_id, unpack_host
from trimq.formats.rocketmq_unit.properties import KEYS, TAGS, UNIQUE_KEY, read_properties, split_keys
from trimq.formats.rocketmq_unit.schedule import DELAY, parse_time_ms
from trimq.formats.rocketmq_unit.unit import COMPRESSED, Unit
from trimq.model import Buffer
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import DigestType, Encoding, MessageType
from trimq.protocols.rocketmq.grpc.wire.fields import field, text, time_field, varint

MESSAGE_GROUP = "__SHARDINGKEY"
BORN_HOST = "__BORNHOST"
BORN_MS = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
DELIVER_MS = "TIMER_DELIVER_MS"

# Clients disagree on the text form of CRC32; all of them understand MD5.
_DIGEST = b"\x22\x24\x08%c\x12\x20" % DigestType.MD5
_PACKED, _PLAIN = (b"\x28%c" % encoding for encoding in (Encoding.GZIP, Encoding.IDENTITY))
_KINDS = {kind: b"\x30%c" % kind for kind in MessageType}
_NORMAL = _KINDS[MessageType.NORMAL]
_DELAYS = frozenset((DELAY, DELIVER_MS, "TIMER_DELAY_SEC", "TIMER_DELAY_MS"))

# System properties: users neither set nor see them.
RESERVED = frozenset(
    (
        *(KEYS, TAGS, UNIQUE_KEY, TRANSACTIONAL, BORN_HOST, BORN_MS, *_DELAYS),
        *("WAIT", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "ORIGIN_MESSAGE_ID"),
        *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "MSG_REGION", "TRACE_ON", "CONSUME_START_TIME", "INNER_NUM"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME"),
        *("PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "1ST_POP_TIME", "ORIGIN_GROUP", "__CRC32#"),
        *("TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES"),
        *("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"),
    )
)


# System properties that no other field shows. Most messages have only these.
_MEANINGLESS = RESERVED - {TAGS, KEYS, TRANSACTIONAL, "DLQ_ORIGIN_TOPIC", *_DELAYS}


def message_type_of(properties: Mapping[str, str]) -> MessageType:
    if properties.get(TRANSACTIONAL, "").lower() == "true":
        return MessageType.TRANSACTION
    if not _DELAYS.isdisjoint(properties):
        return MessageType.DELAY
    return MessageType.FIFO if MESSAGE_GROUP in properties else MessageType.NORMAL


def to_grpc_message(unit: Unit, topic: str) -> Any:
    return wire.Message.FromString(encode_message(unit, topic))


def encode_message(unit: Unit, topic: str, handle: str = "", attempt: int = 1) -> bytes:
    """Encodes a Message. `handle` is its receipt; `attempt` counts its deliveries, including this one. Writes field by
    field, with the numbers of `declaration`: protobuf takes twice the time for this many fields."""
    properties = read_properties(unit.properties)
    parts: list[Buffer] = [_topic_field(topic)]
    labels = _NORMAL
    if not _MEANINGLESS.issuperset(properties):
        given = [item for item in properties.items() if item[0] not in RESERVED]
        parts += [field(b"\x12", text(b"\x0a", name) + text(b"\x12", value)) for name, value in given]
        labels = _labels(properties)
    system = _system_properties(unit, properties, labels, handle, attempt)
    parts += (b"\x1a", varint(len(system)), system)
    if body := unit.body:
        parts += (b"\x22", varint(len(body)), body)
    return b"".join(parts)


def _system_properties(unit: Unit, properties: Mapping[str, str], labels: bytes, handle: str, attempt: int) -> bytes:
    """Encodes the fields that every message has, and includes `labels`."""
    digest = hashlib.md5(unit.body, usedforsecurity=False).hexdigest().upper()
    parts = (
        text(b"\x1a", properties.get(UNIQUE_KEY) or offset_message_id(unit.store_host, unit.position)),
        _DIGEST,
        digest.encode(),
        _PACKED if unit.sys_flag & COMPRESSED else _PLAIN,
        labels,
        time_field(b"\x3a", unit.born_ms),
        text(b"\x42", properties.get(BORN_HOST) or unpack_host(unit.born_host)[0]),
        time_field(b"\x4a", unit.store_ms),
        _store_host(unit.store_host),
        text(b"\x62", handle) if handle else b"",
        b"\x68" + varint(unit.queue_id) if unit.queue_id else b"",
        b"\x70",
        varint(unit.queue_offset),
        b"\x80\x01",
        varint(attempt),
    )
    return b"".join(parts)


def _labels(properties: Mapping[str, str]) -> bytes:
    """Encodes the message type, and the fields that few messages have."""
    find = properties.get
    parts = (
        text(b"\x0a", tag) if (tag := find(TAGS)) else b"",
        b"".join([text(b"\x12", key) for key in split_keys(keys)]) if (keys := find(KEYS)) else b"",
        _KINDS[message_type_of(properties)],
        time_field(b"\x5a", parse_time_ms(due)) if (due := find(DELIVER_MS)) else b"",
        text(b"\x8a\x01", group) if (group := find(MESSAGE_GROUP)) else b"",
        text(b"\x92\x01", trace) if (trace := find(TRACE_CONTEXT)) else b"",
        _dead_letter(origin, find("DLQ_ORIGIN_MESSAGE_ID", "")) if (origin := find("DLQ_ORIGIN_TOPIC")) else b"",
    )
    return b"".join(parts)


@lru_cache(maxsize=256)
def _topic_field(topic: str) -> bytes:
    return field(b"\x0a", text(b"\x12", topic))


@lru_cache(maxsize=16)
def _store_host(packed: bytes) -> bytes:
    host, port = unpack_host(packed)
    return text(b"\x52", f"{host}:{port}")


def _dead_letter(topic: str, id: str) -> bytes:
    return field(b"\xa2\x01", text(b"\x0a", topic) + (text(b"\x12", id) if id else b""))


def set_ms(field: Any, milliseconds: int) -> None:
    """Sets a Timestamp or Duration."""
    field.seconds, rest = divmod(milliseconds, 1000)
    field.nanos = rest * 1_000_000


def read_ms(field: Any) -> int:
    milliseconds: int = field.seconds * 1000 + field.nanos // 1_000_000
    return milliseconds
