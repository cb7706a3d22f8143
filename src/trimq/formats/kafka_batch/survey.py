"""Scans the uncompressed records of a batch: checks every length without building a record. The only loop over sent
records; knows no header."""

from __future__ import annotations

from typing import NamedTuple

from trimq.formats.varints import BadVarint, finish_varint, finish_varlong, read_varint, read_varlong

# Encoded offset deltas 0 to 63 (one byte each) and 64 to 8191 (two bytes), one column per byte.
_ONE_BYTE_OFFSETS = 64
_TWO_BYTE_OFFSETS = 8192
_ONLY_BYTES = bytes(2 * index for index in range(_ONE_BYTE_OFFSETS))
_FIRST_BYTES = bytes(2 * index & 0x7F | 0x80 for index in range(_TWO_BYTE_OFFSETS))
_SECOND_BYTES = bytes(2 * index >> 7 for index in range(_TWO_BYTE_OFFSETS))

# Maps one-byte zigzag numbers, -64 to 63, to bytes with the same sort order; all others to the last byte.
_MIN_SHORT_DELTA = -64
_LONG_DELTA = b"\xff"
_SORTABLE = bytes(((raw >> 1) ^ -(raw & 1)) - _MIN_SHORT_DELTA for raw in range(0x80)) + _LONG_DELTA * 0x80

ANY_NUMBER = 1 << 62

_WORTHWHILE_RUN = 4
_RECORDS_UNTIL_NEXT_TRY = 32


class TooManyHeaders(ValueError):
    """The batch has more headers than may be scanned while other connections wait."""


class RecordsScan(NamedTuple):
    end: int
    """End of the last record."""
    earliest_delta_ms: int
    latest_delta_ms: int
    latest_offset_delta: int
    """Offset delta of the first record with the latest time."""
    first_null_key_index: int | None
    offsets_in_order: bool


class _UniformRecords(NamedTuple):
    """Consecutive records with equal framing. Their offset deltas are their indexes."""

    length: int
    earliest_delta_ms: int
    latest_delta_ms: int
    latest_index: int


_NO_RUN = _UniformRecords(0, 1 << 63, -(1 << 63), 0)


# The position only grows and must be exactly at the end of each record, so that one comparison covers all lengths
# inside it, and no length can point outside the data unnoticed.
def scan_records(data: bytes | bytearray, count: int, max_headers: int = ANY_NUMBER) -> RecordsScan:
    """Scans `count` records. Raises BadVarint or IndexError if one is malformed; the caller checks bytes after the
    last."""
    index = position = latest_at = last_size = next_try = 0
    earliest, latest = 1 << 63, -(1 << 63) - 1
    null_key: int | None = None
    in_order = True
    while index < count:
        start = position
        raw = data[position]
        position += 1
        if raw > 0x7F:
            raw, position = finish_varint(data, position, raw)
        end = position + (raw >> 1)
        time = data[position + 1]
        position += 2
        if time > 0x7F:
            time, position = finish_varlong(data, position, time)
        offset = data[position]
        position += 1
        if offset > 0x7F:
            offset, position = finish_varint(data, position, offset)
        if offset != index << 1:
            in_order = False
        delta = (time >> 1) ^ -(time & 1)
        if delta > latest:
            latest, latest_at = delta, (offset >> 1) ^ -(offset & 1)
        if delta < earliest:
            earliest = delta
        if data[position] & 1 and null_key is None:
            null_key = index
        position = _skip_content(data, position)
        if data[position]:
            position, max_headers = _skip_headers(data, position, max_headers)
        else:
            position += 1
        if position != end or raw & 1:
            raise BadVarint(f"record {index} ends at byte {position} instead of {end}")
        index += 1
        if end - start != last_size:
            last_size = end - start
        elif index >= next_try:
            run = _find_uniform(data, start, position, index, count)
            index += run.length
            position += run.length * last_size
            if run.latest_delta_ms > latest:
                latest, latest_at = run.latest_delta_ms, run.latest_index
            earliest = min(earliest, run.earliest_delta_ms)
            next_try = index + (0 if run.length >= _WORTHWHILE_RUN else _RECORDS_UNTIL_NEXT_TRY)
    return RecordsScan(position, earliest, latest, latest_at, null_key, in_order)


