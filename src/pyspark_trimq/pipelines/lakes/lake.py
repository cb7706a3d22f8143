"""What a lake offers the pipelines, whatever its format: commits that happen once, and the files that count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.checkpoints import holding
from pyspark_trimq.pipelines.lakes.files import DATE, TOPIC, DataFile, Rows
from trimq.errors import StartMistake

FORMATS = ("parquet", "delta", "iceberg")
OWN = "_trimq"  # our own folder in a lake; readers pass over names that begin so


class Lake(Protocol):
    """`writer` names who commits (a checkpoint), `batch` counts its commits: each is done once, however often it is
    tried."""

    folder: Path
    format: str
    staging: Path
    """Where files are written, before they count."""
    keeps_columns: bool
    """Whether topic and date also stand within the files."""

    def committed(self, writer: str) -> int:
        """The last batch of this writer that is in the lake; -1: none."""

    def append(self, rows: Rows, writer: str, batch: int) -> list[DataFile]:
        """Add the rows, if this batch is not there yet. What was added."""

    def replace(self, rows: Rows, writer: str, batch: int) -> list[DataFile]:
        """Put the rows in the place of all that is there, if this batch is not there yet."""

    def files(self) -> list[DataFile]:
        """The files that count, and no others."""

    def compact(self, spark: SparkSession, small_bytes: int, at_least: int) -> int:
        """Put small files of a topic and date together where there are `at_least` so many. How many went."""

    def sweep(self) -> int:
        """Finish what a killed run had committed, remove what it had not. How many files went."""


@contextmanager
def opened(folder: Path, format: str) -> Iterator[Lake]:
    """The lake, for as long as no other run writes to it, swept. StartMistake: it has another format."""
    if format not in FORMATS:
        raise StartMistake(f"a lake has one of the formats {', '.join(FORMATS)}, not {format!r}")
    found = format_of(folder)
    if found not in ("", format):
        raise StartMistake(f"the lake {folder} is {found}, not {format}")
    own = folder / OWN
    own.mkdir(parents=True, exist_ok=True)
    with holding(own / "lock", f"another run writes to the lake {folder}"):
        (own / "format").write_text(format)
        lake = _lake(folder, format)
        lake.sweep()
        yield lake


def existing(folder: Path) -> Lake:
    """A lake to read. StartMistake: there is none."""
    found = format_of(folder)
    if not found:
        raise StartMistake(f"{folder} is no archive: it was not written by `trimq pipeline archive`")
    return _lake(folder, found)


def format_of(folder: Path) -> str:
    """ "" if no pipeline has written there."""
    try:
        return (folder / OWN / "format").read_text().strip()
    except FileNotFoundError:
        return ""


def read(spark: SparkSession, files: Sequence[DataFile]) -> DataFrame:
    """The rows of these files, which are all of one topic."""
    topics = {file.topic for file in files}
    if len(topics) != 1:
        raise ValueError(f"files of one topic, not of {sorted(topics)}")
    frame = spark.read.parquet(*(str(file.path) for file in files)).withColumn(TOPIC, F.lit(topics.pop()))
    return frame.drop(DATE)


def _lake(folder: Path, format: str) -> Lake:
    if format == "delta":
        from pyspark_trimq.pipelines.lakes.delta import DeltaLake

        return DeltaLake(folder)
    if format == "iceberg":
        from pyspark_trimq.pipelines.lakes.iceberg import IcebergLake

        return IcebergLake(folder)
    from pyspark_trimq.pipelines.lakes.parquet import ParquetLake

    return ParquetLake(folder)
