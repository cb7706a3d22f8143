"""Stream reader, `spark.readStream.format("trimq")`: decides which offsets each micro-batch reads, and reports the
lag."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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

from pyspark_trimq.arrow.columns import check_schema
from pyspark_trimq.broker.client import BrokerClient, StreamBounds, StreamKey
from pyspark_trimq.mistakes import Mistake, TopicMistake
from pyspark_trimq.source.batch_reader import RangePartition, connect, read_range
from pyspark_trimq.source.bounds import find_bound, find_ends, limit_offsets, split
from pyspark_trimq.source.lag_reporter import LagReporter, commit_first_offset
from pyspark_trimq.source.options import LATEST, SourceOptions, read_source_options
from pyspark_trimq.source.positions import (
    OffsetsByStream,
    Position,
    check_deleted_streams,
    check_ranges_available,
    clip_to_available,
    from_json,
    ids_of,
    planned,
    resume,
    to_json,
)

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Created once in the process that plans the query, and once in every task."""

    def __init__(self, schema: StructType, given: Mapping[str, str]) -> None:
        check_schema(schema)
        self._options = read_source_options(given)
        _check_stream(self._options)
        self._schema = schema
        self._client: BrokerClient | None = None
        self._has_target = False
        self._target: Mapping[StreamKey, StreamBounds] | None = None
        self._latest: Mapping[StreamKey, StreamBounds] = {}
        self._id = uuid.uuid4().hex
        self._lag = LagReporter(self._id, self._options.keeps_group)

    def _connected(self) -> BrokerClient:
        if self._client is None:
            self._client = connect(self._options)
        return self._client

    # -- planning

    def initialOffset(self) -> Json:
        options, client = self._options, self._connected()
        ends = find_ends(client, options)
        begin = find_bound(client, ends, options.starting, options.starting_ms, LATEST, "startingOffsets")
        return to_json(Position(begin, ids_of(ends)))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._has_target = True  # `latestOffset`, which Spark calls next, determines it

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        options, client, start_position = self._options, self._connected(), from_json(start)
        ends = find_ends(client, options, start_position)
        if options.fails_on_loss:
            check_deleted_streams(start_position, self._latest, ends)
        begin = resume(start_position, ends, options.fails_on_loss)
        self._lag.report_progress(client, begin)  # Spark calls this after the previous batch is done
        self._latest = ends
        end = {key: max(until, begin[key]) for key, until in self._ends_to_read(begin).items()}
        if not isinstance(limit, ReadAllAvailable) and end != begin:
            limits = [] if options.max_offsets is None else [options.max_offsets]
            if options.max_bytes is not None:
                limits.append(_messages_in(options.max_bytes, client, ends))
            end = limit_offsets(begin, end, min(limits)) if limits else end
        # Keep positions of deleted streams: they may exist again.
        ids = ids_of(ends)
        gone = {
            key
            for key in start_position.offsets.keys() - ends.keys()
            if start_position.is_same_topic(key.topic, ids.get(key.topic, ""))
        }
        kept = {key: at for key, at in start_position.offsets.items() if key in gone}
        return to_json(Position({**kept, **end}, {**start_position.ids, **ids}))

    def _ends_to_read(self, begin: OffsetsByStream) -> OffsetsByStream:
        """Returns the end of each stream. With AvailableNow at most the end at its start, and nothing of streams
        created since."""
        if self._has_target and self._target is None:
            self._target = self._latest
        if self._target is None:
            return {key: now.end for key, now in self._latest.items()}
        target = {key: then.end for key, then in self._target.items()}
        is_same = {key: key in target and self._target[key].id == now.id for key, now in self._latest.items()}
        return {key: min(now.end, target[key]) if is_same[key] else begin[key] for key, now in self._latest.items()}

    def reportLatestOffset(self) -> Json | None:
        offsets = {key: now.end for key, now in self._latest.items()}
        return to_json(Position(offsets, ids_of(self._latest))) if offsets else None

    def partitions(self, start: Json, end: Json) -> Sequence[RangePartition]:
        options, start_position, until = self._options, from_json(start), from_json(end)
        ends = find_ends(self._connected(), options, until)
        whole = planned(start_position, until)
        if options.fails_on_loss:
            check_ranges_available(whole, start_position, until, ends)
        begins = {(part.key, part.start) for part in whole} if self._lag.needs_group else set()
        self._lag.planned()
        return [
            RangePartition(clip_to_available(part, until, ends), self._id, (part.key, part.start) in begins)
            for part in split(whole, options.min_partitions)
        ]

    # -- reading, in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        if partition.reports_group:
            commit_first_offset(lambda: connect(self._options), partition.wanted, partition.planner_id)
        return read_range(self._options, self._schema, partition.wanted)

    def commit(self, end: Json) -> None:
        """Not used: Spark calls it one batch late, and never for the last batch. `latestOffset` reports progress
        instead."""

    def stop(self) -> None:
        self._lag.stop()
        if self._client is not None:
            self._client.close()
            self._client = None


def _check_stream(options: SourceOptions) -> None:
    if options.ending is not None or options.ending_ms is not None:
        raise Mistake("endingOffsets and endingTimestamp are for spark.read only: a stream has no end")


def _messages_in(max_bytes: int, client: BrokerClient, ends: Mapping[StreamKey, StreamBounds]) -> int:
    """Returns how many messages of these streams have about `max_bytes` in total, at least one."""
    messages = sum(each.last - each.start for each in ends.values())
    kept = 0
    for topic in {key.topic for key in ends}:
        with suppress(TopicMistake):  # deleted meanwhile
            sizes = client.sizes(topic)
            kept += sum(sizes.get(key.number, 0) for key in ends if key.topic == topic)
    return max(max_bytes * messages // kept, 1) if kept else max_bytes
