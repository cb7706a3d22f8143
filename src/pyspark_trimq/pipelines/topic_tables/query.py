"""Runs a recipe as a streaming query: reads topics as tables and writes the rows of the result as JSON messages into a
topic. Does not know how `aggregate` and `join` build their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.reports.outcome import Outcome, batch_plots
from pyspark_trimq.pipelines.runner.batch_limits import bounded_stream
from pyspark_trimq.pipelines.runner.checkpoint import open_checkpoint
from pyspark_trimq.pipelines.runner.context import PipelineContext
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_message
from pyspark_trimq.pipelines.runner.runner import configure_state_store, run_query, write_to_topic
from pyspark_trimq.pipelines.runner.topics import ensure_topic
from pyspark_trimq.pipelines.topic_tables.recipes import Aggregation, Input, Joining, Query
from trimq.errors import StartupError

Recipe = TypeVar("Recipe", Aggregation, Joining)


def run_recipe(
    kind: str,
    path: Path,
    recipe: Recipe | Query,
    plan: Callable[[PipelineContext, Recipe], tuple[DataFrame, Sequence[str]]],
    context: PipelineContext,
) -> Outcome:
    """Runs the recipe of the file `path` to its end. `plan` returns the result of a TOML recipe as a streaming frame,
    and the columns that make up the message key. An SQL recipe needs no plan."""
    settings = {"bootstrap": context.bootstrap, "recipe": repr(recipe)}
    with open_checkpoint(context.folder(Path(f"trimq-checkpoints/{kind}-{path.stem}")), kind, settings) as checkpoint:
        configure_state_store(context.session())
        ensure_topic(context, recipe.to, 1)
        try:
            frame, keys = (_query_frame(context, recipe), ()) if isinstance(recipe, Query) else plan(context, recipe)
            rows = as_messages(frame, keys, recipe.to)
        except PySparkException as error:
            raise StartupError(f"{path}: {plain_message(error)}") from None
        batches = run_query(context, kind, write_to_topic(context, rows), checkpoint)
    read, written = sum(batch.rows for batch in batches), sum(batch.written for batch in batches)
    shown: dict[str, Any] = {"recipe": str(path), "to": recipe.to, "bootstrap": context.bootstrap}
    outcome = Outcome(kind, shown, {"messages read": read, "rows written": written}, batches=batches, found=written)
    outcome.plots += batch_plots(batches)
    return outcome


def _query_frame(context: PipelineContext, query: Query) -> DataFrame:
    for each in query.inputs:
        topic_table(context, each).createOrReplaceTempView(each.name)
    return context.session().sql(query.sql)


def topic_table(context: PipelineContext, source: Input) -> DataFrame:
    """Returns the messages of a topic as rows: the columns of their JSON (null if missing), and `key`, `topic`,
    `partition`, `offset` and `timestamp` of the message."""
    frame = bounded_stream(context, {"subscribe": source.topic})
    kept = [
        F.col("key").cast("string").alias("key"),
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        F.col("timestamp"),
    ]
    if source.format == "json":
        parsed = F.from_json(F.col("value").cast("string"), source.columns)
        rows = frame.select(*kept, parsed.alias("parsed"))
        own = [name for name in rows.select("parsed.*").columns if name not in ("key", "topic", "partition", "offset")]
        outer = [name for name in ("key", "topic", "partition", "offset", "timestamp") if name not in own]
        rows = rows.select(*outer, *(F.col("parsed")[name].alias(name) for name in own))
    else:
        value = F.col("value").cast("string") if source.format == "text" else F.col("value")
        rows = frame.select(*kept, value.alias("value"))
    return rows.withWatermark(source.time, spark_interval(source.late))


def as_messages(frame: DataFrame, keys: Sequence[str], to: str) -> DataFrame:
    """Returns each row as a message: the value is JSON of all columns, the key is the columns `keys` joined by `|`."""
    columns = [F.col(f"`{name}`") for name in frame.columns]
    value = F.to_json(F.struct(*columns)).cast("binary")
    chosen = [F.col(f"`{name}`").cast("string") for name in keys] if keys else []
    key = F.concat_ws("|", *chosen).cast("binary") if chosen else F.lit(None).cast("binary")
    return frame.select(key.alias("key"), value.alias("value"), F.lit(to).alias("topic"))


def spark_interval(text: str) -> str:
    return f"{parse_duration(text)} milliseconds"
