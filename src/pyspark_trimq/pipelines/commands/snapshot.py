"""Pipeline `snapshot`: keeps the latest value of each key of topics as a table in a lake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.lakes.compaction import WHOLE_BYTES
from pyspark_trimq.pipelines.lakes.files import DATE, DAY_EXPRESSION, DataFile, FrameRows
from pyspark_trimq.pipelines.lakes.lake import KEEP_REPLACED, OWN_FOLDER, Lake, open_for_writing, read
from pyspark_trimq.pipelines.reports.outcome import BatchFigures, Outcome, Plot, Table, batch_plots
from pyspark_trimq.pipelines.runner.checkpoint import open_checkpoint
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.runner import read_stream, run_query, subscription

KEPT_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@plain_errors()
def snapshot(
    topics: Sequence[str] = (),
    *,
    lake: str | Path,
    pattern: str = "",
    format: str = "parquet",
    keep_replaced: str = KEEP_REPLACED,
    context: PipelineContext = DEFAULT_CONTEXT,
) -> Outcome:
    """Updates the table in the folder `lake`: one row per topic and key, with the message of the highest offset; if a
    key is in several partitions, the message with the latest timestamp. A message without a value deletes its key;
    messages without a key are ignored. In Delta and Iceberg lakes older states remain readable for `keep_replaced`."""
    folder = Path(lake).resolve()
    subscribed = subscription(topics, pattern)
    settings = {"bootstrap": context.bootstrap, **subscribed, "lake": str(folder), "format": format}
    with (
        open_for_writing(folder, format, keep_replaced) as open_lake,
        open_checkpoint(context.folder(folder / OWN_FOLDER / "checkpoint"), "snapshot", settings) as checkpoint,
    ):
        open_lake.sweep()

        def merge(frame: DataFrame, batch: int) -> None:
            if batch > open_lake.committed(checkpoint.id):
                pieces = -(-sum(file.bytes for file in open_lake.files()) // WHOLE_BYTES)
                rows = merged(_table(open_lake, frame), frame.select(*KEPT_COLUMNS)).coalesce(max(pieces, 1))
                open_lake.replace(FrameRows(rows), checkpoint.id, batch)
                open_lake.sweep()

        frame = read_stream(context, subscribed, startingOffsets="earliest")
        batches = run_query(context, "snapshot", frame.writeStream.foreachBatch(merge), checkpoint)
        files = open_lake.files()
    return _outcome(settings, files, batches)


def merged(table: DataFrame | None, new: DataFrame) -> DataFrame:
    """Returns the table after the new messages. Deleted keys leave nothing behind."""
    rows = new.where(F.col("key").isNotNull())
    if table is not None:
        rows = table.select(*KEPT_COLUMNS).unionByName(rows)
    everything = F.struct(*KEPT_COLUMNS)
    last = rows.groupBy("topic", "key", "partition").agg(F.max_by(everything, "offset").alias("row"))
    order = F.struct("row.timestamp", "row.partition", "row.offset")
    latest = last.groupBy("topic", "key").agg(F.max_by("row", order).alias("row"))
    return latest.select("row.*").where(F.col("value").isNotNull()).withColumn(DATE, F.expr(DAY_EXPRESSION))


def _table(lake: Lake, like: DataFrame) -> DataFrame | None:
    by_topic: dict[str, list[DataFile]] = {}
    for file in lake.files():
        by_topic.setdefault(file.topic, []).append(file)
    frames = [read(like.sparkSession, files) for files in by_topic.values()]
    table = None
    for frame in frames:
        table = frame if table is None else table.unionByName(frame)
    return table


def _outcome(settings: dict[str, str], files: Sequence[DataFile], batches: list[BatchFigures]) -> Outcome:
    topics = sorted({file.topic for file in files})
    rows = [
        (
            topic,
            sum(file.rows for file in files if file.topic == topic),
            sum(file.bytes for file in files if file.topic == topic),
        )
        for topic in topics
    ]
    keys = sum(row[1] for row in rows)
    figures = {"keys": keys, "messages read": sum(batch.rows for batch in batches), "files": len(files)}
    outcome = Outcome("snapshot", dict(settings), dict(figures), batches=batches, found=keys)
    outcome.tables.append(Table("Topics", ("topic", "keys", "bytes"), rows))
    if rows:
        outcome.plots.append(
            Plot("Keys by topic", "bar", "topic", "keys", {"keys": [(row[0], float(row[1])) for row in rows]})
        )
    outcome.plots += batch_plots(batches)
    return outcome
