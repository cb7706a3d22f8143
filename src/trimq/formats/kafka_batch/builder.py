"""Builds batches from records or from other batches: new ones, recompressed ones, and ones reduced by compaction. Knows
no log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimq.formats.kafka_batch.compression import Codec, compress
from trimq.formats.kafka_batch.header import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    build_batch,
    read_header,
)
from trimq.formats.kafka_batch.records import MAX_EXPANDED_BYTES, BatchRecord, expand, iterate_records
from trimq.formats.varints import encode_varint
from trimq.model import Buffer, Record

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_INT64_MIN = -(1 << 63)


def encode_record(
    timestamp_delta_ms: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """Returns one record as in an uncompressed batch."""
    parts = [b"\x00", encode_varint(timestamp_delta_ms), encode_varint(offset_delta)]
    parts += (_NULL,) if key is None else (encode_varint(len(key)), key)
    parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    if headers:
        parts += _encode_headers(headers)
    else:
        parts.append(_NO_HEADERS)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_headers(headers: Sequence[tuple[bytes, bytes | None]]) -> list[bytes]:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        parts += (encode_varint(len(name)), name)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return parts


def from_records(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    append_time_ms: int | None = None,
) -> bytearray:
    """Builds one batch of these messages, numbered from `base_offset`; `append_time_ms` overrides their times for
    readers.

    A batch has no field for a message's extras: the caller must have moved them into headers.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp_ms = max_timestamp_ms = records[0].timestamp_ms
    encoded = []
    for index, record in enumerate(records):
        timestamp_ms = record.timestamp_ms
        if timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = timestamp_ms
        if record.extras:
            raise ValueError(f"a batch has no field for {sorted(record.extras)}")
        headers = [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers]
        encoded.append(encode_record(timestamp_ms - base_timestamp_ms, index, record.key, record.body, headers))
    attributes = codec | TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp_ms = append_time_ms
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=0,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return build_batch(header, compress(codec, b"".join(encoded)))


def recompress(
    buffer: Buffer,
    codec: int,
    position: int = 0,
    max_expanded_bytes: int = MAX_EXPANDED_BYTES,
    level: int | None = None,
) -> bytearray:
    """Returns the same batch with its records compressed by another codec."""
    header, data = expand(buffer, position, max_expanded_bytes)
    return build_batch(
        header._replace(attributes=header.attributes & ~CODEC_BITS | codec), compress(codec, data, level)
    )


def retain(
    buffer: Buffer,
    keep: Callable[[BatchRecord], bool],
    delete_horizon_ms: int | None,
    position: int = 0,
    max_expanded_bytes: int = MAX_EXPANDED_BYTES,
) -> bytes | None:
    """Returns the batch with only the records that `keep` selects, or None if there are none.

    Keeps offsets, sequence, producer and codec, and the last offset, which carries the last sequence. Sets the delete
    horizon once, when a tombstone is kept or the batch is a control batch: pass one for a control batch only when its
    transaction has no records left. Returns a batch that needs no change as it is.
    """
    header = read_header(buffer, position)
    total = 0
    kept: list[BatchRecord] = []
    for record in iterate_records(buffer, position, max_expanded_bytes):
        total += 1
        if keep(record):
            kept.append(record)
    if not kept:
        return None
    is_due = header.is_control or any(record.value is None for record in kept)
    horizon_ms = delete_horizon_ms if is_due and not header.has_delete_horizon else None
    if horizon_ms is None and len(kept) == total:
        return bytes(memoryview(buffer)[position : position + header.size])
    return bytes(_thin_out(header, kept, header.delete_horizon_ms if horizon_ms is None else horizon_ms))


def _thin_out(header: BatchHeader, kept: list[BatchRecord], horizon_ms: int | None) -> bytearray:
    # A delete horizon is stored in the base timestamp, and the records' deltas count from it.
    base_ms = kept[0].timestamp_ms if horizon_ms is None else horizon_ms
    payload = b"".join(
        encode_record(
            _wrap(record.timestamp_ms - base_ms),
            record.offset - header.base_offset,
            record.key,
            record.value,
            record.headers,
        )
        for record in kept
    )
    header = header._replace(
        attributes=header.attributes if horizon_ms is None else header.attributes | DELETE_HORIZON_BIT,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max(NO_TIMESTAMP, *(record.timestamp_ms for record in kept)),  # or the append time
        record_count=len(kept),
    )
    return build_batch(header, compress(header.codec, payload))


def _wrap(delta: int) -> int:
    """Wraps a difference of 64-bit times, as readers do when they add it up again."""
    return (delta - _INT64_MIN) % (1 << 64) + _INT64_MIN