def _skip_content(data: bytes | bytearray, position: int) -> int:
    """Returns the end of the key and value that begin at `position`, where the headers begin."""
    raw = data[position]
    position += 1
    if raw > 0x7F:
        raw, position = finish_varint(data, position, raw)
    if not raw & 1:
        position += raw >> 1
    raw = data[position]
    position += 1
    if raw > 0x7F:
        raw, position = finish_varint(data, position, raw)
    if not raw & 1:
        position += raw >> 1
    return position


def _skip_headers(data: bytes | bytearray, position: int, most: int) -> tuple[int, int]:
    """Returns the end of the headers, and the number of headers still allowed."""
    count, position = read_varint(data, position)
    if count < 0:
        raise BadVarint(f"{count} headers")
    if count > most:
        raise TooManyHeaders
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise BadVarint("a header has no name")
        size, position = read_varint(data, position + size)
        position += max(size, 0)
    return position, most - count


def _find_uniform(data: bytes | bytearray, pattern_at: int, position: int, index: int, count: int) -> _UniformRecords:
    """Returns the records from `position` (number `index`) on that are framed like the valid one just before, at
    `pattern_at`.

    Fast path of `scan_records`: producers send runs of equal size. Bytes at the same position of each record are
    compared all at once, as columns: a record whose framing bytes equal those of a valid one is valid too.
    """
    size = position - pattern_at
    limit = _ONE_BYTE_OFFSETS if index < _ONE_BYTE_OFFSETS else _TWO_BYTE_OFFSETS
    length = min(count - index, limit - index, (len(data) - position) // size)
    time_at, offset_at, framing = _frame(data, pattern_at)
    if length <= 0 or not framing:
        return _NO_RUN
    times: bytes | bytearray = b""
    if offset_at - time_at == 1:
        times = data[time_at + size : position + length * size : size].translate(_SORTABLE).partition(_LONG_DELTA)[0]
        length = len(times)
    else:
        framing += range(time_at, offset_at)
    for at in framing:
        column = data[at + size : position + length * size : size]
        length -= len(column.lstrip(data[at : at + 1]))
    offsets = (_ONLY_BYTES,) if limit == _ONE_BYTE_OFFSETS else (_FIRST_BYTES, _SECOND_BYTES)
    for at, column in enumerate(offsets, offset_at):
        if data[at + size : position + length * size : size] != column[index : index + length]:
            return _NO_RUN
    if not length:
        return _NO_RUN
    if not times:
        delta = read_varlong(data, time_at)[0]
        return _UniformRecords(length, delta, delta, index)
    times = times[:length]
    latest = max(times)
    return _UniformRecords(
        length, min(times) + _MIN_SHORT_DELTA, latest + _MIN_SHORT_DELTA, index + times.index(latest)
    )


def _frame(data: bytes | bytearray, start: int) -> tuple[int, int, list[int]]:
    """Returns the positions of time and offset of the valid record at `start`, and of each byte that frames its fields.

    The latter is empty if the record has headers: comparing those as well would cost more than it saves.
    """
    _, attributes_at = read_varint(data, start)
    time_at = attributes_at + 1
    _, offset_at = read_varlong(data, time_at)
    _, key_at = read_varint(data, offset_at)
    size, key_from = read_varint(data, key_at)
    value_at = key_from + max(size, 0)
    size, value_from = read_varint(data, value_at)
    headers_at = value_from + max(size, 0)
    if data[headers_at] != 0:
        return time_at, offset_at, []
    framing = [*range(start, attributes_at), *range(key_at, key_from), *range(value_at, value_from), headers_at]
    return time_at, offset_at, framing
