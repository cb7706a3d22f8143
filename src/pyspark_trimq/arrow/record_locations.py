"""Finds the records in stored batches and where each of their fields lies, by whole batches at a time: numpy's arrays
of positions, no object per record. Knows the format of batches, nothing of Arrow or Spark."""

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

# What one compressed batch may expand to.
_MAX_EXPANDED_BYTES = 256 << 20

_MARKER = struct.Struct(">hh")  # version and kind, the key of a control record
_ABORT = 0


class BadRecords(ValueError):
    """The bytes are not the records that they should be."""


class FieldLocations(NamedTuple):
    """Where the bytes of a field lie, by record; a length of -1 is null."""

    position: Numbers
    length: Numbers


class LocatedRecords(NamedTuple):
    """The records of some batches, by column. `data` holds their bytes, uncompressed."""

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
    """Records from `start` to, exclusively, `end`; without those of aborted transactions: (producer, first offset)."""

    start: int
    end: int
    aborted: Collection[tuple[int, int]] = ()


class AbortedRange(NamedTuple):
    """Records of one batch that were aborted, next to each other."""

    producer_id: int
    producer_epoch: int
    offset: int
    sequence: int
    records: int


_aborted_ranges: ContextVar[list[AbortedRange] | None] = ContextVar("left out", default=None)


@contextmanager
def collect_aborted() -> Iterator[list[AbortedRange]]:
    """While this lasts, aborted records that are passed over are listed."""
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
    """The wanted records of whole batches, in order."""
    try:
        return _locate(stored, wanted)
    except (IndexError, struct.error) as error:
        raise BadRecords(f"the records cannot be read: {error}") from error


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
    """The records of all batches uncompressed, and where those of each batch begin."""
    view = memoryview(stored)
    places, payloads, size = [], [], 0
    for position, header in batches:
        payload = view[position + HEADER_BYTES : position + header.size]
        payloads.append(decompress(header.codec, payload, _MAX_EXPANDED_BYTES))
        places.append(size)
        size += len(payloads[-1])
    return b"".join(payloads), places


def _find_starts(data: memoryview, position: int, count: int, keep: Callable[[int], None]) -> None:
    """Where each record begins: each tells only where the next one does. Numpy has no way to walk like that, and to
    look for runs of records of one length costs more than this loop unless they are hundreds."""
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
    """The size of a record whose length takes three bytes or more, with them."""
    raw = shift = width = 0
    while True:
        byte = data[position + width]
        raw |= (byte & 0x7F) << shift
        shift += 7
        width += 1
        if byte < 0x80:
            return width + (raw >> 1)
        if width == 5:
            raise BadRecords("the length of a record is too long")


def _committed(stored: Buffer, wanted: RecordRange) -> Iterable[tuple[int, BatchHeader]]:
    """The batches with records that count, and their positions."""
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
    # length, attributes, time, offset and the key's length take a byte each in a marker
    return bool(_MARKER.unpack_from(stored, position + HEADER_BYTES + 5)[1] == _ABORT)


# -- the fields of all records at once


def _fields(data: Bytes, headers: list[BatchHeader], start: Numbers) -> LocatedRecords:
    counts = [header.record_count for header in headers]

    def spread(values: list[int]) -> Numbers:
        return np.repeat(np.array(values, np.int64), counts)

    length, position = read_varints(data, start)
    end = position + length
    time, position = read_varints(data, position + 1)  # after the attributes, which mean nothing yet
    delta, position = read_varints(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    header_count, position = read_varints(data, position)
    left = end - position  # a header takes two bytes at least
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
        np.where(sequence < 0, -1, (sequence + delta) & 0x7FFF_FFFF),  # wraps, as producers do
        key,
        value,
        header_count,
        position,
    )


def read_varints(data: Bytes, position: Numbers) -> tuple[Numbers, Numbers]:
    """The zig-zag numbers at these positions, and where each of them ends."""
    try:
        return _read_varints(data, position)
    except IndexError:
        raise BadRecords("the records end within a number") from None


def _read_varints(data: Bytes, position: Numbers) -> tuple[Numbers, Numbers]:
    byte = data[position]
    raw = (byte & 0x7F).astype(np.uint64)
    after = position + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more):
        if shift > 63:
            raise BadRecords("a number is too long")
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
    """Without the records of the first and the last batch that were not asked for."""
    inside = (found.offset >= wanted.start) & (found.offset < wanted.end)
    if bool(inside.all()):
        return found
    return keep(found, np.flatnonzero(inside))


def keep(found: LocatedRecords, rows: Any) -> LocatedRecords:
    """Of these rows alone: numbers, or a slice."""
    columns: list[Any] = [
        FieldLocations(column.position[rows], column.length[rows])
        if isinstance(column, FieldLocations)
        else column[rows]
        for column in found[1:]
    ]
    return LocatedRecords(found.data, *columns)
