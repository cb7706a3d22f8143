"""Fields of protobuf's messages as they are written: one behind the other, each behind its tag, which is the number of
the field and the kind of its value. For what is written most often; knows no message."""

from __future__ import annotations

from functools import lru_cache

_SMALL = tuple(bytes((number,)) for number in range(0x80))
_WORD = (1 << 64) - 1


def varint(number: int) -> bytes:
    """A number. A negative one is written as the one of 64 bits that has its bits."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    number &= _WORD
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def field(tag: bytes, raw: bytes) -> bytes:
    """Bytes, or a message."""
    size = len(raw)
    return b"%b%c%b" % (tag, size, raw) if size < 0x80 else b"%b%b%b" % (tag, varint(size), raw)


def text(tag: bytes, value: str) -> bytes:
    raw = value.encode()
    size = len(raw)
    return b"%b%c%b" % (tag, size, raw) if size < 0x80 else b"%b%b%b" % (tag, varint(size), raw)


@lru_cache(maxsize=1024)
def time_field(tag: bytes, milliseconds: int) -> bytes:
    """A moment or a span, of seconds and nanoseconds. Messages that were stored together share theirs."""
    seconds, rest = divmod(milliseconds, 1000)
    raw = b"\x08" + varint(seconds) if seconds else b""
    return field(tag, raw + b"\x10" + varint(rest * 1_000_000) if rest else raw)
