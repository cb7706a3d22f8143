"""Data files of a lake, written by Spark's tasks into a staging folder that readers do not see, one topic and date per
file. Spark writes the rows of a frame; for messages that are archived unchanged, tasks write the files themselves."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow.parquet as parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

TOPIC, DATE = "topic", "date"
ABORTED = "aborted"
# SQL expression for the day of a message in UTC, independent of the session's time zone, within the years 1 to 9999.
DAY_EXPRESSION = (
    "cast(date_from_unix_date(cast(greatest(least(floor(unix_micros(timestamp) / 86400000000), 2932896), -719162) "
    "as int)) as string)"
)
# Maximum of open files per task; with more, Spark sorts by topic and date instead.
OPEN_FILES = 64


class DataFile(NamedTuple):
    path: Path
    topic: str
    date: str
    rows: int
    bytes: int


class RowSource(Protocol):
    """Rows to be committed to a lake."""

    def schema(self) -> Any:
        """Returns the Arrow schema of the lake, including the date."""

    def stage(self, staging: Path, keeps_columns: bool) -> list[DataFile]:
        """Writes the rows to files below `staging` and syncs them. `keeps_columns`: topic and date are also columns
        inside the files."""


class FrameRows:
    """Rows of a frame. Each file keeps the order of the frame's partition."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def schema(self) -> Any:
        return arrow_schema(self._frame.schema)

    def stage(self, staging: Path, keeps_columns: bool) -> list[DataFile]:
        frame, folder = self._frame, staging / uuid.uuid4().hex
        session = frame.sparkSession
        session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        session.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES))
        names = (TOPIC, DATE)
        if keeps_columns:
            names = ("of_topic", "of_date")
            frame = frame.withColumn(names[0], F.col(TOPIC)).withColumn(names[1], F.col(DATE))
        frame.write.partitionBy(*names).option("compression", "zstd").parquet(str(folder))
        return [_described(path, names) for path in sorted(folder.glob("*/*/*.parquet"))]


class StagedRows:
    """Rows in files that tasks write. Each row of `frame` describes one file; collecting the frame writes the files.
    Before the commit `note` is called with (topic, aborted records), which are in no file."""

    def __init__(self, frame: DataFrame, schema: StructType, note: Callable[[list[tuple[str, str]]], None]) -> None:
        self._frame = frame
        self._schema = schema
        self._note = note

    def schema(self) -> Any:
        return arrow_schema(self._schema)

    def stage(self, staging: Path, keeps_columns: bool) -> list[DataFile]:
        rows = self._frame.collect()
        self._note([(row[TOPIC], row[ABORTED]) for row in rows if row[ABORTED] is not None])
        return sorted(DataFile(staging / row["path"], *row[1:5]) for row in rows if row[ABORTED] is None)


def _described(path: Path, names: Sequence[str]) -> DataFile:
    topic, date = (unquote(part.removeprefix(f"{name}=")) for part, name in zip(path.parts[-3:-1], names, strict=True))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return DataFile(path, topic, date, parquet.read_metadata(path).num_rows, path.stat().st_size)


def arrow_schema(schema: StructType) -> Any:
    """Returns the Arrow schema with all columns nullable, because Spark's nullability differs between batches."""
    described = re.sub(r'("(?:nullable|containsNull|valueContainsNull)":)false', r"\1true", schema.json())
    return to_arrow_schema(StructType.fromJson(json.loads(described)), timezone="UTC")
