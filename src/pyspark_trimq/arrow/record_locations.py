"""Locates records and their fields in stored Kafka batches. Works on numpy arrays of positions over whole batches and
creates no object per record. Knows the batch format, nothing of Arrow or Spark."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimq.formats.kafka_batch.compression import Codec, decompress
from trimq.formats.kafka_batch.header import HEADER_BYTES, BatchHeader, walk
from trimq.model import Buffer

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Upper bound of one batch after decompression.
_MAX_EXPANDED_BYTES = 256 << 20

_MARKER = struct.Struct(">hh")  # key of a control record: version, type
_ABORT = 0


class BadRecords(ValueError):
    """The bytes are not valid Kafka records."""


class FieldLocations(NamedTuple):
    """Position and length of one field in each record; a length of -1 means null."""

    position: Numbers
    length: Numbers


class LocatedRecords(NamedTuple):
    """Records of several batches, column by column. Positions refer to `data`, which is uncompressed."""

    data: Bytes
    offset: Numbers
    timestamp_ms: Numbers
    timestamp_type: Numbers
    producer_id: Numbers
    producer_epoch: Numbers
    sequence: Numbers
    key: FieldLocations
    value: FieldLocations
    header_count: Numbers
    header_position: Numbers


class RecordRange(NamedTuple):
    """Records from `start` to `end` (exclusive), except those of the `aborted` transactions (producer id, first
    offset)."""

    start: int
    end: int
    aborted: Collection[tuple[int, int]] = ()


class AbortedRange(NamedTuple):
    """Contiguous aborted records of one batch."""

    producer_id: int
    producer_epoch: int
    offset: int
    sequence: int
    records: int


_aborted_ranges: ContextVar[list[AbortedRange] | None] = ContextVar("aborted ranges", default=None)


@contextmanager
def collect_aborted() -> Iterator[list[AbortedRange]]:
    """Yields a list to which `locate` adds the aborted records that it skips, until the context ends."""
    found: list[AbortedRange] = []
    before = _aborted_ranges.set(found)
    try:
        yield found
    finally:
        _aborted_ranges.reset(before)


def _collect_aborted(header: BatchHeader, wanted: RecordRange) -> None:
    found = _aborted_ranges.get()
    first, after = max(header.base_offset, wanted.start), min(header.last_offset + 1, wanted.end)
    if found is not None and header.base_sequence >= 0:
        sequence = (header.base_sequence + first - header.base_offset) & 0x7FFF_FFFF
        found.append(AbortedRange(header.producer_id, header.producer_epoch, first, sequence, after - first))


def locate(stored: Buffer, wanted: RecordRange) -> LocatedRecords:
    """Returns the wanted records of complete batches, in order. Raises BadRecords if the bytes are invalid."""
    try:
        return _locate(stored, wanted)
    except (IndexError, struct.error) as error:
        raise BadRecords(f"invalid records: {error}") from error


def _locate(stored: Buffer, wanted: RecordRange) -> LocatedRecords:
    batches = list(_committed(stored, wanted))
    headers = [header for _, header in batches]
    places = [position + HEADER_BYTES for position, _ in batches]
    if any(header.codec != Codec.NONE for header in headers):
        stored, places = _decompress_batches(stored, batches)
    raw = memoryview(stored)
    starts: list[int] = []
    for place, header in zip(places, headers, strict=True):
        _find_starts(raw, place, header.record_count, starts.append)
    return _trim_to_range(_fields(np.frombuffer(raw, np.uint8), headers, np.array(starts, np.int64)), wanted)


def _decompress_batches(stored: Buffer, batches: list[tuple[int, BatchHeader]]) -> tuple[bytes, list[int]]:
    """Returns the uncompressed records of all batches, and the position of the first record of each batch."""
    view = memoryview(stored)
    places, payloads, size = [], [], 0
    for position, header in batches:
        payload = view[position + HEADER_BYTES : position + header.size]
        payloads.append(decompress(header.codec, payload, _MAX_EXPANDED_BYTES))
        places.append(size)
        size += len(payloads[-1])
    return b"".join(payloads), places


def _find_starts(data: memoryview, position: int, count: int, keep: Callable[[int], None]) -> None:
    """Calls `keep` with the position of each record. Record lengths form a chain, which numpy cannot follow. Looking
    for runs of records of equal length costs more than this loop unless a run has hundreds of records."""
    for _ in range(count):
        keep(position)
        raw = data[position]
        if raw < 0x80:
            position += 1 + (raw >> 1)
            continue
        second = data[position + 1]
        if second < 0x80:
            position += 2 + ((raw & 0x7F | second << 7) >> 1)
        else:
            position += _long_size(data, position)
    if position > len(data):
        raise BadRecords("the records are longer than their batch")


def _long_size(data: memoryview, position: int) -> int:
    """Returns the size of a record, including its length field of three bytes or more."""
    raw = shift = width = 0
    while True:
        byte = data[position + width]
        raw |= (byte & 0x7F) << shift
        shift += 7
        width += 1
        if byte < 0x80:
            return width + (raw >> 1)
        if width == 5:
            raise BadRecords("the length field of a record has more than 5 bytes")


def _committed(stored: Buffer, wanted: RecordRange) -> Iterable[tuple[int, BatchHeader]]:
    """Yields position and header of each data batch in the range that is not aborted."""
    waiting = sorted(wanted.aborted, key=lambda transaction: -transaction[1])
    active: set[int] = set()
    for position, header in walk(stored, 0, len(stored)):
        while waiting and waiting[-1][1] <= header.last_offset:
            active.add(waiting.pop()[0])
        if header.is_control:
            if header.producer_id in active and _is_abort(stored, position):
                active.discard(header.producer_id)
        elif header.last_offset < wanted.start or header.base_offset >= wanted.end or not header.record_count:
            continue
        elif header.is_transactional and header.producer_id in active:
            _collect_aborted(header, wanted)
        else:
            yield position, header


def _is_abort(stored: Buffer, position: int) -> bool:
    # In a control record length, attributes, timestamp delta, offset delta and key length take one byte each.
    return bool(_MARKER.unpack_from(stored, position + HEADER_BYTES + 5)[1] == _ABORT)


# -- fields of all records at once


def _fields(data: Bytes, headers: list[BatchHeader], start: Numbers) -> LocatedRecords:
    counts = [header.record_count for header in headers]

    def spread(values: list[int]) -> Numbers:
        return np.repeat(np.array(values, np.int64), counts)

    length, position = read_varints(data, start)
    end = position + length
    time, position = read_varints(data, position + 1)  # skips the attributes, which Kafka does not use
    delta, position = read_varints(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    header_count, position = read_varints(data, position)
    left = end - position  # a header takes at least two bytes
    if bool(np.any((left < 0) | ((header_count == 0) & (left != 0)) | (header_count < 0) | (header_count > left))):
        raise BadRecords("the fields of a record do not end where the record does")
    base_ms = spread([header.base_timestamp_ms for header in headers])
    append_ms = spread([header.max_timestamp_ms for header in headers])
    kind = spread([int(header.is_log_append_time) for header in headers])
    sequence = spread([header.base_sequence for header in headers])
    return LocatedRecords(
        data,
        spread([header.base_offset for header in headers]) + delta,
        np.where(kind == 1, append_ms, base_ms + time),
        kind,
        spread([header.producer_id for header in headers]),
        spread([header.producer_epoch for header in headers]),
        np.where(sequence < 0, -1, (sequence + delta) & 0x7FFF_FFFF),  # sequence numbers have 31 bits and wrap to 0
        key,
        value,
        header_count,
        position,
    )


def read_varints(data: Bytes, position: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the zig-zag varints at these positions, and the position after each. Raises BadRecords."""
    try:
        return _read_varints(data, position)
    except IndexError:
        raise BadRecords("the records end within a varint") from None


