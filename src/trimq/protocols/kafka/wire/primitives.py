"""Primitives of the wire format, shared by compiled and hand-written code: varints, skipping of unknown tagged fields,
and errors for malformed bytes."""

from __future__ import annotations

from typing import NoReturn

from trimq.errors import ProtocolError
from trimq.model import Buffer

FORMATS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
LONGEST_STRING = 32767
VARINTS = tuple(bytes((value,)) for value in range(128))  # all varints of one byte, the most frequent ones


class MalformedMessage(ProtocolError):
    """The bytes are not a message of their API and version."""


def refuse_elements(field: str) -> NoReturn:
    """Raises for too many elements in all arrays of a message: an element takes far more memory than bytes."""
    raise MalformedMessage(f"{field} and the arrays before it have too many elements")


def refuse_length(field: str, length: int, left: int) -> NoReturn:
    """Raises for a length that is null where null is not allowed, too large, or more than the bytes left."""
    if length < 0:
        raise MalformedMessage(f"{field} must not be null")
    if length <= left:
        raise MalformedMessage(f"{field} has a length of {length}, more than {LONGEST_STRING}")
    raise MalformedMessage(f"{field} claims a length of {length}, but only {left} bytes are left")


def long_varint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Reads an unsigned varint after its first byte, `first`. Returns the value and the position after it.

    As in Apache Kafka it has at most five bytes, and its value is a signed 32-bit integer.
    """
    byte = buffer[position]
    if byte < 128:
        return first & 127 | byte << 7, position + 1
    value = first & 127 | (byte & 127) << 7
    for shift in (14, 21, 28):
        position += 1
        byte = buffer[position]
        if byte < 128:
            value |= byte << shift
            return signed(value) if shift == 28 else value, position + 1
        value |= (byte & 127) << shift
    raise MalformedMessage("a varint has more than five bytes")


def signed(value: int) -> int:
    """Returns the low 32 bits of a value as a signed integer."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Reads an unsigned varint. Returns the value and the position after it."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return long_varint(buffer, position + 1, first)


def skip_tags(buffer: Buffer, position: int, count: int, size: int) -> int:
    """Returns the position after a section of tagged fields. `count` is the first byte of its count, read already."""
    if count > 127:
        count, position = long_varint(buffer, position, count)
    if not 0 <= count * 2 <= size - position:
        refuse_length("the section of tagged fields", count, size - position)
    for _ in range(count):
        _tag, position = read_varint(buffer, position)
        length, position = read_varint(buffer, position)
        if not 0 <= length <= size - position:
            refuse_length("a tagged field", length, size - position)
        position += length
    return position


def varint(value: int) -> bytes:
    """Encodes an unsigned varint."""
    if value < 128:
        return VARINTS[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    return bytes((value & 127 | 128,)) + varint(value >> 7)
