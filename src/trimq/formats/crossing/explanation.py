"""Explains one stored message: its stored bytes, the neutral message, what a client of each protocol sees of it, and
what that view had to cut. Pure: bytes in, values for JSON out."""

from __future__ import annotations

from typing import Any

from trimq.errors import InvalidRecords
from trimq.formats.amqp_content.content import Content, read_stored
from trimq.formats.amqp_content.field_tables import BadField
from trimq.formats.amqp_content.private_headers import without_private_headers
from trimq.formats.amqp_content.property_list import read_properties as read_property_list
from trimq.formats.crossing import amqp, kafka, rocketmq
from trimq.formats.crossing.neutral import AMQP, KAFKA, KEPT, ROCKETMQ, Kept, Neutral, decode_kept
from trimq.formats.crossing.rocketmq import UnitFields
from trimq.formats.kafka_batch.header import BadBatch, walk
from trimq.formats.kafka_batch.records import to_records
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import BadUnit, read_unit
from trimq.model import Buffer, Layout, Record

FACES = (KAFKA, ROCKETMQ, AMQP)
_HEAD_BYTES = 64
_HOMES = {Layout.PARTITION_LOG: KAFKA, Layout.COMMIT_LOG: ROCKETMQ, Layout.QUEUE_LOG: AMQP}

Explanation = dict[str, Any]
_Found = tuple[Explanation, Neutral, Explanation]
"""Description of the stored bytes, the message, and the view of clients of its own protocol."""


def explain(layout: Layout, stored: Buffer, name: str, offset: int, max_expanded_bytes: int) -> Explanation | None:
    """Returns the explanation of the message with this offset, which `stored` begins with or whose batch it is. None:
    these bytes do not hold it. Raises InvalidRecords if they cannot be read."""
    found: _Found | None
    try:
        if layout is Layout.PARTITION_LOG:
            found = _explain_batch(stored, offset, max_expanded_bytes)
        elif layout is Layout.COMMIT_LOG:
            found = _explain_unit(stored, offset, max_expanded_bytes)
        else:
            found = _explain_content(stored, name, offset)
    except (BadBatch, BadUnit) as error:
        raise InvalidRecords(str(error)) from error
    if found is None:
        return None
    described, message, own = found
    views = {
        KAFKA: _record(kafka.from_neutral(message)),
        ROCKETMQ: _unit(rocketmq.from_neutral(message)),
        AMQP: _content(amqp.from_neutral(message, name)),
        _HOMES[layout]: own,
    }
    return {"stored": described, "neutral": _neutral(message), "views": views}


def _explain_batch(stored: Buffer, offset: int, max_expanded_bytes: int) -> _Found | None:
    for position, header in walk(stored, 0, len(stored)):
        if not header.base_offset <= offset <= header.last_offset:
            continue
        for record in to_records(stored, position, max_expanded_bytes):
            if record.offset == offset:
                raw = bytes(memoryview(stored)[position : position + header.size])
                described = {
                    **_bytes(raw, "record batch"),
                    "base_offset": header.base_offset,
                    "last_offset": header.last_offset,
                    "records": header.record_count,
                    "codec": header.codec,
                    "producer_id": header.producer_id,
                    "producer_epoch": header.producer_epoch,
                    "base_sequence": header.base_sequence,
                    "is_transactional": header.is_transactional,
                }
                return described, kafka.to_neutral(record), _record(record)
    return None


def _explain_unit(stored: Buffer, offset: int, max_expanded_bytes: int) -> _Found | None:
    unit = read_unit(stored)
    if unit.queue_offset != offset:
        return None
    described = {
        **_bytes(bytes(memoryview(stored)[: unit.size]), "message unit"),
        "position": unit.position,
        "sys_flag": unit.sys_flag,
        "stored_ms": unit.store_ms,
        "properties": _text(unit.properties),
    }
    own = UnitFields(bytes(unit.body), read_properties(unit.properties), unit.born_ms, unit.flag, unit.reconsume_times)
    return described, rocketmq.to_neutral(unit, max_expanded_bytes), _unit(own)


def _explain_content(stored: Buffer, name: str, offset: int) -> _Found | None:
    found = read_stored(stored, 0)
    if found is None or found[0].offset != offset:
        return None
    message, end = found
    described = {
        **_bytes(bytes(memoryview(stored)[:end]), "content"),
        "flags": message.flags,
        "published_ms": message.content.published_ms,
        "expires_ms": message.expires_ms,
    }
    own = message.content._replace(header=without_private_headers(message.content.header))
    return described, amqp.to_neutral(message.content, name), _content(own)


def _bytes(raw: bytes, form: str) -> Explanation:
    return {"form": form, "bytes": len(raw), "head": raw[:_HEAD_BYTES].hex(" ")}


def _neutral(message: Neutral) -> Explanation:
    kept = decode_kept(message.kept, message.origin) if message.kept else None
    return {
        "origin": message.origin,
        "key": _text(message.key),
        "body_bytes": None if message.body is None else len(message.body),
        "timestamp_ms": message.timestamp_ms,
        "headers": [[header, _text(value)] for header, value in message.headers],
        "fields": dict(message.fields),
        "kept": None if kept is None else _residue(kept),
    }


def _residue(kept: Kept) -> Explanation:
    return {
        "version": kept.version,
        "key": _text(kept.key),
        "is_null": kept.is_null,
        "headers": [[_text(name), _text(value)] for name, value in kept.headers],
        "properties": _text(kept.properties),
        "bytes": len(kept.properties) + sum(len(name) + len(value or b"") for name, value in kept.headers),
    }


def _record(record: Record) -> Explanation:
    return {
        "key": _text(record.key),
        "value_bytes": None if record.body is None else len(record.body),
        "timestamp_ms": record.timestamp_ms,
        "headers": [
            [name, f"{len(value or b'')} bytes" if name == KEPT else _text(value)] for name, value in record.headers
        ],
        "cut": [],
    }


def _unit(fields: UnitFields) -> Explanation:
    properties = dict(fields.properties)
    cut = properties.get(rocketmq.CUT_PROPERTY, "").split()
    if rocketmq.KEPT_PROPERTY in properties:
        properties[rocketmq.KEPT_PROPERTY] = f"{len(properties[rocketmq.KEPT_PROPERTY])} characters"
    return {"body_bytes": len(fields.body), "born_ms": fields.born_ms, "properties": properties, "cut": cut}


def _content(content: Content) -> Explanation:
    try:
        properties = read_property_list(content.header)
    except BadField:
        properties = {}
    table = properties.pop("headers", None)
    headers = dict(table) if isinstance(table, dict) else {}
    return {
        "exchange": _text(content.exchange),
        "routing_key": _text(content.key),
        "body_bytes": len(content.body),
        "properties": {key: str(value) for key, value in properties.items()},
        "headers": {key: f"{len(str(value))} bytes" if key == KEPT else str(value) for key, value in headers.items()},
        "cut": [],
    }


def _text(value: bytes | None) -> str | None:
    """Returns the value as text; bytes that are none in hexadecimal digits."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