def _read_varints(data: Bytes, position: Numbers) -> tuple[Numbers, Numbers]:
    byte = data[position]
    raw = (byte & 0x7F).astype(np.uint64)
    after = position + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more):
        if shift > 63:
            raise BadRecords("a varint has more than 10 bytes")
        byte = data[after[more]]
        raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    value = (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)
    return value, after


def _read_bytes(data: Bytes, position: Numbers) -> tuple[FieldLocations, Numbers]:
    length, position = read_varints(data, position)
    end = position + np.maximum(length, 0)
    if len(end) and int(end.max()) > len(data):
        raise BadRecords("a field is longer than its record")
    return FieldLocations(position, length), end


def _trim_to_range(found: LocatedRecords, wanted: RecordRange) -> LocatedRecords:
    """Removes records of the first and the last batch that are outside the range."""
    inside = (found.offset >= wanted.start) & (found.offset < wanted.end)
    if bool(inside.all()):
        return found
    return keep(found, np.flatnonzero(inside))


def keep(found: LocatedRecords, rows: Any) -> LocatedRecords:
    """Returns only these rows, given as indices or as a slice."""
    columns: list[Any] = [
        FieldLocations(column.position[rows], column.length[rows])
        if isinstance(column, FieldLocations)
        else column[rows]
        for column in found[1:]
    ]
    return LocatedRecords(found.data, *columns)
