"""What a lake offers the pipelines, whatever its format: commits that happen once, and the files that count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.lakes.files import DATE, TOPIC, DataFile, RowSource
from pyspark_trimq.pipelines.runner.checkpoint import hold_lock
from pyspark_trimq.pipelines.runner.durations import parse_duration
from trimq.errors import StartupError

FORMATS = ("parquet", "delta", "iceberg")
READ_BYTES = 16 << 20  # what a task that reads files holds of them at once, about
FEWEST_ROWS_AT_ONCE, MOST_ROWS_AT_ONCE = 8, 4096
KEEP_REPLACED = "1 hour"  # how long files stay that others were put in the place of
# Signs in the names of folders that the libraries for the format stumble over.
FORBIDDEN_CHARACTERS = {"parquet": "", "delta": "[]^|\\", "iceberg": "?#"}
OWN_FOLDER = "_trimq"  # our own folder in a lake; readers pass over names that begin so


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

    def append(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        """Add the rows, if this batch is not there yet. What was added."""

    def replace(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        """Put the rows in the place of all that is there, if this batch is not there yet."""

    def files(self) -> list[DataFile]:
        """The files that count, and no others."""

    def compact(self, spark: SparkSession, small_bytes: int, at_least: int) -> int:
        """Put small files of a topic and date together where there are `at_least` so many. How many went."""

    def sweep(self) -> int:
        """Finish what a killed run had committed, remove what it had not, and what was replaced long enough ago. How
        many files went. Only for those to whom the lake belongs."""


@contextmanager
def open_for_writing(folder: Path, format: str, keep: str = KEEP_REPLACED) -> Iterator[Lake]:
    """The lake, for as long as no other run writes to it. What it held before a change is kept for a while.
    StartupError: it has another format, or there can be none."""
    if format not in FORMATS:
        raise StartupError(f"a lake has one of the formats {', '.join(FORMATS)}, not {format!r}")
    keep_ms = 0 if keep.strip() == "0" else parse_duration(keep)
    folder = folder.resolve()
    unfit = sorted(set(FORBIDDEN_CHARACTERS[format]) & set(str(folder)))
    if unfit:
        raise StartupError(f"a lake of the format {format} cannot lie in {folder}: its name has {' '.join(unfit)}")
    found = format_of(folder)
    if found not in ("", format):
        raise StartupError(f"the lake {folder} is {found}, not {format}")
    own = folder / OWN_FOLDER
    own.mkdir(parents=True, exist_ok=True)
    with hold_lock(own / "lock", f"another run writes to the lake {folder}"):
        (own / "format").write_text(format)
        yield _lake(folder, format, keep_ms)


def open_for_reading(folder: Path) -> Lake:
    """A lake to read. StartupError: there is none."""
    found = format_of(folder)
    if not found:
        raise StartupError(f"{folder} is no archive: it was not written by `trimq pipeline archive`")
    return _lake(folder.resolve(), found, parse_duration(KEEP_REPLACED))


def format_of(folder: Path) -> str:
    """ "" if no pipeline has written there."""
    try:
        return (folder / OWN_FOLDER / "format").read_text().strip()
    except FileNotFoundError:
        return ""


def read(spark: SparkSession, files: Sequence[DataFile]) -> DataFrame:
    """The rows of these files, which are all of one topic."""
    topics = {file.topic for file in files}
    if len(topics) != 1:
        raise ValueError(f"files of one topic, not of {sorted(topics)}")
    spark.conf.set("spark.sql.parquet.columnarReaderBatchSize", str(_rows_at_once(files)))
    # Spark would take brackets in a name for a pattern. Its own way to say that they are none reads files repeatedly.
    names = [re.sub(r"([\[\]{}*?\\])", r"\\\1", str(file.path)) for file in files]
    return spark.read.parquet(*names).withColumn(TOPIC, F.lit(topics.pop())).drop(DATE)


def _rows_at_once(files: Sequence[DataFile]) -> int:
    """As many rows as come to some megabytes: Spark takes them by number, however large they are."""
    groups = [
        metadata.row_group(number)
        for metadata in (parquet.read_metadata(file.path) for file in files)
        for number in range(metadata.num_row_groups)
    ]
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(min(READ_BYTES // max(widest, 1), MOST_ROWS_AT_ONCE), FEWEST_ROWS_AT_ONCE)


def _lake(folder: Path, format: str, keep_ms: int) -> Lake:
    if format == "delta":
        from pyspark_trimq.pipelines.lakes.delta import DeltaLake

        return DeltaLake(folder, keep_ms)
    if format == "iceberg":
        from pyspark_trimq.pipelines.lakes.iceberg import IcebergLake

        return IcebergLake(folder, keep_ms)
    from pyspark_trimq.pipelines.lakes.parquet import ParquetLake

    return ParquetLake(folder)
