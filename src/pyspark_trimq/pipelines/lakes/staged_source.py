"""Spark source whose tasks write the messages of their ranges into files and return one row per file. Spark plans the
tasks as usual, but no message passes through it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_trimq.arrow.columns import arrow_schema, row_schema
from pyspark_trimq.arrow.record_locations import collect_aborted
from pyspark_trimq.pipelines.lakes.files import ABORTED, DataFile
from pyspark_trimq.pipelines.lakes.task_files import TaskFiles
from pyspark_trimq.source.batch_reader import RangePartition
from pyspark_trimq.source.options import read_source_options
from pyspark_trimq.source.stream_reader import StreamReader

NAME = "trimq-staged"
STAGING = "staging"
KEEPS_COLUMNS = "keepsColumns"

# Either the fields of a DataFile, or only topic and `aborted`: aborted records, which are in no file.
_FILE = StructType(
    [
        StructField("path", StringType()),
        StructField("topic", StringType()),
        StructField("date", StringType()),
        StructField("rows", LongType()),
        StructField("bytes", LongType()),
        StructField(ABORTED, StringType()),
    ]
)


class StagedSource(DataSource):
    """Data source `trimq-staged`. Takes the options of `format("trimq")` and two more: the staging folder, and whether
    files contain topic and date."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return _FILE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StagedReader(self.options)


class StagedReader(StreamReader):
    def __init__(self, given: Mapping[str, str]) -> None:
        own = {STAGING.lower(), KEEPS_COLUMNS.lower()}
        options = {name: value for name, value in given.items() if name.lower() not in own}
        super().__init__(row_schema(read_source_options(options).has_headers), options)
        values = {name.lower(): value for name, value in given.items()}
        self._staging = Path(values[STAGING.lower()])
        self._keeps_columns = values[KEEPS_COLUMNS.lower()] == "true"

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        topic, number = partition.wanted.key
        files = TaskFiles(self._staging, topic, self._keeps_columns)
        try:
            with collect_aborted() as aborted:
                for batch in super().read(partition):
                    files.add(batch)
            written = files.close()
        except BaseException:
            files.abandon()
            raise
        if written or aborted:
            yield _described(written, topic, [[number, *each] for each in aborted])


def _described(files: list[DataFile], topic: str, aborted: list[list[int]]) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [{**file._asdict(), "path": str(file.path)} for file in files]
    if aborted:
        rows.append({"topic": topic, ABORTED: json.dumps(aborted)})
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(_FILE))
