"""Divides an archive into pieces that a task can hold, by the bytes of the records, not only by their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

TASK_BYTES = 64 << 20
ALL_TASKS_BYTES = 256 << 20  # per round: Java's memory does not grow with the number of partitions
MIN_TASK_BYTES = 4 << 20
MAX_BUCKETS = 100_000
RECORD_BYTES = 100  # approximate size of a record without its fields

PartitionRanges = dict[int, tuple[int, int]]
"""First and last offset (inclusive) by partition."""


class Bucket(NamedTuple):
    """Neighbouring records of one partition. Offsets may have gaps, as in the lake."""

    partition: int
    first: int
    last: int
    rows: int
    bytes: int
    largest_bytes: int


class Round(NamedTuple):
    """Rows that are written at once, with one task per partition."""

    spans: PartitionRanges
    rows: int


def offset_condition(spans: Mapping[int, tuple[int, int]]) -> str:
    """Returns a SQL condition: the offset is within the range of its partition."""
    parts = [f"(partition = {number} AND offset BETWEEN {first} AND {last})" for number, (first, last) in spans.items()]
    return " OR ".join(parts) or "false"


def buckets(frame: DataFrame, rows: int, max_bytes: int) -> list[Bucket]:
    """Divides the frame, which has about `rows` rows, into buckets below `max_bytes`, unless a single record is
    larger."""
    width = max(rows // MAX_BUCKETS, 1)
    found = _counted(frame, width)
    wide = [each for each in found if each.bytes > max_bytes and each.rows > 1]
    if wide and width > 1:
        inside = " OR ".join(offset_condition({each.partition: (each.first, each.last)}) for each in wide)
        found = [each for each in found if each not in wide] + _counted(frame.where(inside), 1)
    return sorted(found)


def _counted(frame: DataFrame, width: int) -> list[Bucket]:
    grouped = frame.withColumn("size", record_size(frame)).groupBy(
        "partition", F.floor(F.col("offset") / width).alias("at")
    )
    counted = grouped.agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count("*").alias("rows"),
        F.sum("size").alias("bytes"),
        F.max("size").alias("widest"),
    )
    return [Bucket(*row) for row in counted.drop("at").collect()]


def record_size(frame: DataFrame) -> Column:
    """Returns the approximate size of each record."""
    headers = "aggregate(headers, 0L, (sum, h) -> sum + ifnull(length(h.key), 0) + ifnull(length(h.value), 0) + 8)"
    size = F.expr("ifnull(length(value), 0) + ifnull(length(key), 0)").cast("bigint") + F.lit(RECORD_BYTES)
    return size + F.expr(f"ifnull({headers}, 0L)") if "headers" in frame.columns else size


def max_bytes_per_task(tasks: int) -> int:
    """Returns how many bytes each of so many tasks may hold."""
    return max(min(TASK_BYTES, ALL_TASKS_BYTES // max(tasks, 1)), min(MIN_TASK_BYTES, TASK_BYTES))


def rounds(found: list[Bucket], max_rows: int, max_bytes: int) -> list[Round]:
    """Combines buckets into rounds. Each round has one piece of every partition, in the order of offsets."""
    by_partition: dict[int, list[Bucket]] = {}
    for bucket in found:
        by_partition.setdefault(bucket.partition, []).append(bucket)
    each = max(max_rows // max(len(by_partition), 1), 1)
    columns = [list(_packed(own, each, max_bytes)) for own in by_partition.values()]
    listed = []
    for row in zip_longest(*columns):
        pieces: list[Any] = [piece for piece in row if piece is not None]
        spans = {piece.partition: (piece.first, piece.last) for piece in pieces}
        listed.append(Round(spans, sum(piece.rows for piece in pieces)))
    return listed


def _packed(own: list[Bucket], max_rows: int, max_bytes: int) -> Iterator[Bucket]:
    """Joins buckets of one partition while they fit into the limits."""
    now: Bucket | None = None
    for bucket in (part for whole in own for part in _split(whole, max_rows)):
        if now is not None and now.rows + bucket.rows <= max_rows and now.bytes + bucket.bytes <= max_bytes:
            now = now._replace(last=bucket.last, rows=now.rows + bucket.rows, bytes=now.bytes + bucket.bytes)
            continue
        if now is not None:
            yield now
        now = bucket
    if now is not None:
        yield now


def _split(bucket: Bucket, max_rows: int) -> Iterator[Bucket]:
    """Splits a bucket with more than `max_rows` if its offsets have no gaps; assumes rows of equal size."""
    if bucket.rows <= max_rows or bucket.last - bucket.first + 1 != bucket.rows:
        yield bucket
        return
    for first in range(bucket.first, bucket.last + 1, max_rows):
        last = min(first + max_rows - 1, bucket.last)
        rows = last - first + 1
        yield bucket._replace(first=first, last=last, rows=rows, bytes=bucket.bytes * rows // bucket.rows)
