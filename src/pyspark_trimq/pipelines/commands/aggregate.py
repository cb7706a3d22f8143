"""Pipeline `aggregate`: computes windowed aggregates of a topic and writes them as JSON into another topic. Late
messages count as long as the recipe allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.reports.outcome import Outcome
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.topic_tables.query import run_recipe, spark_interval, topic_table
from pyspark_trimq.pipelines.topic_tables.recipes import Aggregation, read_aggregation


@plain_errors()
def aggregate(recipe: str | Path, *, context: PipelineContext = DEFAULT_CONTEXT) -> Outcome:
    """Runs the aggregation of a TOML or SQL file. Writes the row of a window once, when late messages can no longer
    change it."""
    path = Path(recipe)
    outcome = run_recipe("aggregate", path, read_aggregation(path), _plan, context)
    outcome.notes.append("Windows that late messages can still change are written by a later run.")
    return outcome


def _plan(context: PipelineContext, recipe: Aggregation) -> tuple[DataFrame, Sequence[str]]:
    return aggregated(topic_table(context, recipe.source), recipe), recipe.group_by


def aggregated(rows: DataFrame, recipe: Aggregation) -> DataFrame:
    if recipe.where:
        rows = rows.where(recipe.where)
    slide = spark_interval(recipe.slide) if recipe.slide else None
    window = F.window(recipe.source.time, spark_interval(recipe.window), slide)
    grouped = rows.groupBy(window, *(F.expr(each).alias(each) for each in recipe.group_by))
    counted = grouped.agg(*(F.expr(each) for each in recipe.select))
    return counted.select("window.start", "window.end", *(f"`{name}`" for name in counted.columns if name != "window"))
