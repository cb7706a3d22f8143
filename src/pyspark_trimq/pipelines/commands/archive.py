"""Pipeline `archive`: appends topics to a lake, every field, every message exactly once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from pyspark_trimq.arrow.columns import row_schema
from pyspark_trimq.pipelines.lakes.aborted_records import AbortedRecords
from pyspark_trimq.pipelines.lakes.files import DATE, StagedRows
from pyspark_trimq.pipelines.lakes.lake import KEEP_REPLACED, OWN_FOLDER, Lake, open_for_writing, read
from pyspark_trimq.pipelines.lakes.run_log import AddedRows, RunLog
from pyspark_trimq.pipelines.lakes.staged_source import KEEPS_COLUMNS, NAME, STAGING, StagedSource
from pyspark_trimq.pipelines.reports.outcome import Outcome, Plot, Table, batch_plots
from pyspark_trimq.pipelines.runner.checkpoint import Checkpoint, open_checkpoint
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.runner import run_query, stream_options, subscription
from pyspark_trimq.pipelines.runner.topics import subscribed_ends
from pyspark_trimq.source.options import read_source_options

SMALL_BYTES = 32 * 1024 * 1024
COMPACT_FROM = 16
BATCHES_BETWEEN_COMPACTIONS = 64


@plain_errors()
def archive(
    topics: Sequence[str] = (),
    *,
    lake: str | Path,
    pattern: str = "",
    format: str = "parquet",
    compact_from: int = COMPACT_FROM,
    keep_replaced: str = KEEP_REPLACED,
    context: PipelineContext = DEFAULT_CONTEXT,
) -> Outcome:
    """Appends new messages of the topics to the lake in the folder `lake`. The checkpoint is in the lake unless another
    is given; without a checkpoint, the run continues after the last offsets in the lake. If a topic and day has at
    least `compact_from` small files, they are compacted; 0 means never. In Delta and Iceberg lakes the replaced files
    remain readable for `keep_replaced`."""
    folder = Path(lake).resolve()
    subscribed = subscription(topics, pattern)
    settings = {"bootstrap": context.bootstrap, **subscribed, "lake": str(folder), "format": format}
    with (
        open_for_writing(folder, format, keep_replaced) as open_lake,
        open_checkpoint(context.folder(folder / OWN_FOLDER / "checkpoint"), "archive", settings) as checkpoint,
    ):
        open_lake.sweep()
        begin = _starting_offsets(context, open_lake, subscribed) if not Path(checkpoint.spark).exists() else "earliest"
        options = stream_options(context, subscribed, startingOffsets=begin)
        run = RunLog(folder)
        run.begin()
        writer = _Writer(open_lake, run, checkpoint, compact_from, _columns(options))
        frame = _staged_stream(context, open_lake, options)
        batches = run_query(context, "archive", frame.writeStream.foreachBatch(writer.write), checkpoint, run.rows)
        compacted = writer.compact(context) + run.compacted()
        outcome = _outcome(settings, open_lake, run.added())
        outcome.figures |= {"batches": len(batches), "files put together": compacted}
        outcome.batches = batches
        outcome.plots += batch_plots(batches)
        return outcome


def _staged_stream(context: PipelineContext, lake: Lake, options: Mapping[str, str]) -> DataFrame:
    """Returns a stream of the files that tasks write the messages into."""
    spark = context.session()
    spark.dataSource.register(StagedSource)
    own = {STAGING: str(lake.staging.absolute()), KEEPS_COLUMNS: str(lake.keeps_columns).lower()}
    return spark.readStream.format(NAME).options(**options, **own).load()


def _columns(options: Mapping[str, str]) -> StructType:
    return row_schema(read_source_options(options).has_headers).add(DATE, StringType())


class _Writer:
    """Writes batches. Under Spark Connect a copy of this object does so, in a process of the server."""

    def __init__(self, lake: Lake, run: RunLog, checkpoint: Checkpoint, compact_from: int, columns: StructType) -> None:
        self._lake = lake
        self._run = run
        self._aborted = AbortedRecords(lake.folder)
        self._columns = columns
        self._id = checkpoint.id
        self._compact_from = compact_from

    def write(self, frame: DataFrame, batch: int) -> None:
        rows = StagedRows(frame, self._columns, lambda found: self._aborted.note(self._id, batch, found))
        added = self._lake.append(rows, self._id, batch)
        compacted = 0
        if batch % BATCHES_BETWEEN_COMPACTIONS == BATCHES_BETWEEN_COMPACTIONS - 1:
            compacted = self._compact(frame.sparkSession)
            self._lake.sweep()
        self._run.note(batch, added, compacted)

    def compact(self, context: PipelineContext) -> int:
        return self._compact(context.session())

    def _compact(self, spark: SparkSession) -> int:
        return self._lake.compact(spark, SMALL_BYTES, self._compact_from) if self._compact_from else 0


def _starting_offsets(context: PipelineContext, lake: Lake, subscribed: Mapping[str, str]) -> str:
    """Returns the starting offsets of a run without a checkpoint: after the last offsets in the lake."""
    files = lake.files()
    if not files:
        return "earliest"
    ends = {
        topic: dict.fromkeys(map(str, streams), -2) for topic, streams in subscribed_ends(context, subscribed).items()
    }
    for topic in {file.topic for file in files} & set(ends):
        frame = read(context.session(), [file for file in files if file.topic == topic])
        for row in frame.groupBy("partition").agg(F.max("offset").alias("last")).collect():
            ends[topic][str(row["partition"])] = row["last"] + 1
    return json.dumps(ends)


def _outcome(settings: dict[str, str], lake: Lake, added: Mapping[str, AddedRows]) -> Outcome:
    files = lake.files()
    rows = sum(each.rows for each in added.values())
    figures = {
        "rows archived": rows,
        "bytes written": sum(each.bytes for each in added.values()),
        "rows in the lake": sum(file.rows for file in files),
        "bytes in the lake": sum(file.bytes for file in files),
        "files": len(files),
    }
    outcome = Outcome("archive", dict(settings), dict(figures), found=rows)
    new = {file.topic: 0 for file in files} | {topic: each.rows for topic, each in added.items()}
    topics = []
    for topic in sorted(new):
        own = [file for file in files if file.topic == topic]
        dates = sorted({file.date for file in own})
        total = sum(file.rows for file in own)
        size = sum(file.bytes for file in own)
        topics.append((topic, new[topic], total, size, len(own), dates[0] if dates else "", dates[-1] if dates else ""))
    columns = ("topic", "rows archived", "rows", "bytes", "files", "first day", "last day")
    outcome.tables.append(Table("Topics", columns, topics))
    by_day = sorted({(file.topic, file.date) for file in files})
    if by_day:
        series = {
            topic: [
                (day, float(sum(file.rows for file in files if (file.topic, file.date) == (topic, day))))
                for of, day in by_day
                if of == topic
            ]
            for topic in sorted(new)
        }
        outcome.plots.append(Plot("Rows in the lake by day", "bar", "day (UTC)", "rows", series))
    return outcome
