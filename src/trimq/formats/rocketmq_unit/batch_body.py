"""Batch body: several messages in one body, as producers send them. Each becomes a unit; knows no queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from trimq.formats.rocketmq_unit.unit import BadUnit
from trimq.model import Buffer

#   size · magic, unused · crc, unused · flag · body's length
_HEAD = Struct(">iiiii")
_LENGTH = Struct(">h")
_MIN_BYTES = _HEAD.size + _LENGTH.size


class BatchEntry(NamedTuple):
    flag: int
    body: Buffer
    properties: bytes


def read_batch(data: Buffer) -> Iterator[BatchEntry]:
    """Yields the messages of a batch body. Raises BadUnit if it does not consist of whole messages."""
    at = 0
    while at < len(data):
        if len(data) - at < _MIN_BYTES:
            raise BadUnit(f"a batch ends with {len(data) - at} bytes that are not a message")
        size, _, _, flag, body_length = _HEAD.unpack_from(data, at)
        end = at + size
        if size < _MIN_BYTES or end > len(data):
            raise BadUnit(f"a message of {size} bytes in a batch of {len(data)}")
        body_at = at + _HEAD.size
        properties_at = body_at + body_length + _LENGTH.size
        if body_length < 0 or properties_at > end:
            raise BadUnit(f"a body of {body_length} bytes in a message of {size}")
        (properties_length,) = _LENGTH.unpack_from(data, properties_at - _LENGTH.size)
        if properties_length < 0 or properties_at + properties_length != end:
            raise BadUnit(f"properties of {properties_length} bytes in a message of {size}")
        yield BatchEntry(flag, data[body_at : body_at + body_length], bytes(data[properties_at:end]))
        at = end


def write_batch(messages: Iterable[BatchEntry]) -> bytes:
    parts: list[Buffer] = []
    for flag, body, properties in messages:
        size = _MIN_BYTES + len(body) + len(properties)
        parts += (_HEAD.pack(size, 0, 0, flag, len(body)), body, _LENGTH.pack(len(properties)), properties)
    return b"".join(parts)
