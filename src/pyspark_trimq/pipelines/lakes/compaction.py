"""Chooses the files of a lake to compact, and returns their rows in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.lakes.files import DATE, DataFile
from pyspark_trimq.pipelines.lakes.lake import read

WHOLE_BYTES = 128 * 1024 * 1024  # target size of a compacted file


def small_groups(files: Sequence[DataFile], small_bytes: int, at_least: int) -> list[list[DataFile]]:
    """Returns groups of at least `at_least` files below `small_bytes`, by topic and date."""
    groups: dict[tuple[str, str], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.bytes < small_bytes:
            groups[file.topic, file.date].append(file)
    return [group for _, group in sorted(groups.items()) if len(group) >= max(at_least, 2)]


def compacted_rows(spark: SparkSession, group: Sequence[DataFile]) -> DataFrame:
    """Returns the rows of the group, ordered by partition and offset if these columns exist."""
    pieces = max(1, -(-sum(file.bytes for file in group) // WHOLE_BYTES))
    frame = read(spark, group).withColumn(DATE, F.lit(group[0].date))
    order = [name for name in ("partition", "offset") if name in frame.columns]
    frame = frame.coalesce(1) if pieces == 1 or not order else frame.repartitionByRange(pieces, *order)
    return frame.sortWithinPartitions(*order) if order else frame
