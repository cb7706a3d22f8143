"""`spark.readStream.format("trimq")`: decides what each micro-batch reads, and tells how far the query is."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_trimq.batch_reader import RangePartition, connect, read_range
from pyspark_trimq.bounds import Progress, admit, find_bound, find_ends, from_json, ranges, split, to_json
from pyspark_trimq.columns import check_schema
from pyspark_trimq.lag import Lag, introduce
from pyspark_trimq.mistakes import Mistake
from pyspark_trimq.options import LATEST, SourceOptions, read_source_options
from pyspark_trimq.ports import Ends, Port, StreamKey

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made once per query, where it is planned, and once more in every task."""

    def __init__(self, schema: StructType, given: Mapping[str, str]) -> None:
        check_schema(schema)
        self._options = read_source_options(given)
        _check_stream(self._options)
        self._schema = schema
        self._port: Port | None = None
        self._target: Progress | None = None
        self._latest: Progress = {}
        self._id = uuid.uuid4().hex
        self._lag = Lag(self._id)

    def _connected(self) -> Port:
        if self._port is None:
            self._port = connect(self._options)
        return self._port

    # -- what each batch reads

    def initialOffset(self) -> Json:
        options, port = self._options, self._connected()
        ends = find_ends(port, options)
        return to_json(find_bound(port, ends, options.starting, options.starting_ms, LATEST, "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _ends_of(find_ends(self._connected(), self._options))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begun = from_json(start)
        self._lag.reached(self._connected(), begun)  # Spark asks when the batch before is done
        ends = find_ends(self._connected(), self._options)
        self._latest = _ends_of(ends)
        end = self._latest if self._target is None else self._up_to_target()
        # What is gone is kept in mind: whether that is to fail is decided when it is to be read.
        end = {**begun, **{key: max(until, begun.get(key, 0)) for key, until in end.items()}}
        begun = {key: begun.get(key, ends[key].start if key in ends else 0) for key in end}
        if not isinstance(limit, ReadAllAvailable):
            if self._options.max_offsets is not None:
                end = admit(begun, end, self._options.max_offsets)
            if self._options.max_bytes is not None:
                end = admit(begun, end, _messages_in(self._options.max_bytes, ends))
        return to_json(end)

    def _up_to_target(self) -> Progress:
        assert self._target is not None
        return {key: min(until, self._target[key]) for key, until in self._latest.items() if key in self._target}

    def reportLatestOffset(self) -> Json | None:
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: Json, end: Json) -> Sequence[RangePartition]:
        options = self._options
        ends = find_ends(self._connected(), options)
        whole = ranges(from_json(start), from_json(end), ends, options.fails_on_loss)
        begins = {(part.key, part.start) for part in whole} if self._lag.needs_introduction else set()
        self._lag.planned()
        return [
            RangePartition(part, self._id, (part.key, part.start) in begins)
            for part in split(whole, options.min_partitions)
        ]

    # -- reading, in the tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        if partition.is_first:
            introduce(lambda: connect(self._options), partition.wanted, partition.reader)
        return read_range(self._options, self._schema, partition.wanted)

    def commit(self, end: Json) -> None:
        """It comes a batch late, and not at all for the last one: `latestOffset` tells more."""

    def stop(self) -> None:
        self._lag.stop()
        if self._port is not None:
            self._port.close()
            self._port = None


def _check_stream(options: SourceOptions) -> None:
    if options.ending is not None or options.ending_ms is not None:
        raise Mistake("endingOffsets and endingTimestamp are for spark.read: a stream has no end")
    if options.max_bytes is not None and not options.bootstrap.startswith(("http://", "https://")):
        raise Mistake("maxBytesPerTrigger needs the HTTP port, which tells sizes: set bootstrap to http://host:8180")


def _ends_of(ends: Mapping[StreamKey, Ends]) -> Progress:
    return {key: each.end for key, each in ends.items()}


def _messages_in(max_bytes: int, ends: Mapping[StreamKey, Ends]) -> int:
    """About how many messages of these streams are so long together: one at least."""
    messages = sum(each.end - each.start for each in ends.values())
    kept = sum(each.bytes for each in ends.values())
    return max(max_bytes * messages // kept, 1) if kept else max_bytes
