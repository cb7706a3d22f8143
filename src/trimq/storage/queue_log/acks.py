"""Format of an acks file: records of the acknowledged messages of one segment, and of failed deliveries. Written
without a sync: a lost record causes a redelivery. Pure: bytes in, bytes out.

| crc u32 | length u32 | version u8 | kind u8 | payload |
                       '- length and checksum -'

Ranges: pairs of u32, the first message (relative to the segment's base) and the number of messages. Attempts: pairs of
u32, message and number of attempts. Bitmap: one bit for each message, lowest first, set when it is acknowledged.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from trimq.formats.checksum import crc32c
from trimq.model import Buffer

VERSION = 1
RANGES, ATTEMPTS, BITMAP = 0, 1, 2

_PREFIX = Struct(">II")
_KIND = Struct(">BB")

_ACKED = b"\1"
_DIGITS = bytes.maketrans(b"\0\1", b"01")


class ReplayedAcks(NamedTuple):
    """`flags` has a byte for each message, 1 if it is acknowledged; `size` is the end of the last complete record.
    `has_unknown_messages`: a record refers to messages beyond the end of the segment."""

    flags: bytearray
    attempts: dict[int, int]
    size: int
    has_unknown_messages: bool


def encode_ranges(messages: Iterable[int]) -> bytes:
    """Returns a record of acknowledged messages, with consecutive ones as one range."""
    pairs = array("I")
    first = previous = -2
    ordered = sorted(set(messages))
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:  # the usual case: one range
        return _frame(RANGES, _to_wire(array("I", (ordered[0], len(ordered)))))
    for message in ordered:
        if message != previous + 1:
            if previous >= 0:
                pairs.extend((first, previous - first + 1))
            first = message
        previous = message
    if previous >= 0:
        pairs.extend((first, previous - first + 1))
    return _frame(RANGES, _to_wire(pairs))


def encode_attempts(attempts: Mapping[int, int]) -> bytes:
    pairs = array("I")
    for message, number in sorted(attempts.items()):
        pairs.extend((message, number))
    return _frame(ATTEMPTS, _to_wire(pairs))


def encode_bitmap(flags: bytes | bytearray) -> bytes:
    """Returns a record of all acknowledged messages, for segments in which the ranges are longer than a bitmap."""
    bits = int(bytes(flags[::-1]).translate(_DIGITS) or b"0", 2)
    return _frame(BITMAP, bits.to_bytes((len(flags) + 7) // 8, "little"))


def replay(data: Buffer, messages: int) -> ReplayedAcks:
    """Reads the acks file of a segment with so many messages, up to the first torn record."""
    flags = bytearray(messages)
    attempts: dict[int, int] = {}
    has_unknown_messages = False
    view = memoryview(data)
    position = 0
    while (found := _read(view, position)) is not None:
        kind, payload, position = found
        if kind == RANGES:
            for first, count in _pairs(payload):
                end = min(first + count, messages)
                has_unknown_messages = has_unknown_messages or first + count > messages
                if first < end:
                    flags[first:end] = _ACKED * (end - first)
        elif kind == ATTEMPTS:
            for message, number in _pairs(payload):
                has_unknown_messages = has_unknown_messages or message >= messages
                if message < messages:
                    attempts[message] = number
        elif kind == BITMAP:
            has_unknown_messages = _apply_bitmap(bytes(payload), flags) or has_unknown_messages
    return ReplayedAcks(flags, attempts, position, has_unknown_messages)


def _apply_bitmap(payload: bytes, flags: bytearray) -> bool:
    digits = bin(int.from_bytes(payload, "little"))[:1:-1]  # the lowest bit first
    for message, digit in enumerate(digits[: len(flags)]):
        if digit == "1":
            flags[message] = 1
    return "1" in digits[len(flags) :]


def _frame(kind: int, payload: bytes) -> bytes:
    body = _KIND.pack(VERSION, kind) + payload
    return _PREFIX.pack(crc32c(body), len(body)) + body


def _read(view: memoryview, position: int) -> tuple[int, memoryview, int] | None:
    start = position + _PREFIX.size
    if start > len(view):
        return None
    crc, length = _PREFIX.unpack_from(view, position)
    end = start + length
    if length < _KIND.size or end > len(view):
        return None
    body = view[start:end]
    if crc32c(body) != crc:
        return None
    version, kind = _KIND.unpack_from(body)
    return (kind, body[_KIND.size :], end) if version == VERSION else None


def _to_wire(pairs: array[int]) -> bytes:
    if sys.byteorder == "little":
        pairs.byteswap()
    return pairs.tobytes()


def _pairs(payload: Buffer) -> Sequence[tuple[int, int]]:
    numbers = array("I")
    numbers.frombytes(payload[: len(payload) // 8 * 8])
    if sys.byteorder == "little":
        numbers.byteswap()
    return list(zip(numbers[::2], numbers[1::2], strict=True))
