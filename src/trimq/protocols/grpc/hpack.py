"""HPACK header blocks (RFC 7541): decodes them with the dynamic table of the connection, encodes without one. Knows
names and values, not their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from trimq.protocols.grpc import huffman
from trimq.protocols.grpc.frames import ErrorCode, Http2ConnectionError

Field = tuple[str, str]

TABLE_BYTES = 4096
USUAL_BYTES = 4096
"""Upper bound of the fields of almost all blocks."""
CLEAR_TABLE = b"\x20"  # prefix of a block: sets the size of the dynamic table to 0

_FIELD_BYTES = 32  # overhead of each field (RFC 7541, 4.1)
_MAX_KNOWN = 64  # blocks
_LONGEST_KNOWN = 1024
_MAX_SHIFT = 28

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

# Bytes from _MARK on are indexed fields; _LONG_MARK starts an index of several bytes.
_MARK, _LONG_MARK = 0x80, 0xFF
_BY_MARK: tuple[Field, ...] = (*[("", "")] * (_MARK + 1), *_STATIC)
_NEWEST = len(_BY_MARK)
_past_marks = re.compile(rb"[\x81-\xfe]+").match
_LONG_TEXT = 0x7F  # from this value on, the length takes several bytes or the string is Huffman-coded
_REMEMBERED = 0x20  # smaller first bytes are literals that are not added to the table


class HeaderBlock(msgspec.Struct):
    """Decoded header block. `parsed` caches the reader's result, for blocks that are repeated. `long_bytes`: size of
    the kept fields as HTTP/2 counts it, if it exceeds `USUAL_BYTES`."""

    fields: tuple[Field, ...]
    is_too_long: bool
    long_bytes: int = 0
    parsed: Any = None


class _Alike(NamedTuple):
    """Pattern of blocks that differ in one literal field outside the table: the bytes before and after it, with their
    fields."""

    begins: bytes
    first: tuple[Field, ...]
    ends: bytes
    last: tuple[Field, ...]


class HeaderDecoder:
    """Decoder of one connection. Decodes and drops fields beyond `max_bytes`, counted as HTTP/2 does: later blocks
    depend on the table."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._small_bytes = min(max_bytes, USUAL_BYTES)
        # By index byte: the static table, then the dynamic table, newest first.
        self._fields = list(_BY_MARK)
        self._longest = _LONGEST_STATIC
        self._table_bytes = 0
        self._table_limit = TABLE_BYTES
        # Blocks decoded since the table changed: after a change the same bytes may mean other fields.
        self._known: dict[bytes, HeaderBlock] = {}
        self._last: tuple[Field, ...] = ()
        self._alike: _Alike | None = None
        self._has_changed = False

    def decode(self, block: bytes) -> HeaderBlock:
        """Decodes a block. Raises Http2ConnectionError if it is malformed."""
        found = self._known.get(block)
        if found is not None:
            return found
        self._has_changed = False
        try:
            fields = self._read_alike(block, self._alike) if self._alike is not None else None
            if fields is not None:
                return self._limited(block, fields)
            fields = tuple(self._read(block))
        except IndexError:
            raise _broken("truncated header block") from None
        except huffman.BadHuffman as error:
            raise _broken(str(error)) from None
        found = self._limited(block, fields)
        if self._has_changed:
            if self._known:
                self._known.clear()
            self._alike, self._last = None, ()
        elif len(block) <= _LONGEST_KNOWN:
            self._learn(block, fields, found)
        return found

    def _learn(self, block: bytes, fields: tuple[Field, ...], found: HeaderBlock) -> None:
        if len(self._known) < _MAX_KNOWN:
            self._known[block] = found
        if len(self._last) == len(fields):
            places = [at for at, field in enumerate(fields) if field != self._last[at]]
            if len(places) == 1:
                self._alike = _find_alike(block, fields, places[0]) or self._alike
        self._last = fields

    def _read_alike(self, block: bytes, alike: _Alike) -> tuple[Field, ...] | None:
        """Fast path of `_read` for a block that differs from earlier ones in one field. Returns None when it does not
        match."""
        begins, first, ends, last = alike
        at = len(begins)
        if len(block) <= at + len(ends) or not block.startswith(begins) or not block.endswith(ends):
            return None
        if block[at] >= _REMEMBERED:
            return None
        field, at = self._read_literal(block, at, 0x0F)
        return (*first, field, *last) if at + len(ends) == len(block) else None

    def _read(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at, end, by_mark = 0, len(block), self._fields
        while at < end:
            first = block[at]
            if _MARK < first < _LONG_MARK:  # almost all: one-byte indexes
                stop = _past_marks(block, at).end()  # type: ignore[union-attr]
                try:
                    fields += [by_mark[mark] for mark in block[at:stop]]
                except IndexError:
                    raise _no_header(max(block[at:stop]) - _MARK) from None
                at = stop
            elif first >= _MARK:
                index, at = _read_number(block, at, 0x7F)
                fields.append(self._find(index))
            elif first >= 0x40:
                field, at = self._read_literal(block, at, 0x3F)
                self._remember(field)
                fields.append(field)
            elif first >= 0x20:
                limit, at = _read_number(block, at, 0x1F)
                if fields or limit > TABLE_BYTES:
                    raise _broken("header table size update is misplaced or exceeds the maximum")
                self._limit_table(limit)
            else:
                field, at = self._read_literal(block, at, 0x0F)
                fields.append(field)
        return fields

    def _limited(self, block: bytes, fields: tuple[Field, ...]) -> HeaderBlock:
        # Upper bound: each field is in the table or in the block, where a character takes at least half a byte.
        if len(fields) * (self._longest + _FIELD_BYTES) + 2 * len(block) <= self._small_bytes:
            return HeaderBlock(fields, False)
        size = 0
        for kept, field in enumerate(fields):
            size += _size(field)
            if size > self._max_bytes:
                return HeaderBlock(fields[:kept], True, self._max_bytes if self._max_bytes > USUAL_BYTES else 0)
        return HeaderBlock(fields, False, size if size > USUAL_BYTES else 0)

    def _find(self, index: int) -> Field:
        if not 0 < index < len(self._fields) - _MARK:
            raise _no_header(index)
        return self._fields[_MARK + index]

    def _read_literal(self, block: bytes, at: int, mask: int) -> tuple[Field, int]:
        index = block[at] & mask
        at += 1
        if index == mask:
            if block[at] < 0x80:  # almost all: the rest of the index in one byte
                index += block[at]
                at += 1
            else:
                index, at = _read_number(block, at - 1, mask)
        if index:
            name = self._find(index)[0]
        else:
            name, at = _read_text(block, at)
        begin = at + 1
        finish = begin + block[at]
        if finish < begin + _LONG_TEXT and finish <= len(block):  # `_read_text` inlined for short plain values
            return (name, block[begin:finish].decode("latin-1")), finish
        value, at = _read_text(block, at)
        return (name, value), at

    def _remember(self, field: Field) -> None:
        name, value = field
        size = len(name) + len(value) + _FIELD_BYTES
        if size > self._longest:
            self._longest = size
        fields = self._fields
        fields.insert(_NEWEST, field)
        size += self._table_bytes
        limit = self._table_limit
        while size > limit:
            name, value = fields.pop()
            size -= len(name) + len(value) + _FIELD_BYTES
        self._table_bytes = size
        self._has_changed = True

    def _limit_table(self, limit: int) -> None:
        self._has_changed = True
        self._table_limit = limit
        while self._table_bytes > limit:
            self._table_bytes -= _size(self._fields.pop())


def _no_header(index: int) -> Http2ConnectionError:
    return _broken(f"invalid header index {index}")


def _broken(reason: str) -> Http2ConnectionError:
    return Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, reason)


