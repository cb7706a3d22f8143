"""The pipelines `aggregate` and `join`: topics as tables, windows over them or two of them joined, the rows as JSON
into another topic. Late messages are counted as long as the recipe says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.reports.outcome import Outcome, batch_plots
from pyspark_trimq.pipelines.runner.batch_limits import bounded_stream
from pyspark_trimq.pipelines.runner.checkpoint import open_checkpoint
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors, plain_message
from pyspark_trimq.pipelines.runner.runner import (
    DEFAULT_HOW,
    How,
    configure_state_store,
    ensure_topic,
    run_query,
    write_to_topic,
)
from pyspark_trimq.pipelines.topic_tables.recipes import Aggregation, Input, Joining, Query, read_recipe
from trimq.errors import StartupError


@plain_errors()
def aggregate(recipe: str | Path, *, how: How = DEFAULT_HOW) -> Outcome:
    """Windowed aggregates, as a file of TOML or SQL says. A window's row is written once, when no late message can
    change it any more."""
    return _run("aggregate", Path(recipe), how)


@plain_errors()
def join(recipe: str | Path, *, how: How = DEFAULT_HOW) -> Outcome:
    """A join of two topics, as a file of TOML or SQL says."""
    return _run("join", Path(recipe), how)


def _run(kind: str, path: Path, how: How) -> Outcome:
    recipe = read_recipe(path, kind)
    settings = {"bootstrap": how.bootstrap, "recipe": repr(recipe)}
    with open_checkpoint(how.folder(Path(f"trimq-checkpoints/{kind}-{path.stem}")), kind, settings) as checkpoint:
        configure_state_store(how.session())
        ensure_topic(how, recipe.to, 1)
        try:
            frame, keys = _output_frame(how, recipe)
            rows = as_messages(frame, keys, recipe.to)
        except PySparkException as error:
            raise StartupError(f"{path}: {plain_message(error)}") from None
        batches = run_query(how, kind, write_to_topic(how, rows), checkpoint)
    read, written = sum(batch.rows for batch in batches), sum(batch.written for batch in batches)
    shown: dict[str, Any] = {"recipe": str(path), "to": recipe.to, "bootstrap": how.bootstrap}
    outcome = Outcome(kind, shown, {"messages read": read, "rows written": written}, batches=batches, found=written)
    if kind == "aggregate":
        outcome.notes.append("Windows that late messages may still change are written by a later run.")
    outcome.plots += batch_plots(batches)
    return outcome


def _output_frame(how: How, recipe: Aggregation | Joining | Query) -> tuple[DataFrame, Sequence[str]]:
    match recipe:
        case Aggregation():
            return aggregated(topic_table(how, recipe.source), recipe), recipe.group_by
        case Joining():
            return joined(topic_table(how, recipe.left), topic_table(how, recipe.right), recipe), ()
        case Query():
            for each in recipe.inputs:
                topic_table(how, each).createOrReplaceTempView(each.name)
            return how.session().sql(recipe.sql), ()


def topic_table(how: How, source: Input) -> DataFrame:
    """The topic's messages as rows: the columns of its JSON (null where a message has none), and `key`, `topic`,
    `partition`, `offset` and `timestamp` of the message."""
    frame = bounded_stream(how, {"subscribe": source.topic})
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
    return rows.withWatermark(source.time, _spark_interval(source.late))


def aggregated(rows: DataFrame, recipe: Aggregation) -> DataFrame:
    if recipe.where:
        rows = rows.where(recipe.where)
    slide = _spark_interval(recipe.slide) if recipe.slide else None
    window = F.window(recipe.source.time, _spark_interval(recipe.window), slide)
    grouped = rows.groupBy(window, *(F.expr(each).alias(each) for each in recipe.group_by))
    counted = grouped.agg(*(F.expr(each) for each in recipe.select))
    return counted.select("window.start", "window.end", *(f"`{name}`" for name in counted.columns if name != "window"))


def joined(left: DataFrame, right: DataFrame, recipe: Joining) -> DataFrame:
    """Rows that match and whose times are at most `within` apart: without that bound Spark would keep all for ever."""
    span = f"INTERVAL {parse_duration(recipe.within)} MILLISECONDS".replace("MILLISECONDS", "MILLISECOND")
    left_at, right_at = f"left.{recipe.left.time}", f"right.{recipe.right.time}"
    near = f"{right_at} BETWEEN {left_at} - {span} AND {left_at} + {span}"
    how = "left_outer" if recipe.kind == "left" else "inner"
    pairs = left.alias("left").join(right.alias("right"), F.expr(f"({recipe.on}) AND {near}"), how)
    return pairs.selectExpr(*recipe.select)


def as_messages(frame: DataFrame, keys: Sequence[str], to: str) -> DataFrame:
    """Each row as JSON; the columns that were grouped by are the key too."""
    columns = [F.col(f"`{name}`") for name in frame.columns]
    value = F.to_json(F.struct(*columns)).cast("binary")
    chosen = [F.col(f"`{name}`").cast("string") for name in keys] if keys else []
    key = F.concat_ws("|", *chosen).cast("binary") if chosen else F.lit(None).cast("binary")
    return frame.select(key.alias("key"), value.alias("value"), F.lit(to).alias("topic"))


def _spark_interval(text: str) -> str:
    return f"{parse_duration(text)} milliseconds"
