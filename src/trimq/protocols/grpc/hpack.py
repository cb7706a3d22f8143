"""Header blocks of HTTP/2 (RFC 7541): read with the table that a connection's blocks share, written without one. Knows
names and values, not what they mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from trimq.protocols.grpc import huffman
from trimq.protocols.grpc.frames import BrokenConnection, Fault

Field = tuple[str, str]

TABLE_BYTES = 4096
FORGET_TABLE = b"\x20"  # in front of a block: its table has no room from now on

_FIELD_BYTES = 32  # what each is counted for, besides its text
_MOST_KNOWN = 64  # blocks
_LONGEST_KNOWN = 1024
_MOST_SHIFT = 28

_NAMES = """
accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
content-disposition content-encoding content-language content-length content-location content-range content-type cookie
date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified
link location max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie
strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""
_STATIC: tuple[Field, ...] = (
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    *((":status", status) for status in ("200", "204", "206", "304", "400", "404", "500")),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    *((name, "") for name in _NAMES.split()),
)
_FIRST_DYNAMIC = len(_STATIC) + 1


class HeaderBlock:
    """What a block says. `meaning` is for whoever reads it: a block that comes again need not be read again. `size` is
    that of the fields that were kept, as HTTP/2 counts it."""

    __slots__ = ("fields", "is_too_long", "meaning", "size")

    def __init__(self, fields: tuple[Field, ...], is_too_long: bool, size: int = 0) -> None:
        self.fields = fields
        self.is_too_long = is_too_long
        self.size = size
        self.meaning: Any = None


class HeaderDecoder:
    """Of one connection. Fields beyond `most_bytes`, counted as the peer is told to count them, are read and dropped:
    what comes later depends on the table."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._table: deque[Field] = deque()  # the newest is the last
        self._table_bytes = 0
        self._table_limit = TABLE_BYTES
        # Blocks that were read since the table changed.
        self._known: dict[bytes, HeaderBlock] = {}
        self._has_changed = False

    def decode(self, block: bytes) -> HeaderBlock:
        """BrokenConnection: the bytes are no block."""
        found = self._known.get(block)
        if found is not None:
            return found
        self._has_changed = False
        try:
            found = self._read(block)
        except IndexError:
            raise _broken("a header block ends too early") from None
        except huffman.BadHuffman as error:
            raise _broken(str(error)) from None
        if self._has_changed:
            self._known.clear()  # the same bytes may mean something else now
        elif len(self._known) < _MOST_KNOWN and len(block) <= _LONGEST_KNOWN:
            self._known[block] = found
        return found

    def _read(self, block: bytes) -> HeaderBlock:
        fields: list[Field] = []
        at, size, end, most = 0, 0, len(block), self._most_bytes
        while at < end:
            first = block[at]
            if 0x80 < first < 0xFF:  # nearly all: a number in one byte
                field = self._find(first & 0x7F)
                at += 1
            elif first >= 0x80:
                index, at = _read_number(block, at, 0x7F)
                field = self._find(index)
            elif first >= 0x40:
                field, at = self._read_literal(block, at, 0x3F)
                self._remember(field)
            elif first >= 0x20:
                limit, at = _read_number(block, at, 0x1F)
                if size or limit > TABLE_BYTES:
                    raise _broken("the size of the header table is set where it cannot be, or to more than it may be")
                self._limit_table(limit)
                continue
            else:
                field, at = self._read_literal(block, at, 0x0F)
            size += len(field[0]) + len(field[1]) + _FIELD_BYTES
            if size <= most:
                fields.append(field)
        return HeaderBlock(tuple(fields), size > most, min(size, most))

    def _find(self, index: int) -> Field:
        if 0 < index < _FIRST_DYNAMIC:
            return _STATIC[index - 1]
        if not 0 <= index - _FIRST_DYNAMIC < len(self._table):
            raise _broken(f"no header has the number {index}")
        return self._table[_FIRST_DYNAMIC - index - 1]

    def _read_literal(self, block: bytes, at: int, mask: int) -> tuple[Field, int]:
        index, at = _read_number(block, at, mask)
        if index:
            name = self._find(index)[0]
        else:
            name, at = _read_text(block, at)
        value, at = _read_text(block, at)
        return (name, value), at

    def _remember(self, field: Field) -> None:
        self._has_changed = True
        self._table.append(field)
        self._table_bytes += _size(field)
        self._make_room()

    def _limit_table(self, limit: int) -> None:
        self._has_changed = True
        self._table_limit = limit
        self._make_room()

    def _make_room(self) -> None:
        while self._table_bytes > self._table_limit:
            self._table_bytes -= _size(self._table.popleft())


def _broken(reason: str) -> BrokenConnection:
    return BrokenConnection(Fault.COMPRESSION_ERROR, reason)


def _size(field: Field) -> int:
    return len(field[0]) + len(field[1]) + _FIELD_BYTES


def _read_number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > _MOST_SHIFT:
            raise _broken("a number in a header block is too large")


def _read_text(block: bytes, at: int) -> tuple[str, int]:
    length = block[at]
    if length < 0x7F and at + length < len(block):  # short, and as it is
        at += 1
        return block[at : at + length].decode("latin-1"), at + length
    is_packed = length >= 0x80
    length, at = _read_number(block, at, 0x7F)
    finish = at + length
    if finish > len(block):
        raise _broken(f"a header of {length} bytes in a block that has {len(block) - at} left")
    text = block[at:finish]
    return (huffman.decode(text) if is_packed else text).decode("latin-1"), finish


# -- out


def encode(fields: Iterable[tuple[str, bytes]]) -> bytes:
    """A block that leaves the peer's table as it is."""
    return b"".join(b"\x00" + _text(name.encode()) + _text(value) for name, value in fields)


def _text(text: bytes) -> bytes:
    return _number(len(text), 0x7F) + text


def _number(number: int, mask: int) -> bytes:
    if number < mask:
        return bytes((number,))
    found = bytearray((mask,))
    number -= mask
    while number > 0x7F:
        found.append(0x80 | number & 0x7F)
        number >>= 7
    found.append(number)
    return bytes(found)
