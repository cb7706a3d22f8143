"""How a pipeline runs, whichever it is: reads topics as a stream, once or on and on, shows how far it is, and says in a
sentence why it failed."""

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
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.how import How
from pyspark_trimq.pipelines.runner.progress_bar import ProgressBar, bars, sum_of_offsets
from trimq.clock import monotonic_seconds
from trimq.errors import StartupError

WRITTEN_METRIC, ROWS_METRIC = "written", "rows"  # what is counted on the way, as Spark is told to observe it
POLL_S = 0.25  # how often a running query is looked at
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SPARK_DEFAULT_PARTITIONS = "200"
STATE_PARTITIONS = "4"


def subscription(topics: Sequence[str], pattern: str) -> dict[str, str]:
    """Which topics to read, as options of the source."""
    if bool(topics) == bool(pattern):
        raise StartupError("name topics, or a pattern of their names, one of the two")
    return {"subscribePattern": pattern} if pattern else {"subscribe": ",".join(topics)}


def read_stream(how: How, subscribed: Mapping[str, str], columns: str = "", **options: str) -> DataFrame:
    """The messages as a stream. `columns`: only these, as in a schema, which spares the others' way."""
    reader = how.session().readStream.format("trimq")
    if columns:
        reader = reader.schema(columns)
    frame: DataFrame = reader.options(**stream_options(how, subscribed, **options)).load()
    return frame


def stream_options(how: How, subscribed: Mapping[str, str], **options: str) -> dict[str, str]:
    """What the source is told."""
    limit = {"maxOffsetsPerTrigger": str(how.rows_per_batch)}
    asked = {"includeHeaders": "true", **limit, **options, **how.source_options()}
    return {**how.address(), **subscribed, **asked}


def read_current(how: How, subscribed: Mapping[str, str], columns: str = "", **options: str) -> DataFrame:
    """The messages that are there now."""
    reader = how.session().read.format("trimq")
    if columns:
        reader = reader.schema(columns)
    asked = {**subscribed, "includeHeaders": "true", **options, **how.source_options()}
    return reader.options(**how.address(), **asked).load()


def write_to_topic(how: How, frame: DataFrame, mode: str = "append") -> DataStreamWriter:
    """The rows of a streaming frame as messages, each once, counted on the way."""
    counted = frame.observe(WRITTEN_METRIC, F.count(F.lit(1)).alias(ROWS_METRIC))
    return counted.writeStream.format("trimq").options(**how.sink_options()).outputMode(mode)


def configure_state_store(spark: SparkSession) -> None:
    """For queries with state: on disk, and in as many parts as one machine has use for. A checkpoint keeps what it
    began with."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    if spark.conf.get("spark.sql.shuffle.partitions") == SPARK_DEFAULT_PARTITIONS:
        spark.conf.set("spark.sql.shuffle.partitions", STATE_PARTITIONS)


def run_query(
    how: How,
    title: str,
    writer: DataStreamWriter,
    checkpoint: Checkpoint,
    rows: Callable[[], Mapping[int, int]] | None = None,
) -> list[BatchFigures]:
    """Run the query to its end. What its batches were; PipelineFailure: it failed, and may be started again. `rows`
    tells those of each batch, where Spark does not see them."""
    every = f"{parse_duration(how.every)} milliseconds"
    writer = writer.option("checkpointLocation", checkpoint.spark)
    writer = writer.trigger(availableNow=True) if how.once else writer.trigger(processingTime=every)
    seen = _QueryProgress(rows)
    is_interrupted = False
    with bars(title, how.show) as shown, plain_errors():
        query = writer.start()
        try:
            _wait_for_query(how, query, shown, seen)
        except KeyboardInterrupt:
            is_interrupted = True  # the way in which people end a run that goes on and on
        finally:
            with suppress(PySparkException):
                query.stop()
        seen.note(query)
        # A batch that was cut short by the end may have failed: the next run repeats it.
        if (error := query.exception()) is not None and not (is_interrupted or how.stop.is_set()):
            raise error
    return [seen.figures[number] for number in sorted(seen.figures)]


def _wait_for_query(how: How, query: StreamingQuery, shown: ProgressBar, seen: _QueryProgress) -> None:
    began = monotonic_seconds()
    while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # fractions are taken
        seen.note(query)
        seen.show(query, shown)
        is_over = how.for_seconds is not None and monotonic_seconds() - began >= how.for_seconds
        if is_over and how.once:
            how.stop.set()  # it was not to end before all is read: whoever asked is told
        if how.stop.is_set() or is_over or (how.once and _is_idle(query)):
            return
    seen.note(query)
    seen.show(query, shown)


class _QueryProgress:
    """What the batches of a query were. `rows` tells how many each had, if Spark does not know."""

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
            if rows or written:  # Spark closes windows in a batch that reads nothing
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
    """Spark Connect hands over such a row as two fields, its values and its schema."""
    reported = row.asDict()
    if name not in reported:
        reported = dict(zip((field["name"] for field in reported["schema"]["fields"]), reported["values"], strict=True))
    return int(reported[name] or 0)


def _is_idle(query: StreamingQuery) -> bool:
    """Everything that was there has been read. A query that reads what is there and ends does so by itself."""
    status = query.status
    return not status["isDataAvailable"] and str(status["message"]).startswith("Waiting")


def _position(query: StreamingQuery) -> int:
    """How far the last whole batch came."""
    last = query.lastProgress
    return -1 if last is None else sum(sum_of_offsets(source.endOffset) for source in last.sources)
