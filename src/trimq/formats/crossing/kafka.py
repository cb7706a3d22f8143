"""Kafka records as neutral messages, and back. Fields of other protocols are headers of their full names."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.formats.crossing.neutral import (
    ACTING,
    AMQP_FIELD,
    ESCAPE,
    FROM,
    KAFKA,
    KEPT,
    NO_FIELDS,
    NULL,
    ORIGINS,
    ROCKETMQ_FIELD,
    VERSION,
    Kept,
    Neutral,
    decode_kept,
    encode_kept,
    is_reserved,
    is_usable_name,
    usable_text,
)
from trimq.formats.kafka_batch.builder import encode_record
from trimq.formats.kafka_batch.header import NO_LEADER_EPOCH, NO_PRODUCER, NO_SEQUENCE, BatchHeader, build_batch
from trimq.model import Headers, Record

_FIELDS = (ROCKETMQ_FIELD, AMQP_FIELD)


def to_neutral(record: Record, is_stored: bool = True) -> Neutral:
    """Converts a record. `is_stored`: it comes from a log, and may be one that was translated; a record that a client
    sends is its own, whatever its headers say."""
    headers = record.headers
    if headers and is_stored and (origin := _origin(headers)) is not None:
        return _translated(record, origin)
    fields = _acting_fields(headers) if headers else NO_FIELDS
    kept = b"" if _is_plain(record) else encode_kept(_envelope(record))
    return Neutral(record.body, record.key, headers, record.timestamp_ms, KAFKA, fields, kept)


def restore(kept: Kept, body: bytes | None, timestamp_ms: int) -> Record:
    """Returns the record whose residue another layout holds."""
    headers = tuple([(name.decode("utf-8", "surrogateescape"), value) for name, value in kept.headers])
    time_ms = timestamp_ms if kept.timestamp_ms is None else kept.timestamp_ms
    return Record(None if kept.is_null else body, kept.key, headers, time_ms)


def from_neutral(message: Neutral) -> Record:
    """Returns the record that a Kafka client sees, and that a partition log stores."""
    body, key, headers, timestamp_ms, origin, fields, kept, _ = message
    if origin == KAFKA:
        own = decode_kept(kept, KAFKA) if kept else None
        return Record(body, key, headers, timestamp_ms) if own is None else restore(own, body, timestamp_ms)
    found: list[tuple[str, bytes | None]] = [(name, value.encode("utf-8", "replace")) for name, value in fields.items()]
    found += [(ESCAPE + name if is_reserved(name) else name, value) for name, value in headers if name not in fields]
    found.append((FROM, origin.encode()))
    if kept:
        found.append((KEPT, kept))
    if body is None:
        found.append((NULL, b"true"))
    return Record(body, key, tuple(found), timestamp_ms)


def seal(records: Sequence[tuple[int, Record]], base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """Builds one batch of records at their offsets, from `base_offset` to `next_offset`. Offsets without a record are
    gaps, as compaction leaves them; without any record the batch is empty."""
    base_ms = newest_ms = records[0][1].timestamp_ms if records else -1
    encoded = []
    for offset, record in records:
        timestamp_ms = record.timestamp_ms
        newest_ms = max(newest_ms, timestamp_ms)
        headers = [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers]
        encoded.append(encode_record(timestamp_ms - base_ms, offset - base_offset, record.key, record.body, headers))
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch if leader_epoch >= 0 else NO_LEADER_EPOCH,
        magic=0,
        crc=0,
        attributes=0,
        last_offset_delta=next_offset - 1 - base_offset,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=newest_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=len(encoded),
    )
    return build_batch(header, b"".join(encoded))


def _origin(headers: Headers) -> str | None:
    """Returns the protocol that a stored record was translated from."""
    for name, value in reversed(headers):
        if name == FROM and value is not None:
            origin = value.decode("ascii", "replace")
            return origin if origin in ORIGINS and origin != KAFKA else None
    return None


def _translated(record: Record, origin: str) -> Neutral:
    fields: dict[str, str] = {}
    headers: list[tuple[str, bytes | None]] = []
    kept = b""
    for name, value in record.headers:
        if name.startswith(ESCAPE):
            headers.append((name[len(ESCAPE) :], value))
        elif name.startswith(_FIELDS):
            fields[name] = (value or b"").decode("utf-8", "replace")
        elif name == KEPT:
            kept = value or b""
        elif not is_reserved(name):
            headers.append((name, value))
    if kept and decode_kept(kept, origin) is None:
        kept = b""
    return Neutral(record.body, record.key, tuple(headers), record.timestamp_ms, origin, fields, kept)


def _acting_fields(headers: Headers) -> dict[str, str]:
    acting = ACTING[KAFKA]
    return {name: text for name, value in headers if name in acting and (text := usable_text(value)) is not None}


def _is_plain(record: Record) -> bool:
    """Returns whether the natural fields of every other layout give this record back."""
    body, key, headers = record.body, record.key, record.headers
    if body is None or record.timestamp_ms < 0 or (key is not None and usable_text(key) is None):
        return False
    if not headers:
        return True
    for name, value in headers:
        if name in ACTING[KAFKA] or usable_text(value) is None or not is_usable_name(name):
            return False
    return len({name for name, _ in headers}) == len(headers)


def _envelope(record: Record) -> Kept:
    return Kept(
        VERSION,
        KAFKA,
        record.key,
        record.body is None,
        tuple((name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers),
        timestamp_ms=record.timestamp_ms if record.timestamp_ms < 0 else None,
    )
