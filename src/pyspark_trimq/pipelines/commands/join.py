"""Pipeline `join`: joins two topics and writes the rows as JSON into another topic. Late messages count as long as the
recipe allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.reports.outcome import Outcome
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.topic_tables.query import run_recipe, topic_table
from pyspark_trimq.pipelines.topic_tables.recipes import Joining, read_joining


@plain_errors()
def join(recipe: str | Path, *, context: PipelineContext = DEFAULT_CONTEXT) -> Outcome:
    """Runs the join of a TOML or SQL file."""
    path = Path(recipe)
    return run_recipe("join", path, read_joining(path), _plan, context)


def _plan(context: PipelineContext, recipe: Joining) -> tuple[DataFrame, Sequence[str]]:
    return joined(topic_table(context, recipe.left), topic_table(context, recipe.right), recipe), ()


def joined(left: DataFrame, right: DataFrame, recipe: Joining) -> DataFrame:
    """Joins matching rows whose times are at most `within` apart. Without that bound Spark would keep all rows
    forever."""
    span = f"INTERVAL {parse_duration(recipe.within)} MILLISECONDS".replace("MILLISECONDS", "MILLISECOND")
    left_at, right_at = f"left.{recipe.left.time}", f"right.{recipe.right.time}"
    near = f"{right_at} BETWEEN {left_at} - {span} AND {left_at} + {span}"
    context = "left_outer" if recipe.kind == "left" else "inner"
    pairs = left.alias("left").join(right.alias("right"), F.expr(f"({recipe.on}) AND {near}"), context)
    return pairs.selectExpr(*recipe.select)