def _size(field: Field) -> int:
    return len(field[0]) + len(field[1]) + _FIELD_BYTES


_LONGEST_STATIC = max(map(_size, _STATIC))


def _find_alike(block: bytes, fields: tuple[Field, ...], place: int) -> _Alike | None:
    """Returns the pattern of blocks that differ from this one only in the field at `place`. The block must not change
    the table. Returns None if that field is not a literal outside the table."""
    starts = []
    at = 0
    while at < len(block):
        starts.append(at)
        if block[at] >= _MARK:
            _, at = _read_number(block, at, 0x7F)
        else:
            at = _past_literal(block, at)
    starts.append(at)
    begin, finish = starts[place : place + 2]
    if block[begin] >= _REMEMBERED:
        return None
    return _Alike(block[:begin], fields[:place], block[finish:], fields[place + 1 :])


def _past_literal(block: bytes, at: int) -> int:
    index, at = _read_number(block, at, 0x0F)
    if not index:
        _, at = _read_text(block, at)
    return _read_text(block, at)[1]


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
        if shift > _MAX_SHIFT:
            raise _broken("integer in a header block is too large")


def _read_text(block: bytes, at: int) -> tuple[str, int]:
    length = block[at]
    if length < _LONG_TEXT and at + length < len(block):  # short and not Huffman-coded
        at += 1
        return block[at : at + length].decode("latin-1"), at + length
    is_compressed = length >= 0x80
    length, at = _read_number(block, at, 0x7F)
    finish = at + length
    if finish > len(block):
        raise _broken(f"header string of {length} bytes in a block with {len(block) - at} left")
    text = block[at:finish]
    return (huffman.decode(text) if is_compressed else text).decode("latin-1"), finish


# -- encoding


def encode(fields: Iterable[tuple[str, bytes]]) -> bytes:
    """Encodes a block that does not change the peer's table."""
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
