"""Message unit of RocketMQ's commit log: one message with its place, on disk and as sent to clients. Owns the layout;
knows no log and no queue."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from trimq.model import Buffer

MAGIC = 0xDAA320A7
MAGIC_LONG_TOPIC = 0xDAA320AB  # the topic's length has two bytes
FILLER_MAGIC = 0xCBD43194
FILLER_BYTES = 8

LONGEST_SHORT_TOPIC = 127
LONGEST_TOPIC = 32_767
LONGEST_PROPERTIES = 32_767
LONGEST_SENT_PROPERTIES = LONGEST_PROPERTIES - 512
"""Limit for new messages: leaves room for properties that the broker adds later."""

# Bits of the system flag.
COMPRESSED = 1
MULTI_TAGS = 2
TRANSACTION_PREPARED = 4
TRANSACTION_COMMIT = 8
TRANSACTION_ROLLBACK = 12
TRANSACTION_BITS = 12
BORN_HOST_V6 = 16
STORE_HOST_V6 = 32
_ANY_V6 = BORN_HOST_V6 | STORE_HOST_V6

#   size · magic · body's crc · queue · flag · queue offset · position · system flag · born at · born host ·
#   stored at · store host · reconsume times · prepared at · body's length
_HEADS = {(born, store): Struct(f">iIiiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)}
SHORT_HEAD = _HEADS[8, 8]
_PREFIX = Struct(">iIiiiqqi")  # up to the system flag
_SIZE_AND_MAGIC = Struct(">iI")
_OFFSETS = Struct(">qq")
_LONG = Struct(">q")
_LENGTH = Struct(">h")
_INT = Struct(">i")

QUEUE_OFFSET_AT = 20
BORN_HOST_AT = 48
MIN_BYTES = SHORT_HEAD.size + 1 + 2  # a unit without body, topic and properties

_HOST_V4, _HOST_V6 = 8, 20


class BadUnit(ValueError):
    """The bytes are not a whole unit."""


class BadUnitChecksum(BadUnit):
    """The body does not match its checksum."""


class UnitDraft(NamedTuple):
    """A message without a place. Hosts are an address and a port in the format of `pack_host`."""

    topic: bytes
    queue_id: int
    body: Buffer
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_position: int = 0


class Unit(NamedTuple):
    """A message and its place: `queue_offset` in its queue, `position` in the commit log."""

    size: int
    crc: int
    queue_id: int
    flag: int
    queue_offset: int
    position: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_position: int
    body: Buffer
    topic: bytes
    properties: bytes


def is_queued(sys_flag: int) -> bool:
    """Returns whether a unit is in its queue: half messages and rollback markers are in the log only."""
    return sys_flag & TRANSACTION_BITS in (0, TRANSACTION_COMMIT)


def draft_size(draft: UnitDraft, store_host: bytes) -> int:
    """Returns the size of the unit that a draft will become."""
    head = SHORT_HEAD.size - 2 * _HOST_V4 + len(draft.born_host) + len(store_host)
    topic = len(draft.topic)
    return head + len(draft.body) + topic + (3 if topic <= LONGEST_SHORT_TOPIC else 4) + len(draft.properties)


def encode_unit(draft: UnitDraft, queue_offset: int, position: int, store_ms: int, store_host: bytes) -> bytes:
    """Encodes a draft at its place. The hosts alone determine the IPv6 bits of the system flag."""
    topic, queue_id, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times, prepared = draft
    topic_length = len(topic)
    if topic_length > LONGEST_TOPIC or len(properties) > LONGEST_PROPERTIES:
        raise BadUnit(f"a topic of {topic_length} bytes, properties of {len(properties)}")
    head, born, store = SHORT_HEAD, len(born_host), len(store_host)
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if born != _HOST_V4 or store != _HOST_V4:
        head = _HEADS[born, store]
        sys_flag |= (BORN_HOST_V6 if born == _HOST_V6 else 0) | (STORE_HOST_V6 if store == _HOST_V6 else 0)
    magic, field = topic_field(topic)
    packed = head.pack(
        head.size + len(body) + len(field) + 2 + len(properties),
        magic,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        queue_offset,
        position,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared,
        len(body),
    )
    return b"".join((packed, body, field, _LENGTH.pack(len(properties)), properties))


@lru_cache(maxsize=4096)
def topic_field(topic: bytes) -> tuple[int, bytes]:
    """Returns the magic code for the topic's length, and the topic preceded by its length."""
    if len(topic) <= LONGEST_SHORT_TOPIC:
        return MAGIC, len(topic).to_bytes(1, "big") + topic
    return MAGIC_LONG_TOPIC, _LENGTH.pack(len(topic)) + topic


def stamp_unit(unit: bytearray | memoryview, queue_offset: int, position: int, store_ms: int) -> None:
    """Changes place and store time of a unit."""
    _OFFSETS.pack_into(unit, QUEUE_OFFSET_AT, queue_offset, position)
    (sys_flag,) = _INT.unpack_from(unit, 36)
    born = _HOST_V6 if sys_flag & BORN_HOST_V6 else _HOST_V4
    _LONG.pack_into(unit, BORN_HOST_AT + born, store_ms)


