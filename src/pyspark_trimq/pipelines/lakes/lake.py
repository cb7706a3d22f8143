"""Interface of a lake to the pipelines, independent of its format: commits that take effect once, and the list of live
files."""

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
READ_BYTES = 16 << 20  # approximate memory of a task that reads files
FEWEST_ROWS_AT_ONCE, MAX_ROWS_AT_ONCE = 8, 4096
KEEP_REPLACED = "1 hour"  # how long replaced files are kept
# Characters in folder names that the libraries of a format cannot handle.
FORBIDDEN_CHARACTERS = {"parquet": "", "delta": "[]^|\\", "iceberg": "?#"}
OWN_FOLDER = "_trimq"  # our own folder in a lake; readers ignore names that begin with an underscore


class Lake(Protocol):
    """`writer` identifies the committing run (the id of its checkpoint), `batch` numbers its commits. A repeated commit
    of the same batch has no effect."""

    folder: Path
    format: str
    staging: Path
    """Folder for files that are not committed yet."""
    keeps_columns: bool
    """True if topic and date are also columns inside the files."""

    def committed(self, writer: str) -> int:
        """Returns the last committed batch of this writer, or -1."""

    def append(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        """Appends the rows unless the batch is already committed. Returns the added files."""

    def replace(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        """Replaces all rows of the lake unless the batch is already committed. Returns the added files."""

    def files(self) -> list[DataFile]:
        """Returns the live files: committed and not replaced."""

    def compact(self, spark: SparkSession, small_bytes: int, at_least: int) -> int:
        """Merges small files of a topic and date where there are `at_least` so many. Returns how many were replaced."""

    def sweep(self) -> int:
        """Completes the commit of a killed run, deletes its uncommitted files, and files replaced long enough ago.
        Returns how many files were deleted. The caller must hold the lock of the lake."""


@contextmanager
def open_for_writing(folder: Path, format: str, keep: str = KEEP_REPLACED) -> Iterator[Lake]:
    """Opens or creates the lake and locks it against other writers. Replaced files are kept for `keep`. Raises
    StartupError if the lake has another format, the folder name is unsuitable, or another run holds the lock."""
    if format not in FORMATS:
        raise StartupError(f"the format of a lake must be one of {', '.join(FORMATS)}, not {format!r}")
    keep_ms = 0 if keep.strip() == "0" else parse_duration(keep)
    folder = folder.resolve()
    unfit = sorted(set(FORBIDDEN_CHARACTERS[format]) & set(str(folder)))
    if unfit:
        raise StartupError(f"a lake of the format {format} cannot be in {folder}: its name contains {' '.join(unfit)}")
    found = format_of(folder)
    if found not in ("", format):
        raise StartupError(f"the lake {folder} has the format {found}, not {format}")
    own = folder / OWN_FOLDER
    own.mkdir(parents=True, exist_ok=True)
    with hold_lock(own / "lock", f"another run writes to the lake {folder}"):
        (own / "format").write_text(format)
        yield _lake(folder, format, keep_ms)


def open_for_reading(folder: Path) -> Lake:
    """Opens a lake for reading. Raises StartupError if the folder is not a lake."""
    found = format_of(folder)
    if not found:
        raise StartupError(f"{folder} is not an archive: it was not written by `trimq pipeline archive`")
    return _lake(folder.resolve(), found, parse_duration(KEEP_REPLACED))


def format_of(folder: Path) -> str:
    """Returns "" if no pipeline has written to the folder."""
    try:
        return (folder / OWN_FOLDER / "format").read_text().strip()
    except FileNotFoundError:
        return ""


def read(spark: SparkSession, files: Sequence[DataFile]) -> DataFrame:
    """Returns the rows of these files, which must all be of one topic."""
    topics = {file.topic for file in files}
    if len(topics) != 1:
        raise ValueError(f"files of one topic, not of {sorted(topics)}")
    spark.conf.set("spark.sql.parquet.columnarReaderBatchSize", str(_rows_at_once(files)))
    # Spark treats brackets in a name as a pattern, so escape them. Its own option against that reads files repeatedly.
    names = [re.sub(r"([\[\]{}*?\\])", r"\\\1", str(file.path)) for file in files]
    return spark.read.parquet(*names).withColumn(TOPIC, F.lit(topics.pop())).drop(DATE)


def _rows_at_once(files: Sequence[DataFile]) -> int:
    """Returns how many rows have about READ_BYTES: Spark limits its read batches by rows, not by bytes."""
    groups = [
        metadata.row_group(number)
        for metadata in (parquet.read_metadata(file.path) for file in files)
        for number in range(metadata.num_row_groups)
    ]
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(min(READ_BYTES // max(widest, 1), MAX_ROWS_AT_ONCE), FEWEST_ROWS_AT_ONCE)


def _lake(folder: Path, format: str, keep_ms: int) -> Lake:
    if format == "delta":
        from pyspark_trimq.pipelines.lakes.delta import DeltaLake

        return DeltaLake(folder, keep_ms)
    if format == "iceberg":
        from pyspark_trimq.pipelines.lakes.iceberg import IcebergLake

        return IcebergLake(folder, keep_ms)
    from pyspark_trimq.pipelines.lakes.parquet import ParquetLake

    return ParquetLake(folder)
