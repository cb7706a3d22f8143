"""Zigzag variable-length integers of Kafka's records: at most 5 bytes for 32 bits, 10 for 64. Knows no record."""

from __future__ import annotations

INT32_LIMIT = 1 << 32
INT64_LIMIT = 1 << 64
_INT64_MASK = INT64_LIMIT - 1

_MAX_INT32_SHIFT = 28
_MAX_INT64_SHIFT = 63


class BadVarint(ValueError):
    """The number is longer, or larger, than its type allows."""


def finish_varint(data: bytes | bytearray, position: int, first: int) -> tuple[int, int]:
    """Returns the raw (still zigzag) 32-bit number whose first byte, with bit 7 set, was read before `position`."""
    byte = data[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    return _finish(data, position, first, _MAX_INT32_SHIFT, INT32_LIMIT)


def finish_varlong(data: bytes | bytearray, position: int, first: int) -> tuple[int, int]:
    """Like `finish_varint`, for a 64-bit number."""
    return _finish(data, position, first, _MAX_INT64_SHIFT, INT64_LIMIT)


def _finish(data: bytes | bytearray, position: int, first: int, max_shift: int, limit: int) -> tuple[int, int]:
    raw = first & 0x7F
    shift = 7
    while shift <= max_shift:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >= limit:
                raise BadVarint(f"a variable-length integer overflows before byte {position}")
            return raw, position
        shift += 7
    raise BadVarint(f"a variable-length integer does not end before byte {position}")


def read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Returns the 32-bit number at `position`, and its end. Raises IndexError if the data ends first."""
    raw = data[position]
    position += 1
    if raw > 0x7F:
        raw, position = finish_varint(data, position, raw)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Returns the 64-bit number at `position`, and its end. Raises IndexError if the data ends first."""
    raw = data[position]
    position += 1
    if raw > 0x7F:
        raw, position = finish_varlong(data, position, raw)
    return (raw >> 1) ^ -(raw & 1), position


def _encode(number: int) -> bytes:
    raw = ((number << 1) ^ (number >> 63)) & _INT64_MASK
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# Lengths, offset deltas and time deltas are nearly always small: a look-up is ten times faster than the loop.
_SMALL = tuple(_encode(number) for number in range(4096))


def encode_varint(number: int) -> bytes:
    """Encodes `number` as 1 to 5 bytes if it fits 32 bits, up to 10 if it fits 64. Raises BadVarint for larger ones."""
    if 0 <= number < 4096:
        return _SMALL[number]
    if not -(1 << 63) <= number < 1 << 63:
        raise BadVarint(f"{number} does not fit 64 bits")
    return _encode(number)
