"""Records inside a batch: iterate, validate, search by time. Expands compressed batches, never beyond a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trimq.formats.kafka_batch.compression import BadCompression, Codec, ExpandsTooFar, decompress_once
from trimq.formats.kafka_batch.header import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BadBatch,
    BadCount,
    BadLength,
    BatchHeader,
    TruncatedBatch,
    read_header,
)
from trimq.formats.kafka_batch.survey import ANY_NUMBER, TooManyHeaders, scan_records
from trimq.formats.varints import BadVarint, finish_varint, finish_varlong, read_varint
from trimq.model import Buffer, Record

# Size of the largest request: whatever may be sent uncompressed may be sent compressed.
MAX_EXPANDED_BYTES = 100 * 1024 * 1024

# Work on a batch within these limits takes at most 10 ms, and is done on the event loop; larger ones, which few
# producers send, are left to a thread. A hand-off costs 0.1 ms.
INLINE_RECORDS = 8_192
INLINE_EXPANDED_BYTES = 2 * 1024 * 1024

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
ANY_TIME = (_INT64_MIN, _INT64_MAX)


class BadRecord(BadBatch):
    """A record's lengths do not fit the available bytes."""


class BadPayload(BadBatch):
    """The compressed records cannot be expanded."""


class BatchTooLarge(BadBatch):
    """The batch holds more records and headers than the broker scans."""


class PayloadTooLarge(BatchTooLarge):
    """The compressed records expand beyond the limit."""


class BatchRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class RecordsSummary(NamedTuple):
    """Properties of sent records that a broker checks before it stores them."""

    max_timestamp_ms: int
    """Latest time of the records, -1 if none has one. Computed from the records, not taken from the header."""
    offset_of_max_timestamp: int
    """Offset of the first record with that time, from the header's base offset like every offset; -1 if there is
    none."""
    first_null_key_index: int | None
    first_outside_window_index: int | None
    """First record outside the window of times; a record without a time is always inside."""
    offsets_in_order: bool
    """Whether each offset delta is the record's index. Kafka accepts others too if the batch is not compressed."""


def expand(
    buffer: Buffer, position: int = 0, max_expanded_bytes: int = MAX_EXPANDED_BYTES
) -> tuple[BatchHeader, bytes]:
    """Returns the header, and the uncompressed bytes of the records. The caller must have checked the CRC."""
    header = read_header(buffer, position)
    size = header.size
    if size < HEADER_BYTES:
        raise BadLength(f"the batch is too short: length {header.length}")
    if size > len(buffer) - position:
        raise TruncatedBatch(f"a batch of {size} bytes is truncated: {len(buffer) - position} are left")
    payload = memoryview(buffer)[position + HEADER_BYTES : position + size]
    return header, bytes(_expand(header, payload, max_expanded_bytes))


def _expand(header: BatchHeader, payload: memoryview, max_expanded_bytes: int) -> bytes | bytearray:
    codec = header.codec
    if codec == Codec.NONE or (header.record_count == 0 and not payload):
        return bytes(payload)
    try:
        return decompress_once(codec, payload, max_expanded_bytes)
    except ExpandsTooFar as error:
        raise PayloadTooLarge(str(error)) from error
    except BadCompression as error:
        raise BadPayload(str(error)) from error


def iterate_records(
    buffer: Buffer, position: int = 0, max_expanded_bytes: int = MAX_EXPANDED_BYTES
) -> Iterator[BatchRecord]:
    """Yields the records in order. A malformed record raises when reached; extra or missing bytes are errors."""
    return _iterate(*expand(buffer, position, max_expanded_bytes))


def _iterate(header: BatchHeader, data: bytes) -> Iterator[BatchRecord]:
    position = 0
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    for index in range(header.record_count):
        try:
            record, position = _read_record(data, position, header)
        except (IndexError, BadVarint) as error:
            raise BadRecord(f"record {index} of {header.record_count} is malformed: {error}") from None
        yield record if append_time_ms is None else record._replace(timestamp_ms=append_time_ms)
    _refuse_rest(header, position, len(data))


def _refuse_rest(header: BatchHeader, position: int, end: int) -> None:
    if header.record_count < 0:
        raise BadCount(f"an invalid count of {header.record_count} records")
    if position != end:
        raise BadCount(f"{end - position} bytes follow the last of {header.record_count} records")


