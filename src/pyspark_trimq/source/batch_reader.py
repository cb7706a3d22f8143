"""Batch reader, `spark.read.format("trimq")`: reads each stream between two offsets, which are fixed when Spark
plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_trimq.arrow.columns import arrow_schema, check_schema
from pyspark_trimq.broker.client import BrokerClient, OffsetRange, open_broker_client
from pyspark_trimq.source.bounds import check_batch_bounds, find_bound, find_ends, split
from pyspark_trimq.source.options import EARLIEST, LATEST, SourceOptions, read_source_options
from pyspark_trimq.source.positions import Position, check_ranges_available, clip_to_available, ids_of, planned


class RangePartition(InputPartition):
    """Range that one task reads. `planner_id` identifies the stream reader that planned it; empty for a batch."""

    def __init__(self, wanted: OffsetRange, planner_id: str = "", reports_group: bool = False) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.planner_id = planner_id
        self.reports_group = reports_group


class BatchReader(DataSourceReader):
    def __init__(self, schema: StructType, given: Mapping[str, str]) -> None:
        check_schema(schema)
        self._options = read_source_options(given)
        check_batch_bounds(self._options)
        self._schema = schema

    def partitions(self) -> Sequence[RangePartition]:
        options = self._options
        with closing(connect(options)) as client:
            ends = find_ends(client, options)
            ids = ids_of(ends)
            start = Position(
                find_bound(client, ends, options.starting, options.starting_ms, EARLIEST, "startingOffsets"), ids
            )
            end = Position(find_bound(client, ends, options.ending, options.ending_ms, LATEST, "endingOffsets"), ids)
        whole = planned(start, end)
        if options.fails_on_loss:
            check_ranges_available(whole, start, end, ends)
        there = [clip_to_available(part, end, ends) for part in whole]
        return [
            RangePartition(part)
            for part in split([part for part in there if part.start < part.end], options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):  # Spark's placeholder for an empty result
            return iter(())
        return read_range(self._options, self._schema, partition.wanted)


def connect(options: SourceOptions, waits_for_broker: bool = False) -> BrokerClient:
    return open_broker_client(
        options.bootstrap, options.namespace, options.is_committed, waits_for_broker, options.login, options.encryption
    )


def read_range(options: SourceOptions, schema: StructType, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    with closing(connect(options, waits_for_broker=True)) as client:
        yield from client.read(wanted, arrow_schema(schema), options.fails_on_loss)
