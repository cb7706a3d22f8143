"""Protobuf wire format of single fields: tag (field number and wire type), then the value. For the most frequent
messages; must not know any message."""

from __future__ import annotations

from functools import lru_cache

_SMALL = tuple(bytes((number,)) for number in range(0x80))
_WORD = (1 << 64) - 1
_MIN_TEXTS = 6  # bytes of two texts of one byte, each after its tag and its length


def varint(number: int) -> bytes:
    """Encodes a varint. A negative number is encoded as its 64-bit two's complement."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    if 0 < number < 0x4000:
        return b"%c%c" % (number & 0x7F | 0x80, number >> 7)
    number &= _WORD
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def field(tag: bytes, raw: bytes) -> bytes:
    """Encodes a field of bytes or of a message."""
    size = len(raw)
    return b"%b%c%b" % (tag, size, raw) if size < 0x80 else b"%b%b%b" % (tag, varint(size), raw)


def text(tag: bytes, value: str) -> bytes:
    raw = value.encode()
    size = len(raw)
    return b"%b%c%b" % (tag, size, raw) if size < 0x80 else b"%b%b%b" % (tag, varint(size), raw)


@lru_cache(maxsize=1024)
def time_field(tag: bytes, milliseconds: int) -> bytes:
    """Encodes a Timestamp or Duration. Cached, since messages that were stored together have the same time."""
    seconds, rest = divmod(milliseconds, 1000)
    raw = b"\x08" + varint(seconds) if seconds else b""
    return field(tag, raw + b"\x10" + varint(rest * 1_000_000) if rest else raw)


def read_texts(raw: bytes, at: int, outer: bytes, first: bytes, second: bytes) -> tuple[bytes, str, str] | None:
    """Reads the field with tag `outer` at `at`: the last field of its message, with two texts of tags `first` and
    `second`. Returns its bytes and both texts. Returns None if there is any other field, or a text is empty, longer
    than 127 bytes or not ASCII."""
    begin = at + 2
    if raw[at : at + 1] != outer or len(raw) - begin < _MIN_TEXTS:
        return None
    size = raw[at + 1]
    if size >= 0x80:  # a length of two bytes; one of three would exceed the bytes that follow
        size += (raw[begin] - 1) << 7
        begin += 1
    inside = raw[begin:]
    if len(inside) != size or not inside.isascii() or inside[:1] != first:
        return None
    middle = 2 + inside[1]
    end = middle + 2
    if middle == 2 or end >= size or inside[middle : middle + 1] != second or inside[middle + 1] != size - end:
        return None
    return inside, inside[2:middle].decode(), inside[end:].decode()