def _read_record(data: bytes, position: int, header: BatchHeader) -> tuple[BatchRecord, int]:
    # A byte below 0x80 is a whole number: reading it inline saves most calls.
    raw = data[position]
    position += 1
    if raw > 0x7F:
        raw, position = finish_varint(data, position, raw)
    end = position + (raw >> 1)
    if raw & 1 or end > len(data):
        raise BadVarint(f"its length exceeds the {len(data) - position} bytes left")
    time = data[position + 1]  # after the attributes, which are unused
    position += 2
    if time > 0x7F:
        time, position = finish_varlong(data, position, time)
    timestamp_ms = header.base_timestamp_ms + ((time >> 1) ^ -(time & 1))
    if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
        timestamp_ms = (timestamp_ms - _INT64_MIN) % (1 << 64) + _INT64_MIN  # wraps, as in every other reader
    offset = data[position]
    position += 1
    if offset > 0x7F:
        offset, position = finish_varint(data, position, offset)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    if data[position] == 0:
        position += 1
        headers: tuple[tuple[bytes, bytes | None], ...] = ()
    else:
        headers, position = _read_headers(data, position, end)
    if position != end:
        raise BadVarint(f"it should end at byte {end}, not {position}")
    return BatchRecord(header.base_offset + ((offset >> 1) ^ -(offset & 1)), timestamp_ms, key, value, headers), end


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise BadVarint(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise BadVarint("a header has no name")
        value, position = _read_bytes(data, position, end)
        headers.append((name, value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    raw = data[position]
    position += 1
    if raw > 0x7F:
        raw, position = finish_varint(data, position, raw)
    if raw & 1:
        return None, position  # Kafka reads every negative length as null
    stop = position + (raw >> 1)
    if stop > end:
        raise BadVarint(f"a field of {raw >> 1} bytes, but {end - position} are left")
    return data[position:stop], stop


def validate_records(
    buffer: Buffer,
    position: int = 0,
    *,
    window_ms: tuple[int, int] = ANY_TIME,
    max_expanded_bytes: int = MAX_EXPANDED_BYTES,
) -> RecordsSummary:
    """Checks every length of every record without building one, and returns a summary.

    `window_ms` is the earliest and the latest time that a record may have.
    """
    return _sum_up(*expand(buffer, position, max_expanded_bytes), window_ms, ANY_NUMBER)


def validate_checked(
    batch: Buffer, header: BatchHeader, window_ms: tuple[int, int], max_expanded_bytes: int, max_records: int
) -> tuple[RecordsSummary, int]:
    """Like `validate_records`, for exactly one batch with a checked header; returns the uncompressed size of the
    records too. `max_records` counts headers too."""
    data = _expand(header, memoryview(batch)[HEADER_BYTES:], max_expanded_bytes)
    return _sum_up(header, data, window_ms, max_records), len(data)


def _sum_up(
    header: BatchHeader, data: bytes | bytearray, window_ms: tuple[int, int], max_records: int
) -> RecordsSummary:
    try:
        max_headers = max_records - header.record_count
        end, earliest, latest, latest_at, null_key, in_order = scan_records(data, header.record_count, max_headers)
    except TooManyHeaders:
        raise BatchTooLarge(f"the batch has more than {max_records} records and headers") from None
    except (IndexError, BadVarint) as error:
        raise BadRecord(f"the records are malformed: {error}") from None
    _refuse_rest(header, end, len(data))
    if not header.record_count:
        return RecordsSummary(NO_TIMESTAMP, -1, None, None, True)
    base_ms = header.base_timestamp_ms
    earliest_ms, latest_ms = base_ms + earliest, base_ms + latest
    if earliest_ms < _INT64_MIN or latest_ms > _INT64_MAX:
        raise BadRecord("a record's timestamp does not fit 64 bits")
    untimely = None
    if earliest_ms < window_ms[0] or latest_ms > window_ms[1]:
        untimely = _first_untimely(header, bytes(data), window_ms)
    if latest_ms <= NO_TIMESTAMP:
        return RecordsSummary(NO_TIMESTAMP, -1, null_key, untimely, in_order)
    return RecordsSummary(latest_ms, header.base_offset + latest_at, null_key, untimely, in_order)


def _first_untimely(header: BatchHeader, data: bytes, window_ms: tuple[int, int]) -> int | None:
    earliest_ms, latest_ms = window_ms
    for index, record in enumerate(_iterate(header, data)):
        if not earliest_ms <= record.timestamp_ms <= latest_ms and record.timestamp_ms != NO_TIMESTAMP:
            return index
    return None


def find_timestamp(
    buffer: Buffer,
    timestamp_ms: int,
    position: int = 0,
    *,
    from_offset: int = 0,
    max_expanded_bytes: int = MAX_EXPANDED_BYTES,
) -> tuple[int, int] | None:
    """Returns offset and time of the first record, not before `from_offset`, whose time is `timestamp_ms` or later."""
    if read_header(buffer, position).max_timestamp_ms < timestamp_ms:
        return None
    for record in iterate_records(buffer, position, max_expanded_bytes):
        if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
            return record.offset, record.timestamp_ms
    return None


def find_max_timestamp(
    buffer: Buffer, position: int = 0, max_expanded_bytes: int = MAX_EXPANDED_BYTES
) -> tuple[int, int] | None:
    """Returns offset and time of the latest record, the first of equals. None if no record has a time."""
    found = None
    latest_ms = NO_TIMESTAMP
    for record in iterate_records(buffer, position, max_expanded_bytes):
        if record.timestamp_ms > latest_ms:
            latest_ms = record.timestamp_ms
            found = record.offset, latest_ms
    return found


def to_records(buffer: Buffer, position: int = 0, max_expanded_bytes: int = MAX_EXPANDED_BYTES) -> list[Record]:
    """Returns the messages of a batch; a control batch has none. Header names that are not UTF-8 survive the way
    back."""
    if read_header(buffer, position).is_control:
        return []
    return [
        Record(
            body=record.value,
            key=record.key,
            headers=tuple((name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers),
            timestamp_ms=record.timestamp_ms,
            offset=record.offset,
        )
        for record in iterate_records(buffer, position, max_expanded_bytes)
    ]
