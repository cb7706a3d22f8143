"""Framing of a table's files: each record has a length, a checksum and a format version. Pure: bytes in, bytes out.

| length u32 | crc32c u32 | format version u8 | payload: msgpack [kind, a, b] |
                          '------- length and checksum cover these ----------'
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from trimq.formats.checksum import crc32c
from trimq.model import Buffer

VERSION = 1

PUT = 0  # key, value
DELETE = 1  # key, nil
HEADER = 2  # in a snapshot: generation, count; in a log: generation, size of the log before it
END = 3  # of a snapshot: generation, count
SYNCED = 4  # in a log: this many of its bytes, and the log that it continues, were on disk when this was written; nil

_PREFIX = struct.Struct(">II")
_VERSION_BYTE = bytes([VERSION])
# Every record of this version has these bytes after its prefix: the version and the msgpack head of a 3-element array.
_LANDMARK = _VERSION_BYTE + b"\x93"
_MIN_LENGTH = len(_LANDMARK) + 1

_encode = msgspec.msgpack.Encoder().encode


class RecordFrame(NamedTuple):
    """One whole record with a valid checksum."""

    position: int
    end: int
    version: int
    payload: memoryview


def encode_record(kind: int, first: object, second: object) -> bytes:
    """Returns one record, ready to be written. Raises TypeError if msgpack cannot encode a value."""
    body = _VERSION_BYTE + _encode((kind, first, second))
    return _PREFIX.pack(len(body), crc32c(body)) + body


def encode_records(kind: int, keys: Iterable[str], second: object) -> list[bytes]:
    """Like `encode_record`, one record per key."""
    begin, rest = _LANDMARK + _encode(kind), _encode(second)
    bodies = [b"%b%b%b" % (begin, _encode(key), rest) for key in keys]
    return [_PREFIX.pack(len(body), crc32c(body)) + body for body in bodies]


def read_frame(data: memoryview, position: int) -> RecordFrame | None:
    """Returns the record at `position`, or None if there is no whole record."""
    start = position + _PREFIX.size
    if start > len(data):
        return None
    length, checksum = _PREFIX.unpack_from(data, position)
    end = start + length
    if length < _MIN_LENGTH or end > len(data):
        return None
    body = data[start:end]
    if crc32c(body) != checksum:
        return None
    return RecordFrame(position, end, body[0], body[1:])


def iterate_frames(data: Buffer) -> Iterator[RecordFrame]:
    """Yields the whole records from the beginning on; ends at the first bytes that are not a whole record."""
    view = memoryview(data)
    position = 0
    while (frame := read_frame(view, position)) is not None:
        yield frame
        position = frame.end


def frames_after(data: bytes, position: int) -> Iterator[RecordFrame]:
    """Yields whole records that start anywhere after `position`, where no whole record starts."""
    view = memoryview(data)
    at = data.find(_LANDMARK, position + 1 + _PREFIX.size)
    while at >= 0:
        frame = read_frame(view, at - _PREFIX.size)
        if frame is not None:
            yield frame
        at = data.find(_LANDMARK, at + 1 if frame is None else frame.end + _PREFIX.size)
