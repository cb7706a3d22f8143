"""Turns stored messages of RocketMQ topics and AMQP queues into Arrow record batches, message by message."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from trimq.formats.amqp_content.content import Content, read_stored, to_record
from trimq.formats.amqp_content.field_tables import BadField
from trimq.formats.amqp_content.property_list import read_properties as read_content_properties
from trimq.formats.kafka_batch.compression import Codec, decompress
from trimq.formats.rocketmq_unit.properties import KEYS, TAGS, read_properties, split_keys
from trimq.formats.rocketmq_unit.unit import COMPRESSED, Unit, read_unit
from trimq.model import Buffer

_ROWS_PER_BATCH = 10_000
_MAX_EXPANDED_BYTES = 256 << 20

# Bits 8 to 10 of a unit's system flag: compression type of the body. Old producers left them 0 and used zlib.
_COMPRESSIONS = {1: Codec.LZ4, 2: Codec.ZSTD}

Row = dict[str, Any]


def record_batches(rows: Iterator[Row], schema: pa.Schema, topic: str, number: int) -> Iterator[pa.RecordBatch]:
    names = schema.names
    columns: dict[str, list[Any]] = {name: [] for name in names}
    count = 0
    for row in rows:
        row["topic"], row["partition"], row["timestampType"] = topic, number, 0
        for name in names:
            columns[name].append(row.get(name))
        count += 1
        if count == _ROWS_PER_BATCH:
            yield _batch(columns, schema)
            columns, count = {name: [] for name in names}, 0
    if count:
        yield _batch(columns, schema)


def _batch(columns: dict[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        values = columns[field.name]
        if field.name == "timestamp":
            values = [value * 1000 for value in values]
            arrays.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- RocketMQ


def unit_rows(stored: Buffer, start: int, end: int) -> Iterator[Row]:
    """Yields the rows of RocketMQ messages with offsets from `start` to `end` (exclusive)."""
    at = 0
    while at < len(stored):
        unit = read_unit(stored, at)
        at += unit.size
        if start <= unit.queue_offset < end:
            yield _unit_row(unit)


def _unit_row(unit: Unit) -> Row:
    properties = read_properties(unit.properties)
    keys = properties.get(KEYS)
    return {
        "key": None if keys is None else keys.encode(),
        "value": _decompress_body(unit),
        "offset": unit.queue_offset,
        "timestamp": unit.born_ms,
        "headers": [{"key": name, "value": value.encode()} for name, value in properties.items() if name != KEYS],
        "tags": properties.get(TAGS),
        "keys": split_keys(keys or ""),
        "properties": list(properties.items()),
    }


def _decompress_body(unit: Unit) -> bytes:
    body = bytes(unit.body)
    if not unit.sys_flag & COMPRESSED:
        return body
    codec = _COMPRESSIONS.get(unit.sys_flag >> 8 & 7)
    if codec is not None:
        return decompress(codec, body, _MAX_EXPANDED_BYTES)
    return zlib.decompressobj().decompress(body, _MAX_EXPANDED_BYTES)


# -- AMQP


def content_rows(stored: Buffer, start: int, end: int) -> Iterator[Row]:
    """Yields the rows of AMQP messages with offsets from `start` to `end` (exclusive)."""
    data = bytes(stored)
    at = 0
    while (found := read_stored(data, at)) is not None:
        message, at = found
        if start <= message.offset < end:
            yield _content_row(message.content, message.offset)


def _content_row(content: Content, offset: int) -> Row:
    record = to_record(content, offset)
    return {
        "key": content.key,
        "value": content.body,
        "offset": offset,
        "timestamp": content.published_ms,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
        "keys": [],
        "properties": list(_content_properties(content).items()),
    }


def _content_properties(content: Content) -> dict[str, str]:
    """Returns the basic properties by their AMQP names, with exchange and routing key. Application headers are
    excluded."""
    found = {
        "exchange": content.exchange.decode("utf-8", "replace"),
        "routing_key": content.key.decode("utf-8", "replace"),
    }
    try:
        listed = read_content_properties(content.header)
    except BadField:
        return found
    return found | {name: str(value) for name, value in listed.items() if name != "headers"}
