"""A stored message as gRPC clients are shown it, and which kind of message its properties make it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from trimq.formats.unit import COMPRESSED, Unit
from trimq.formats.unit_hosts import offset_message_id, unpack_host
from trimq.formats.unit_letters import TRANSACTIONAL
from trimq.formats.unit_properties import KEYS, TAGS, UNIQUE_KEY, read_properties, split_keys
from trimq.formats.unit_schedule import DELAY, read_time
from trimq.protocols.rocketmq.grpc import wire
from trimq.protocols.rocketmq.grpc.words import DigestType, Encoding, MessageType

MESSAGE_GROUP = "__SHARDINGKEY"
BORN_HOST = "__BORNHOST"
BORN_MS = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
DELIVER_MS = "TIMER_DELIVER_MS"

_MD5, _GZIP, _IDENTITY = int(DigestType.MD5), int(Encoding.GZIP), int(Encoding.IDENTITY)
_DELAYS = frozenset((DELAY, DELIVER_MS, "TIMER_DELAY_SEC", "TIMER_DELAY_MS"))

# What the system says of a message; users neither set these nor see them.
RESERVED = frozenset(
    (
        *(KEYS, TAGS, UNIQUE_KEY, TRANSACTIONAL, BORN_HOST, BORN_MS, TRACE_CONTEXT, *_DELAYS),
        *("WAIT", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "ORIGIN_MESSAGE_ID"),
        *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "MSG_REGION", "TRACE_ON", "CONSUME_START_TIME", "INNER_NUM"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME"),
        *("PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "1ST_POP_TIME", "ORIGIN_GROUP", "__CRC32#"),
        *("TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES"),
        *("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"),
    )
)


def kind_of(properties: Mapping[str, str]) -> MessageType:
    if properties.get(TRANSACTIONAL, "").lower() == "true":
        return MessageType.TRANSACTION
    if not _DELAYS.isdisjoint(properties):
        return MessageType.DELAY
    return MessageType.FIFO if MESSAGE_GROUP in properties else MessageType.NORMAL


def present(unit: Unit, topic: str) -> Any:
    message = wire.Message()
    fill(message, unit, topic)
    return message


def fill(message: Any, unit: Unit, topic: str, handle: str = "", attempt: int = 1) -> None:
    """`handle` is what acknowledges it; `attempt` counts the deliveries so far, this one included. Into a message that
    is where it belongs: protobuf copies what is put there whole."""
    properties = read_properties(unit.properties)
    message.topic.name = topic
    message.body = body = bytes(unit.body)
    for name, value in properties.items():
        if name not in RESERVED:
            message.user_properties[name] = value
    system = message.system_properties
    system.message_id = properties.get(UNIQUE_KEY) or offset_message_id(unit.store_host, unit.position)
    # Clients disagree on how CRC32 is written; MD5 is the one that all of them understand.
    system.body_digest.type = _MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = _GZIP if unit.sys_flag & COMPRESSED else _IDENTITY
    system.message_type = kind_of(properties)
    system.born_host = properties.get(BORN_HOST) or unpack_host(unit.born_host)[0]
    store_host, store_port = unpack_host(unit.store_host)
    system.store_host = f"{store_host}:{store_port}"
    system.queue_id = unit.queue_id
    system.queue_offset = unit.queue_offset
    system.delivery_attempt = attempt
    system.receipt_handle = handle
    if keys := properties.get(KEYS):
        system.keys.extend(split_keys(keys))
    set_ms(system.born_timestamp, unit.born_ms)
    set_ms(system.store_timestamp, unit.store_ms)
    _set_optional(system, properties)


def _set_optional(system: Any, properties: Mapping[str, str]) -> None:
    if tag := properties.get(TAGS):
        system.tag = tag
    if group := properties.get(MESSAGE_GROUP):
        system.message_group = group
    if trace := properties.get(TRACE_CONTEXT):
        system.trace_context = trace
    if due := properties.get(DELIVER_MS):
        set_ms(system.delivery_timestamp, read_time(due))
    if origin := properties.get("DLQ_ORIGIN_TOPIC"):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = properties.get("DLQ_ORIGIN_MESSAGE_ID", "")


def set_ms(field: Any, milliseconds: int) -> None:
    """Of a time or a span."""
    field.seconds, rest = divmod(milliseconds, 1000)
    field.nanos = rest * 1_000_000


def read_ms(field: Any) -> int:
    milliseconds: int = field.seconds * 1000 + field.nanos // 1_000_000
    return milliseconds
