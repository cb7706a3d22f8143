"""Header of a Kafka record batch (format 2): read, check, stamp and walk, without opening the records.

     0  base offset        8     21  attributes          2     51  producer epoch   2
     8  length             4     23  last offset delta   4     53  base sequence    4
    12  leader epoch       4     27  base timestamp      8     57  record count     4
    16  magic              1     35  max timestamp       8     61  records
    17  crc                4     43  producer id         8

The length counts from byte 12, the CRC covers byte 21 to the end: offset and epoch are stamped without touching it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from trimq.formats.checksum import crc32c
from trimq.model import Buffer

HEADER_BYTES = 61
LENGTH_ENDS_AT = 12  # the length counts from here
CRC_FROM = 21
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_MIN_LENGTH = HEADER_BYTES - LENGTH_ENDS_AT
_OLD_MAGICS = (0, 1)
_OLD_MIN_LENGTH = 14  # shortest message of the formats before 2
_SEQUENCES = 1 << 31

_HEADER = struct.Struct(">qiibIhiqqqhii")
PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch: stamped by the broker
_UP_TO_MAGIC = struct.Struct(">qiib")
_WITHOUT_TIMES_AND_SEQUENCE = struct.Struct(">qiibIhi8xqq6xi")
_LENGTH = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC = struct.Struct(">I")
_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__  # skips the overhead of BatchHeader._make


class BadBatch(ValueError):
    """The bytes are not a batch that can be kept or read."""


class TruncatedBatch(BadBatch):
    """The bytes end before the batch does."""


class BadLength(BadBatch):
    """The length is less than that of the shortest batch."""


class BadFraming(BadLength):
    """The length is less than that of any format, so that no batch can follow either."""


class UnsupportedMagic(BadBatch):
    """No version of Kafka has this format."""


class OldMagic(UnsupportedMagic):
    """Formats 0 and 1, from before Kafka 0.11."""


class BadChecksum(BadBatch):
    """The CRC does not match: damaged in transit or on disk."""


class BadCount(BadBatch):
    """The number of records contradicts the offsets, or the records present."""


class BadBaseOffset(BadBatch):
    """A sent batch does not start at 0, or a stored one has a negative offset."""


class SecondBatch(BadBatch):
    """A producer sent more than one batch per stream and request."""


class UnexpectedControl(BadBatch):
    """A producer sent a control batch, which only the broker may write."""


class MissingSequence(BadBatch):
    """A batch with a producer id has no sequence number."""


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return LENGTH_ENDS_AT + self.length

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which the tombstones and markers of this batch may be removed; compaction keeps it in the base
        timestamp."""
        return self.base_timestamp_ms if self.has_delete_horizon else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Last sequence number. Sequences wrap from 2^31 - 1 to 0. Compaction keeps the last offset delta, and thus
        this number."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header, unchecked. Raises TruncatedBatch if fewer than 61 bytes are left."""
    try:
        return _new_tuple(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        raise TruncatedBatch(f"{len(buffer) - position} bytes are left, a batch header has {HEADER_BYTES}") from None


def check(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of a batch whose bytes are complete and undamaged; ignores later bytes."""
    header = check_bounds(buffer, position)
    _check_crc(header, buffer, position)
    return header


def check_stored(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Runs `check`, and the rules for a batch on disk. Compaction leaves fewer records than offsets, or none."""
    header = check(buffer, position)
    if header.base_offset < 0:
        raise BadBaseOffset(f"a stored batch begins at offset {header.base_offset}")
    if not 0 <= header.record_count <= header.last_offset_delta + 1 or header.last_offset_delta < 0:
        raise BadCount(f"{header.record_count} records in {header.last_offset_delta + 1} offsets")
    return header


def check_sent(buffer: Buffer) -> BatchHeader:
    """Runs `check`, and the rules for a producer's batch, in the order in which Kafka reports errors."""
    header = check_alone(buffer)
    check_base_offset(header)
    check_content(buffer, header)
    return header


def check_alone(buffer: Buffer) -> BatchHeader:
    """Returns the header of the only batch in the buffer.

    Like Kafka, ignores bytes after the batch that are too short for another one, and rejects longer ones.
    """
    header = check_bounds(buffer)
    end = LENGTH_ENDS_AT + header.length
    if len(buffer) != end:
        _refuse_second(buffer, end)
    return header


def check_base_offset(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise BadBaseOffset(f"a sent batch begins at offset {header.base_offset}, not 0")


def check_content(buffer: Buffer, header: BatchHeader) -> None:
    """Checks the checksum of a producer's batch, and its fields against each other."""
    if crc32c(memoryview(buffer)[CRC_FROM : LENGTH_ENDS_AT + header.length]) != header.crc:
        _check_crc(header, buffer, 0)  # raises with the details
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise BadCount(f"{header.record_count} records in {header.last_offset_delta + 1} offsets")
    if header.attributes & CONTROL_BIT:
        raise UnexpectedControl("a producer sent a control batch")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise MissingSequence(f"producer {header.producer_id} sent sequence {header.base_sequence}")


def check_bounds(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of a batch whose bytes are complete, damaged or not."""
    try:
        header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        _refuse_short(buffer, position)
    if header.magic != MAGIC or not _MIN_LENGTH <= header.length <= len(buffer) - position - LENGTH_ENDS_AT:
        _refuse_bounds(header.length, header.magic, len(buffer) - position)
    return header


def _check_crc(header: BatchHeader, buffer: Buffer, position: int) -> None:
    crc = crc32c(memoryview(buffer)[position + CRC_FROM : position + LENGTH_ENDS_AT + header.length])
    if crc != header.crc:
        raise BadChecksum(f"the batch header says CRC {header.crc:08x}, but its bytes have {crc:08x}")


def _refuse_short(buffer: Buffer, position: int) -> NoReturn:
    left = len(buffer) - position
    if left >= _UP_TO_MAGIC.size:
        _, length, _, magic = _UP_TO_MAGIC.unpack_from(buffer, position)
        _refuse_bounds(length, magic, left)
    raise TruncatedBatch(f"{left} bytes are left, a batch header has {HEADER_BYTES}")


def _refuse_bounds(length: int, magic: int, left: int) -> NoReturn:
    """Raises the error for these fields, in the order in which Kafka checks them."""
    if length < _OLD_MIN_LENGTH:
        raise BadFraming(f"the batch is too short: length {length}")
    if magic != MAGIC and magic not in _OLD_MAGICS:
        raise UnsupportedMagic(f"unknown batch format {magic}")
    if length > left - LENGTH_ENDS_AT:
        raise TruncatedBatch(f"a batch of {LENGTH_ENDS_AT + length} bytes is truncated: {left} are left")
    if magic != MAGIC:
        raise OldMagic(f"batch format {magic} is no longer supported")
    raise BadLength(f"the batch is too short: length {length}")


def _refuse_second(buffer: Buffer, position: int) -> None:
    left = len(buffer) - position
    if left < _UP_TO_MAGIC.size:
        return
    _, length, _, magic = _UP_TO_MAGIC.unpack_from(buffer, position)
    if length < _OLD_MIN_LENGTH or not 0 <= magic <= MAGIC:
        raise BadLength(f"{left} bytes after the batch are not a batch")
    if length <= left - LENGTH_ENDS_AT:
        raise SecondBatch("a second batch follows the first")


def walk(buffer: Buffer, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each batch between `position` and `end`. Checks bounds and magic, not the CRC.

    A batch that `end` cuts, or bytes that are not a batch, raise after the whole ones before it were yielded.
    """
    view = memoryview(buffer)[:end]
    while position < end:
        header = check_bounds(view, position)
        yield position, header
        position += LENGTH_ENDS_AT + header.length


PlainBatch = tuple[int, int, int, int]
"""Index data of a batch: its last offset, position, size and largest timestamp."""


def walk_plain(view: memoryview, position: int, next_offset: int, end_offset: int, epoch: int) -> Iterator[PlainBatch]:
    """Yields the batches from `position` on that are whole, undamaged and not empty, follow `next_offset` without a
    gap, end before `end_offset`, and have no producer and no leader epoch after `epoch`.

    Fast path of `check_stored` for scanning a whole log, in half the time. Ends silently before the first other batch,
    which the caller checks with `check_stored`.
    """
    unpack, end = _WITHOUT_TIMES_AND_SEQUENCE.unpack_from, len(view)
    while end - position >= HEADER_BYTES:
        base, length, leader_epoch, magic, crc, _, delta, max_timestamp_ms, producer_id, count = unpack(view, position)
        after = position + LENGTH_ENDS_AT + length
        last_offset = base + delta
        if (
            magic != MAGIC
            or not _MIN_LENGTH <= length <= end - position - LENGTH_ENDS_AT
            or base != next_offset
            or last_offset >= end_offset
            or producer_id >= 0
            or leader_epoch > epoch
            or not 0 < count <= delta + 1
            or crc32c(view[position + CRC_FROM : after]) != crc
        ):
            return
        yield last_offset, position, after - position, max_timestamp_ms
        position, next_offset = after, last_offset + 1


def stamp_batch(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Writes offset and epoch of the batch into the buffer. The CRC does not cover these fields."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, leader_epoch)


def stamped_prefix(buffer: Buffer, base_offset: int, leader_epoch: int, position: int = 0) -> bytes:
    """Returns the first 16 bytes as `stamp_batch` would leave them, for a read-only buffer."""
    return PREFIX.pack(base_offset, *_LENGTH.unpack_from(buffer, position + 8), leader_epoch)


def stamped_header(
    buffer: Buffer,
    base_offset: int,
    leader_epoch: int,
    *,
    log_append_time: bool,
    max_timestamp_ms: int,
    position: int = 0,
) -> bytes:
    """Returns the 61 bytes of the header with its offset, epoch and time; recomputes the CRC if needed."""
    old = read_header(buffer, position)
    attributes = old.attributes | LOG_APPEND_TIME_BIT if log_append_time else old.attributes & ~LOG_APPEND_TIME_BIT
    new = old._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    if attributes == old.attributes and max_timestamp_ms == old.max_timestamp_ms:
        return _HEADER.pack(*new)
    new = new._replace(attributes=attributes, max_timestamp_ms=max_timestamp_ms)
    return bytes(_pack_with_crc(new, memoryview(buffer)[position + HEADER_BYTES : position + old.size]))


def stamp_append_time(buffer: bytearray | memoryview, append_time_ms: int, position: int = 0) -> None:
    """Gives every record the broker's time (LogAppendTime). The records' deltas stay; readers ignore them."""
    _stamp_time(buffer, True, append_time_ms, position)


def stamp_create_time(buffer: bytearray | memoryview, max_timestamp_ms: int, position: int = 0) -> None:
    """Keeps the producer's time of every record (CreateTime), of which `max_timestamp_ms` is the true maximum."""
    _stamp_time(buffer, False, max_timestamp_ms, position)


def _stamp_time(buffer: bytearray | memoryview, log_append_time: bool, max_timestamp_ms: int, position: int) -> None:
    base_offset, _, leader_epoch = PREFIX.unpack_from(buffer, position)
    buffer[position : position + HEADER_BYTES] = stamped_header(
        buffer,
        base_offset,
        leader_epoch,
        log_append_time=log_append_time,
        max_timestamp_ms=max_timestamp_ms,
        position=position,
    )


def build_batch(header: BatchHeader, payload: Buffer) -> bytearray:
    """Builds a batch of these fields and this payload; fills in length, magic and CRC."""
    header = header._replace(length=_MIN_LENGTH + len(payload), magic=MAGIC)
    batch = _pack_with_crc(header, payload)
    batch += payload
    return batch


def _pack_with_crc(header: BatchHeader, payload: Buffer) -> bytearray:
    packed = bytearray(_HEADER.pack(*header))
    crc = crc32c(payload, crc32c(packed[CRC_FROM:]))
    _CRC.pack_into(packed, CRC_FROM - _CRC.size, crc)
    return packed


def empty_batch(header: BatchHeader) -> bytes:
    """Returns the batch without records, which keeps its producer's last sequence after compaction."""
    attributes = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return bytes(
        build_batch(header._replace(attributes=attributes, base_timestamp_ms=NO_TIMESTAMP, record_count=0), b"")
    )
