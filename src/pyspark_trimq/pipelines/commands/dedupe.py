"""Pipeline `dedupe`: copies topics into another topic, without messages that repeat an earlier one within a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pyspark_trimq.pipelines.messages import offset_order
from pyspark_trimq.pipelines.messages.headers import identity
from pyspark_trimq.pipelines.reports.outcome import Outcome, batch_plots
from pyspark_trimq.pipelines.runner.batch_limits import bounded_stream
from pyspark_trimq.pipelines.runner.checkpoint import open_checkpoint
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.runner import configure_state_store, run_query, subscription, write_to_topic
from pyspark_trimq.pipelines.runner.topics import ensure_topic, source_ends

MIN_MEMORY_MS = 3_600_000
CLOCK_TOLERANCE = "10 minutes"
ARRIVED = "arrived"
KEPT_COLUMNS = ("key", "value", "headers", "timestamp", "topic", "partition", "offset")
OUTPUT_SCHEMA = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP, topic STRING, "
    "partition INT, offset BIGINT"
)


@plain_errors()
def dedupe(
    topics: Sequence[str] = (),
    *,
    to: str,
    by: str = "id",
    within: str = "1 hour",
    pattern: str = "",
    context: PipelineContext = DEFAULT_CONTEXT,
) -> Outcome:
    """Copies messages to the topic `to` except duplicates. A duplicate has the same identity (`by`) as an earlier
    copied message, and its timestamp is at most `within` from that of the copied one. Messages without an identity are
    always copied; no message is dropped for being late. The order of each source partition is kept."""
    subscribed = subscription(topics, pattern)
    window_ms = parse_duration(within)
    settings = {"bootstrap": context.bootstrap, **subscribed, "to": to, "by": by, "within": within}
    id_column = identity(by)
    with open_checkpoint(context.folder(Path("trimq-checkpoints/dedupe")), "dedupe", settings) as checkpoint:
        configure_state_store(context.session())
        ensure_topic(context, to, max((len(source_ends(context, topic)) for topic in topics), default=1))
        frame = without_repeats(bounded_stream(context, subscribed), id_column, window_ms)
        rows = in_order(frame).withColumn("topic", F.lit(to)).drop("partition", "offset")
        batches = run_query(context, "dedupe", write_to_topic(context, rows), checkpoint)
    read, written = sum(batch.rows for batch in batches), sum(batch.written for batch in batches)
    figures = {"messages read": read, "written": written, "repetitions": max(read - written, 0)}
    outcome = Outcome("dedupe", settings, dict(figures), batches=batches, found=max(read - written, 0))
    outcome.plots += batch_plots(batches)
    return outcome


def without_repeats(frame: DataFrame, id_column: Any, window_ms: int) -> DataFrame:
    """Returns the frame without duplicates, with the columns of OUTPUT_SCHEMA."""
    place = F.concat_ws("/", F.lit("at"), "topic", "partition", "offset").cast("binary")
    id = F.coalesce(F.concat(F.lit(b"="), id_column), place)
    kept = frame.select(id.alias("id"), *KEPT_COLUMNS, F.current_timestamp().alias(ARRIVED))
    # The watermark uses the time of reading, so that no message is late. The window uses the timestamps of messages.
    keyed = kept.withWatermark(ARRIVED, CLOCK_TOLERANCE).groupBy("id")
    return keyed.transformWithStateInPandas(
        statefulProcessor=_RepeatFilter(window_ms),
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Append",
        timeMode="EventTime",
    )


def in_order(frame: DataFrame) -> DataFrame:
    """Puts all rows of a partition into one task, in the order of offsets."""
    # Spark cannot sort streams, but a task has the rows of one batch only.
    return frame.repartition("topic", "partition").mapInArrow(offset_order.sort_by_offset, frame.schema)


class _RepeatFilter(StatefulProcessor):
    """Stores the timestamp of the last copied message per id, for twice the window and at least an hour of reading
    time: messages may be read faster than their timestamps advance, but not much slower."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._memory_ms = max(2 * window_ms, MIN_MEMORY_MS)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._passed = handle.getValueState("passed", "at_us BIGINT, forgotten_ms BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas  # type: ignore[import-untyped]

        table = pandas.concat(list(rows)).sort_values(["timestamp", "topic", "partition", "offset"], kind="stable")
        known = self._passed.get()
        passed = None if known is None else known[0]
        kept = []
        for place, time in enumerate(table["timestamp"]):
            at_us = time.value // 1000
            if passed is None or abs(at_us - passed) > self._window_ms * 1000:
                passed = at_us
                kept.append(place)
        if kept:
            forgotten_ms = table[ARRIVED].max().value // 1_000_000 + self._memory_ms
            self._passed.update((passed, forgotten_ms))
            self._handle.registerTimer(forgotten_ms)
        yield table.iloc[kept][["key", "value", "headers", "timestamp", *offset_order.POSITION_COLUMNS]]

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        known = self._passed.get()
        if known is not None and known[1] <= expiredTimerInfo.getExpiryTimeInMs():
            self._passed.clear()
        return iter(())

    def close(self) -> None:
        """Has nothing to close."""
