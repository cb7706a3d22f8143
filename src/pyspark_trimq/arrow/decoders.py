"""Chooses the decoder that turns stored bytes of a layout into record batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import pyarrow as pa

from pyspark_trimq.arrow.kafka_rows import KafkaRows
from pyspark_trimq.arrow.message_rows import content_rows, record_batches, unit_rows
from pyspark_trimq.arrow.record_locations import RecordRange, locate
from pyspark_trimq.mistakes import Unreachable
from trimq.model import Buffer

Decode = Callable[[Buffer, int, int, Collection[tuple[int, int]]], Iterator[pa.RecordBatch]]
"""(stored bytes, start offset, end offset, aborted transactions) -> the messages from start to end (exclusive) without
aborted ones. The batches hold copies: the caller overwrites the stored bytes with the next response."""

_ROW_READERS = {"commit-log": unit_rows, "queue-log": content_rows}


def decoder_for(home: str, schema: pa.Schema, topic: str, number: int) -> Decode:
    if home == "partition-log":
        rows = KafkaRows(schema, topic, number)
        return lambda stored, start, end, aborted: rows.batches(
            locate(stored, RecordRange(start, end, [(id, first) for id, first in aborted]))
        )
    if home not in _ROW_READERS:
        raise Unreachable(f"the broker stores {topic} in the unknown layout {home!r}: update trimq here to its version")
    read = _ROW_READERS[home]
    return lambda stored, start, end, aborted: record_batches(read(stored, start, end), schema, topic, number)
