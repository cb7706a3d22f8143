"""Stored form of one AMQP content: exchange and routing key, properties as sent, body. Knows bytes; the queue and the
consumers of the message are kept elsewhere.

| crc u32 | length u32 | version u8 | flags u8 | exchange u8 | key u8 | header u32 |
| offset u64 | published i64 | expires i64 |
| exchange | key | header: property flags and list, raw | body |

`length` counts the bytes after it; exchange, key and header in the head are lengths; times are milliseconds, -1 is
never. The checksum covers the contents first and then the head after `length`, so that it is computed once for a
content that is stored in many queues.

A body shared by several queues is replaced by a reference: | blob u64 | bytes u64 |.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from trimq.errors import InvalidRecords
from trimq.formats.amqp_content.field_tables import BadField, FieldTable, Value
from trimq.formats.amqp_content.private_headers import failed_deliveries, without_private_headers
from trimq.formats.amqp_content.property_list import EMPTY, read_headers, write_properties
from trimq.formats.checksum import crc32c
from trimq.model import Buffer, Headers, Record

VERSION = 1
NEVER = -1

TRANSIENT = 1  # dropped at a restart
REDELIVERED = 2  # a delivery failed in another queue
SHARED = 4  # the body is a reference
DEAD_LETTER = 8  # the broker wrote `x-death`; in a message without this flag, a client wrote it
PRIVATE_HEADERS = 16  # the headers contain some of `private_headers.NAMES`
FOOTER = 128  # end of a sealed segment, not a content

NO_BLOB = -1

_PREFIX = Struct(">II")
_REST = Struct(">BBBBIQqq")
_pack_prefix, _pack_rest = _PREFIX.pack, _REST.pack
HEAD_BYTES = _PREFIX.size + _REST.size
MAX_RECORD_BYTES = (1 << 32) - 1

_REFERENCE = Struct(">QQ")
REFERENCE_BYTES = _REFERENCE.size

_NO_BODY = SHARED | FOOTER

# Longer bodies are not copied into one buffer with their names.
_JOIN_BELOW = 4096

_new_tuple = tuple.__new__  # takes half the time of the NamedTuple's constructor


class Content(NamedTuple):
    """AMQP content. Names are raw UTF-8; `header` is the property flags and list in wire format."""

    exchange: bytes
    key: bytes
    header: bytes
    body: bytes
    published_ms: int


class EncodedContent(NamedTuple):
    """A content encoded for any number of logs. `blob`: location of its body, if not in `parts`."""

    content: Content
    parts: tuple[bytes, ...]
    size: int
    crc: int
    blob: int = NO_BLOB


class StoredContent(NamedTuple):
    """A stored content with its offset. `expires_ms` is NEVER if it does not expire."""

    offset: int
    flags: int
    expires_ms: int
    content: Content

    @property
    def is_transient(self) -> bool:
        return self.flags & TRANSIENT != 0

    @property
    def is_dead_letter(self) -> bool:
        return self.flags & DEAD_LETTER != 0

    @property
    def failed_elsewhere(self) -> int:
        """Number of failed deliveries in the queues from which the message was dead-lettered."""
        if not self.flags & REDELIVERED:
            return 0
        return failed_deliveries(self.content.header) if self.flags & PRIVATE_HEADERS else 1


class RecordHead(NamedTuple):
    """Fields of a record that a scan needs without its contents. `end` is the beginning of the next record; `blob` is
    the location of a shared body."""

    offset: int
    flags: int
    expires_ms: int
    published_ms: int
    body_bytes: int
    end: int
    blob: int = NO_BLOB
    property_bytes: int = 0


def encode_content(content: Content) -> EncodedContent:
    """Encodes the parts that are the same in every queue."""
    exchange, key, header, body, _ = content
    names = exchange + key + header
    if len(body) < _JOIN_BELOW:
        joined = names + body
        return _new_tuple(EncodedContent, (content, (joined,), len(joined), crc32c(joined), NO_BLOB))
    return EncodedContent(content, (names, body), len(names) + len(body), crc32c(body, crc32c(names)))


def encode_reference(content: Content, blob: int) -> EncodedContent:
    """Like `encode_content`, for a content whose body is stored in a blob."""
    exchange, key, header, body, _ = content
    joined = exchange + key + header + _REFERENCE.pack(blob, len(body))
    return EncodedContent(content, (joined,), len(joined), crc32c(joined), blob)


def encode_head(sealed: EncodedContent, offset: int, expires_ms: int, flags: int) -> bytes:
    """Returns the head to store before the parts of `sealed` in one log."""
    content, _, size, crc, _ = sealed
    rest = _REST.pack(
        VERSION,
        flags,
        len(content.exchange),
        len(content.key),
        len(content.header),
        offset,
        content.published_ms,
        expires_ms,
    )
    return _PREFIX.pack(crc32c(rest, crc), len(rest) + size) + rest


def encode_all(contents: Sequence[Content], offset: int, expires_ms: int, flags: int) -> list[bytes]:
    """Returns the whole records of contents stored one after the other, the first with this offset."""
    records: list[bytes] = []
    known: tuple[bytes, ...] = ()
    for exchange, key, header, body, published_ms in contents:
        if (exchange, key, header) != known:  # usually the same for all
            known = (exchange, key, header)
            names = exchange + key + header
            names_crc, names_size = crc32c(names), _REST.size + len(names)
            lengths = (len(exchange), len(key), len(header))
        rest = _pack_rest(VERSION, flags, *lengths, offset, published_ms, expires_ms)
        crc = crc32c(rest, crc32c(body, names_crc))
        records.append(_pack_prefix(crc, names_size + len(body)) + rest + names + body)
        offset += 1
    return records


def encode(sealed: EncodedContent, offset: int, expires_ms: int = NEVER, flags: int = 0) -> bytes:
    """Returns the whole record."""
    return b"".join((encode_head(sealed, offset, expires_ms, flags), *sealed.parts))


def read_head(data: Buffer, position: int) -> RecordHead | None:
    """Returns the head of the record at `position`, or None if there is no whole record. Does not check the
    checksum."""
    start = position + _PREFIX.size
    if position + HEAD_BYTES > len(data):
        return None
    length = _PREFIX.unpack_from(data, position)[1]
    end = start + length
    if end > len(data) or length < _REST.size:
        return None
    version, flags, exchange, key, header, offset, published_ms, expires_ms = _REST.unpack_from(data, start)
    body_bytes = length - _REST.size - exchange - key - header
    if version != VERSION or body_bytes < 0:
        return None
    if flags & _NO_BODY == SHARED and body_bytes == REFERENCE_BYTES:
        blob, body_bytes = _REFERENCE.unpack_from(data, end - REFERENCE_BYTES)
        return RecordHead(offset, flags, expires_ms, published_ms, body_bytes, end, blob, header)
    return RecordHead(offset, flags, expires_ms, published_ms, body_bytes, end, NO_BLOB, header)


def record_bytes(data: Buffer, position: int) -> int:
    """Returns the size that the record claims, for which only the prefix must be present; 0 if it is not."""
    if position + _PREFIX.size > len(data):
        return 0
    return _PREFIX.size + int(_PREFIX.unpack_from(data, position)[1])


def is_whole(data: Buffer, position: int, head: RecordHead) -> bool:
    """Returns whether the checksum of the record at `position`, which has this head, matches."""
    view = memoryview(data)
    contents = position + HEAD_BYTES
    crc = crc32c(view[contents : head.end])
    expected: int = _PREFIX.unpack_from(data, position)[0]
    return crc32c(view[position + _PREFIX.size : contents], crc) == expected


def check_record(data: Buffer, position: int) -> RecordHead | None:
    """Returns the head of the record at `position`, or None if there is no whole record or it is damaged."""
    head = read_head(data, position)
    return head if head is not None and is_whole(data, position, head) else None


def read_stored(data: Buffer, position: int) -> tuple[StoredContent, int] | None:
    """Returns the content at `position`, and the beginning of the next record; None if there is no whole one. Copies
    the bytes. The body of a SHARED content is its reference."""
    head = check_record(data, position)
    if head is None:
        return None
    _, _, exchange, key, header, _, published_ms, _ = _REST.unpack_from(data, position + _PREFIX.size)
    at = position + HEAD_BYTES
    names_end = at + exchange + key + header
    names = bytes(data[at:names_end])
    content = Content(
        names[:exchange],
        names[exchange : exchange + key],
        names[exchange + key :],
        bytes(data[names_end : head.end]),
        published_ms,
    )
    return StoredContent(head.offset, head.flags, head.expires_ms, content), head.end


def iterate_heads(data: Buffer, position: int = 0) -> Iterator[tuple[int, RecordHead]]:
    """Yields positions and heads of the whole records from `position` on; ends at the first bytes that are not a
    record."""
    while (head := check_record(data, position)) is not None:
        yield position, head
        position = head.end


def blob_of(stored: StoredContent) -> int:
    """Returns the blob with the body of a SHARED content. Raises InvalidRecords if there is no reference."""
    if len(stored.content.body) != REFERENCE_BYTES:
        raise InvalidRecords("a reference to a shared body is damaged")
    blob: int = _REFERENCE.unpack(stored.content.body)[0]
    return blob


# -- footers: the last record of a sealed segment, preceded by the references of its messages, if any

_FOOTER = Struct(">IIIqqQqqq")
FOOTER_BYTES = HEAD_BYTES + _FOOTER.size
_ENTRY = Struct(">IQ")


class Footer(NamedTuple):
    """Summary of a segment, which saves a restart the scan. Times are NEVER if no record has one. `shared`: the number
    of bodies in blobs."""

    records: int
    transient: int
    shared: int
    first: int
    last: int
    body_bytes: int
    earliest_expiry_ms: int
    oldest_ms: int
    newest_ms: int


def encode_footer(footer: Footer) -> bytes:
    contents = Content(b"", b"", b"", _FOOTER.pack(*footer), NEVER)
    return encode(encode_content(contents), footer.last + 1, NEVER, FOOTER)


def read_footer(data: Buffer) -> Footer | None:
    """Returns the footer from the last FOOTER_BYTES of a segment, or None if it has none."""
    found = read_stored(data, 0)
    if found is None or found[1] != len(data) or found[0].flags != FOOTER:
        return None
    body = found[0].content.body
    return Footer(*_FOOTER.unpack(body)) if len(body) == _FOOTER.size else None


def encode_references(references: Iterable[tuple[int, int]], offset: int) -> bytes:
    """Encodes pairs of a message number in the segment and its blob."""
    body = b"".join(_ENTRY.pack(message, blob) for message, blob in references)
    return encode(encode_content(Content(b"", b"", b"", body, NEVER)), offset, NEVER, FOOTER | SHARED)


def references_bytes(shared: int) -> int:
    """Returns the size of the record for that many references."""
    return HEAD_BYTES + shared * _ENTRY.size if shared else 0


def read_references(data: Buffer) -> list[tuple[int, int]] | None:
    """Returns the references, or None if these bytes are not a valid record of references."""
    found = read_stored(data, 0)
    if found is None or found[1] != len(data) or found[0].flags != FOOTER | SHARED:
        return None
    body = found[0].content.body
    return list(_ENTRY.iter_unpack(body)) if len(body) % _ENTRY.size == 0 else None


# -- conversion to and from the protocol-neutral record

_EXCHANGE, _KEY, _HEADER = "amqp.exchange", "amqp.routing-key", "amqp.properties"


def to_record(content: Content, offset: int = -1) -> Record:
    """Converts without loss: fields that only AMQP has are in the extras. Leaves out private headers."""
    header = without_private_headers(content.header)
    extras: dict[str, str | int | bytes] = {
        _EXCHANGE: content.exchange,
        _KEY: content.key,
        _HEADER: header,
    }
    headers: Headers = ()
    with suppress(BadField):  # unreadable headers are still in the extras
        headers = tuple((name, _to_bytes(value)) for name, value in read_headers(header).items())
    return Record(content.body, None, headers, content.published_ms, offset, extras)


def from_record(record: Record) -> Content:
    """Restores the content that `to_record` converted; otherwise builds one from body and headers."""
    header = record.extras.get(_HEADER)
    exchange, key = record.extras.get(_EXCHANGE, b""), record.extras.get(_KEY, b"")
    if header is None:
        table: FieldTable = dict(record.headers)
        try:
            header = write_properties(headers=table) if table else EMPTY
        except BadField as error:
            raise InvalidRecords(str(error)) from error
    if not isinstance(header, bytes) or not isinstance(exchange, bytes) or not isinstance(key, bytes):
        raise InvalidRecords("the extras of this record do not describe an AMQP content")
    return Content(exchange, key, header, record.body or b"", record.timestamp_ms)


def _to_bytes(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return None if value is None else bytes(value)  # its subclasses are specific to AMQP
    return str(value).encode("utf-8")
