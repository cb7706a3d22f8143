"""Turns located Kafka records into Arrow record batches. Arrow copies the bytes of a whole column at once, not row by
row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_trimq.arrow.record_locations import (
    BadRecords,
    Bytes,
    FieldLocations,
    LocatedRecords,
    Numbers,
    keep,
    read_varints,
)

# Spark is fastest with batches of a few megabytes.
ROWS_PER_BATCH = 20_000

_INLINE = 12  # Arrow stores values of up to 12 bytes in the view itself


class KafkaRows:
    """Builds record batches with the columns of `schema` from the records of one stream."""

    def __init__(self, schema: pa.Schema, topic: str, number: int) -> None:
        self._schema = schema
        self._topic = topic
        self._number = number
        self._constants: dict[str, pa.Array] = {}

    def batches(self, found: LocatedRecords) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(found.offset), ROWS_PER_BATCH):
            part = found
            if len(found.offset) > ROWS_PER_BATCH:
                part = keep(found, slice(first, first + ROWS_PER_BATCH))
            columns = [self._column(field, part) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, field: pa.Field, found: LocatedRecords) -> pa.Array:
        make = _COLUMNS.get(field.name)
        if make is not None:
            return make(found)
        if field.name not in self._constants:
            self._constants[field.name] = self._constant(field)
        return self._constants[field.name].slice(0, len(found.offset))

    def _constant(self, field: pa.Field) -> pa.Array:
        if field.name == "topic":
            return pa.repeat(pa.scalar(self._topic, pa.string()), ROWS_PER_BATCH)
        if field.name == "partition":
            return pa.repeat(pa.scalar(self._number, pa.int32()), ROWS_PER_BATCH)
        return empty_column(field.type, ROWS_PER_BATCH)


def empty_column(type: pa.DataType, count: int) -> pa.Array:
    """Returns a column for a field that the protocol lacks. Lists and maps are empty, not null: Spark is slow with
    nulls."""
    offsets = pa.array(np.zeros(count + 1, np.int32))
    if pa.types.is_map(type):
        return pa.MapArray.from_arrays(offsets, pa.nulls(0, type.key_type), pa.nulls(0, type.item_type))
    if pa.types.is_list(type):
        return pa.ListArray.from_arrays(offsets, pa.nulls(0, type.value_type), type=type)
    return pa.nulls(count, type)


def _numbers(values: Numbers, type: pa.DataType, dtype: npt.DTypeLike) -> pa.Array:
    return pa.array(values.astype(dtype, copy=False), type)


def _unless_negative(values: Numbers, type: pa.DataType, dtype: npt.DTypeLike) -> pa.Array:
    return pa.array(values.astype(dtype, copy=False), type, mask=values < 0)


def _times(found: LocatedRecords) -> pa.Array:
    return pa.array(found.timestamp_ms * 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


_COLUMNS: dict[str, Callable[[LocatedRecords], pa.Array]] = {
    "key": lambda found: gather(found.data, found.key),
    "value": lambda found: gather(found.data, found.value),
    "offset": lambda found: _numbers(found.offset, pa.int64(), np.int64),
    "timestamp": _times,
    "timestampType": lambda found: _numbers(found.timestamp_type, pa.int32(), np.int32),
    "producerId": lambda found: _unless_negative(found.producer_id, pa.int64(), np.int64),
    "producerEpoch": lambda found: _unless_negative(found.producer_epoch, pa.int32(), np.int32),
    "sequence": lambda found: _unless_negative(found.sequence, pa.int32(), np.int32),
    "headers": lambda found: _headers(found),
}


# -- bytes


def gather(data: Bytes, fields: FieldLocations) -> pa.Array:
    """Returns a binary column of the fields at these positions: builds views, which Arrow copies into one buffer."""
    position, length = fields
    count = len(length)
    if count and int((position + length).max()) > len(data):  # Arrow does not check and would read beyond the buffer
        raise BadRecords("a field is longer than the records")
    is_null = length < 0
    null_count = int(is_null.sum())
    if null_count == count:  # common for keys
        return pa.nulls(count, pa.binary())
    views: npt.NDArray[np.uint32] = np.zeros((count, 4), np.uint32)
    views[:, 0] = np.where(is_null, 0, length)
    short = np.flatnonzero(length <= _INLINE)
    if len(short) < count:
        views[:, 3] = position
    if len(short):
        views[short, 1:] = _inline(data, position[short], views[short, 0])
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if null_count else None
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), count, buffers, null_count).cast(pa.binary())


def _inline(data: Bytes, position: Numbers, length: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    step = np.arange(_INLINE)
    places = np.minimum(position[:, None] + step, len(data) - 1)
    taken = np.where(step < length[:, None], data[places], 0).astype(np.uint8)
    return np.ascontiguousarray(taken).view(np.uint32)


# -- headers


def _headers(found: LocatedRecords) -> pa.Array:
    """Returns the headers of each record as a list of (key, value), in order."""
    counts = found.header_count
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    total = int(ends[-1])
    columns = [np.zeros(total, np.int64) for _ in range(4)]
    rows, position, turn = np.flatnonzero(counts > 0), found.header_position[counts > 0], 0
    while len(rows):
        into = ends[rows] + turn
        for column in (0, 2):
            length, position = read_varints(found.data, position)
            columns[column][into], columns[column + 1][into] = position, length
            position = position + np.maximum(length, 0)
        turn += 1
        left = counts[rows] > turn
        rows, position = rows[left], position[left]
    names = _text(gather(found.data, FieldLocations(columns[0], columns[1])))
    values = gather(found.data, FieldLocations(columns[2], columns[3]))
    pairs = pa.StructArray.from_arrays([names, values], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pairs)


def _text(column: pa.Array) -> pa.Array:
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowInvalid:  # a name is not valid UTF-8: replace the invalid bytes
        shown: list[Any] = [None if raw is None else raw.decode("utf-8", "replace") for raw in column.to_pylist()]
        return pa.array(shown, pa.string())