def filler(remaining: int) -> bytes:
    """Returns the filler at the end of a file without room for the next unit. `remaining` counts from here to the
    end."""
    return _SIZE_AND_MAGIC.pack(remaining, FILLER_MAGIC)


def filler_size(data: Buffer, at: int = 0) -> int | None:
    """Returns the number of bytes to skip if there is a filler here, otherwise None."""
    if len(data) - at < FILLER_BYTES:
        return None
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
    return size if magic == FILLER_MAGIC and size >= FILLER_BYTES else None


def unit_size(data: Buffer, at: int = 0) -> int:
    """Returns the size that a unit claims, without checking the rest. Raises BadUnit if no unit begins here or it is
    incomplete."""
    available = len(data) - at
    if available < MIN_BYTES:
        raise BadUnit(f"{available} bytes are too short for a unit")
    size: int
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
    if magic != MAGIC and magic != MAGIC_LONG_TOPIC:
        raise BadUnit(f"{magic:08X} is not the magic code of a unit")
    if not MIN_BYTES <= size <= available:
        raise BadUnit(f"a unit of {size} bytes in {available}")
    return size


def read_unit(data: Buffer, at: int = 0) -> Unit:
    """Returns the unit that begins here; its body is a part of `data`. Raises BadUnit if its lengths do not fit. Does
    not check the checksum. Fast path for short topics and IPv4 hosts; falls back to `_read_any_unit`."""
    if len(data) - at < MIN_BYTES:
        return _read_any_unit(data, at)
    size, magic, *fields, body_length = SHORT_HEAD.unpack_from(data, at)
    body_at, end = at + SHORT_HEAD.size, at + size
    topic_at = body_at + body_length + 1
    if magic != MAGIC or fields[5] & _ANY_V6 or body_length < 0 or not topic_at + 2 <= end <= len(data):
        return _read_any_unit(data, at)
    topic_length = data[topic_at - 1]
    topic_end = topic_at + topic_length
    begin = topic_end + 2  # of the properties
    if topic_length > LONGEST_SHORT_TOPIC or begin > end or _LENGTH.unpack_from(data, topic_end)[0] != end - begin:
        return _read_any_unit(data, at)
    body, topic = data[body_at : topic_at - 1], bytes(data[topic_at:topic_end])
    return Unit._make((size, *fields, body, topic, bytes(data[begin:end])))


def _read_any_unit(data: Buffer, at: int) -> Unit:
    """Like `read_unit`, for long topics and IPv6 hosts too."""
    size = unit_size(data, at)
    magic, sys_flag = _SIZE_AND_MAGIC.unpack_from(data, at)[1], _INT.unpack_from(data, at + 36)[0]
    head = SHORT_HEAD
    if sys_flag & _ANY_V6:
        born = _HOST_V6 if sys_flag & BORN_HOST_V6 else _HOST_V4
        head = _HEADS[born, _HOST_V6 if sys_flag & STORE_HOST_V6 else _HOST_V4]
    end = at + size
    topic_head = 1 if magic == MAGIC else 2
    if size < head.size + topic_head + 2:
        raise BadUnit(f"a unit of {size} bytes has no room for its fields")
    *fields, body_length = head.unpack_from(data, at)
    body_at = at + head.size
    topic_at = body_at + body_length + topic_head
    if body_length < 0 or topic_at + 2 > end:
        raise BadUnit(f"a body of {body_length} bytes in a unit of {size}")
    topic_length = data[topic_at - 1] if topic_head == 1 else _LENGTH.unpack_from(data, topic_at - 2)[0]
    properties_at = topic_at + topic_length + 2
    if not 0 <= topic_length <= (LONGEST_SHORT_TOPIC if topic_head == 1 else LONGEST_TOPIC) or properties_at > end:
        raise BadUnit(f"a topic of {topic_length} bytes in a unit of {size}")
    (properties_length,) = _LENGTH.unpack_from(data, properties_at - 2)
    if properties_length < 0 or properties_at + properties_length != end:
        raise BadUnit(f"properties of {properties_length} bytes in a unit of {size}")
    body = data[body_at : body_at + body_length]
    topic = bytes(data[topic_at : topic_at + topic_length])
    return Unit._make((size, *fields[2:], body, topic, bytes(data[properties_at:end])))


def check_unit(data: Buffer, at: int = 0, position: int | None = None) -> Unit:
    """Like `read_unit`, but also checks the checksum of the body and, if given, the position."""
    unit = read_unit(data, at)
    if zlib.crc32(unit.body) & 0x7FFFFFFF != unit.crc:
        raise BadUnitChecksum("the checksum of the body does not match")
    if position is not None and unit.position != position:
        raise BadUnit(f"a unit with position {unit.position} is at {position}")
    return unit


def iterate_units(data: Buffer) -> Iterator[Unit]:
    """Yields consecutive units, as sent to clients."""
    at = 0
    while at < len(data):
        unit = read_unit(data, at)
        yield unit
        at += unit.size
