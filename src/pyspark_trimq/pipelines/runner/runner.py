"""Runs the streaming query of a pipeline, once or continuously: reads topics, writes topics, shows progress, and
reports failures in one sentence. Does not know which pipeline it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_trimq.pipelines.reports.outcome import BatchFigures
from pyspark_trimq.pipelines.runner.checkpoint import Checkpoint
from pyspark_trimq.pipelines.runner.context import PipelineContext
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.progress_bar import ProgressBar, bars, sum_of_offsets
from trimq.clock import monotonic_seconds
from trimq.errors import StartupError

WRITTEN_METRIC, ROWS_METRIC = "written", "rows"  # names of the observed metric and its field
POLL_S = 0.25  # interval at which a running query is polled
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SPARK_DEFAULT_PARTITIONS = "200"
STATE_PARTITIONS = "4"


def subscription(topics: Sequence[str], pattern: str) -> dict[str, str]:
    """Returns the topics to read as options of the source. Raises StartupError unless exactly one way is given."""
    if bool(topics) == bool(pattern):
        raise StartupError("name either topics or a pattern of topic names")
    return {"subscribePattern": pattern} if pattern else {"subscribe": ",".join(topics)}


def read_stream(
    context: PipelineContext, subscribed: Mapping[str, str], columns: str = "", **options: str
) -> DataFrame:
    """Returns the messages as a stream. `columns` is a schema of the only columns to decode."""
    reader = context.session().readStream.format("trimq")
    if columns:
        reader = reader.schema(columns)
    frame: DataFrame = reader.options(**stream_options(context, subscribed, **options)).load()
    return frame


def stream_options(context: PipelineContext, subscribed: Mapping[str, str], **options: str) -> dict[str, str]:
    """Returns the options of the source for a stream."""
    limit = {"maxOffsetsPerTrigger": str(context.rows_per_batch)}
    # A run that ends by itself leaves no group of a stopped query behind.
    asked = {"includeHeaders": "true", "keepGroup": str(not context.once).lower(), **limit, **options}
    asked |= context.source_options()
    return {**context.address(), **subscribed, **asked}


def read_current(
    context: PipelineContext, subscribed: Mapping[str, str], columns: str = "", **options: str
) -> DataFrame:
    """Returns the messages that exist now, as a batch frame."""
    reader = context.session().read.format("trimq")
    if columns:
        reader = reader.schema(columns)
    asked = {**subscribed, "includeHeaders": "true", **options, **context.source_options()}
    return reader.options(**context.address(), **asked).load()


def write_to_topic(context: PipelineContext, frame: DataFrame, mode: str = "append") -> DataStreamWriter:
    """Returns a writer of the rows as messages, exactly once, that also counts them."""
    counted = frame.observe(WRITTEN_METRIC, F.count(F.lit(1)).alias(ROWS_METRIC))
    return counted.writeStream.format("trimq").options(**context.sink_options()).outputMode(mode)


def configure_state_store(spark: SparkSession) -> None:
    """Configures queries with state: the state is stored on disk, in as few partitions as suit one machine. An existing
    checkpoint keeps its own number of partitions."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    if spark.conf.get("spark.sql.shuffle.partitions") == SPARK_DEFAULT_PARTITIONS:
        spark.conf.set("spark.sql.shuffle.partitions", STATE_PARTITIONS)


def run_query(
    context: PipelineContext,
    title: str,
    writer: DataStreamWriter,
    checkpoint: Checkpoint,
    rows: Callable[[], Mapping[int, int]] | None = None,
) -> list[BatchFigures]:
    """Runs the query to its end and returns figures of its batches. Raises PipelineFailure if it fails; it can be
    started again. `rows` returns the rows of each batch where Spark does not see them."""
    every = f"{parse_duration(context.every)} milliseconds"
    writer = writer.option("checkpointLocation", checkpoint.spark)
    writer = writer.trigger(availableNow=True) if context.once else writer.trigger(processingTime=every)
    seen = _QueryProgress(rows)
    is_interrupted = False
    with bars(title, context.show) as shown, plain_errors():
        query = writer.start()
        try:
            _wait_for_query(context, query, shown, seen)
        except KeyboardInterrupt:
            is_interrupted = True  # Ctrl-C is the normal end of a continuous run
        finally:
            with suppress(PySparkException):
                query.stop()
        seen.note(query)
        # Stopping may make the current batch fail; the next run repeats it.
        if (error := query.exception()) is not None and not (is_interrupted or context.stop.is_set()):
            raise error
    return [seen.figures[number] for number in sorted(seen.figures)]


def _wait_for_query(context: PipelineContext, query: StreamingQuery, shown: ProgressBar, seen: _QueryProgress) -> None:
    began = monotonic_seconds()
    while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # accepts fractions
        seen.note(query)
        seen.show(query, shown)
        is_over = context.for_seconds is not None and monotonic_seconds() - began >= context.for_seconds
        if is_over and context.once:
            context.stop.set()  # ended before all was read: the caller sees `stop`
        if context.stop.is_set() or is_over or (context.once and _is_idle(query)):
            return
    seen.note(query)
    seen.show(query, shown)


class _QueryProgress:
    """Collects figures of the batches of a query. `rows` replaces the row counts of Spark if given."""

    def __init__(self, rows: Callable[[], Mapping[int, int]] | None) -> None:
        self._rows = rows
        self.figures: dict[int, BatchFigures] = {}

    def note(self, query: StreamingQuery) -> None:
        reported = None if self._rows is None else self._rows()
        for progress in query.recentProgress:
            number = int(progress.batchId)
            rows = int(progress.numInputRows) if reported is None else reported.get(number, 0)
            counted = progress.observedMetrics.get(WRITTEN_METRIC)
            written = 0 if counted is None else _observed(counted, ROWS_METRIC)
            if rows or written:  # a batch that reads nothing may still write closed windows
                ended = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp() * 1000
                duration_ms = int(progress.durationMs.get("triggerExecution", 0))
                self.figures[number] = BatchFigures(number, rows, duration_ms / 1000, int(ended) + duration_ms, written)

    def show(self, query: StreamingQuery, shown: ProgressBar) -> None:
        last = query.lastProgress
        if last is None:
            return
        done = _position(query)
        total = sum(sum_of_offsets(source.latestOffset) for source in last.sources)
        rows = sum(batch.rows for batch in self.figures.values())
        newest = self.figures[max(self.figures)] if self.figures else None
        rate = newest.rows / newest.seconds if newest is not None and newest.seconds else 0.0
        shown.update(done, max(total, done) or None, rows, rate)


def _observed(row: Row, name: str) -> int:
    """Returns a field of an observed row. Spark Connect returns such a row as two fields, values and schema."""
    reported = row.asDict()
    if name not in reported:
        reported = dict(zip((field["name"] for field in reported["schema"]["fields"]), reported["values"], strict=True))
    return int(reported[name] or 0)


def _is_idle(query: StreamingQuery) -> bool:
    """Returns True if the query waits for new messages. An AvailableNow query normally ends without this check."""
    status = query.status
    return not status["isDataAvailable"] and str(status["message"]).startswith("Waiting")


def _position(query: StreamingQuery) -> int:
    """Returns the sum of the end offsets of the last complete batch."""
    last = query.lastProgress
    return -1 if last is None else sum(sum_of_offsets(source.endOffset) for source in last.sources)
