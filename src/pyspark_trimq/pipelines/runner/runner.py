"""How a pipeline runs, whichever it is: reads topics as a stream, once or on and on, shows how far it is, and says in a
sentence why it failed."""

from __future__ import annotations

import dataclasses
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_trimq.broker.client import StreamBounds, open_broker_client
from pyspark_trimq.broker.encryption import CA_FILE, HTTPS, Encryption, read_encryption
from pyspark_trimq.broker.login import Login, read_login
from pyspark_trimq.mistakes import TopicMistake
from pyspark_trimq.pipelines.reports.outcome import BatchFigures
from pyspark_trimq.pipelines.runner.broker_admin import BrokerAdmin, create_kafka_topic
from pyspark_trimq.pipelines.runner.checkpoint import Checkpoint
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.progress_bar import ProgressBar, bars, sum_of_offsets
from trimq.clock import monotonic_seconds
from trimq.errors import StartupError

WRITTEN_METRIC, ROWS_METRIC = "written", "rows"  # what is counted on the way, as Spark is told to observe it
SINK_OPTIONS = ("compression", "delivery")  # options, beside those that begin with `kafka.`
OTHER_LAYOUTS = {"commit-log": "a RocketMQ topic", "queue-log": "an AMQP queue"}
POLL_S = 0.25  # how often a running query is looked at
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SPARK_DEFAULT_PARTITIONS = "200"
STATE_PARTITIONS = "4"


@dataclasses.dataclass(frozen=True)
class How:
    """What every pipeline can be told. `once`: up to what is there now, then end; else on and on, a batch `every` so
    often, until `stop` is set or `for_seconds` have passed."""

    bootstrap: str = "http://127.0.0.1:8180"
    http: str = ""  # the HTTP port; "": the bootstrap if that is one, else where TRIMQ_HTTP says, else the standard one
    spark: SparkSession | None = None
    once: bool = True
    every: str = "10 seconds"
    checkpoint: str | Path | None = None
    rows_per_batch: int = 500_000
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of source and sink, beside ours
    user: str = ""  # who asks, where the broker has users
    password: str | None = dataclasses.field(default=None, repr=False)
    password_file: str | None = None  # where the password is; neither: TRIMQ_PASSWORD holds it
    show: bool | None = None  # bars in the terminal; None: if it is one
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    for_seconds: float | None = None

    def session(self) -> SparkSession:
        if self.spark is not None:
            return self.spark
        from pyspark_trimq.session import make_session

        return make_session()

    def administration(self) -> BrokerAdmin:
        url = self.http or (self.bootstrap if self.is_http() else os.environ.get("TRIMQ_HTTP", "127.0.0.1:8180"))
        return BrokerAdmin(url, self.login(), self.encryption())

    def is_http(self) -> bool:
        """Whether the bootstrap is the HTTP port; else it is a Kafka port, of any broker."""
        return self.bootstrap.startswith(("http://", HTTPS))

    def login(self) -> Login | None:
        """Mistake: a user without a password."""
        given = {"user": self.user, "password": self.password, "passwordFile": self.password_file}
        return read_login(given.get)

    def encryption(self) -> Encryption | None:
        """None: connections are plain. Mistake: the option caFile makes no sense."""
        return read_encryption(self.bootstrap, self._ca_file())

    def _ca_file(self) -> str | None:
        """Of the options the one that is for source and sink alike."""
        return next((value for name, value in self.options.items() if name.lower() == CA_FILE.lower()), None)

    def address(self) -> dict[str, str]:
        """Where the broker is, who asks and who vouches, as options of the source and of the sink."""
        login, ca_file = self.login(), self._ca_file()
        login_options = {} if login is None else {"user": login.user, "password": login.password}
        ca_option = {} if ca_file is None else {CA_FILE: ca_file}
        return {"bootstrap": self.bootstrap, **login_options, **ca_option}

    def source_options(self) -> dict[str, str]:
        """Those of the options that are not for the sink."""
        return {name: value for name, value in self.options.items() if not _is_sink_option(name)}

    def sink_options(self) -> dict[str, str]:
        """Where to and as whom, and those of the options that are for the sink."""
        return {**self.address(), **{name: value for name, value in self.options.items() if _is_sink_option(name)}}

    def folder(self, default: Path | None) -> Path:
        """Where the checkpoint is. StartupError: nobody said."""
        if self.checkpoint is not None:
            return Path(self.checkpoint)
        if default is None:
            raise StartupError("a checkpoint folder is needed: --checkpoint FOLDER")
        return default


def _is_sink_option(name: str) -> bool:
    return name.lower() in SINK_OPTIONS or name.lower().startswith("kafka.")


DEFAULT_HOW = How()


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


def topic_ends(how: How, topic: str, namespace: str = "") -> dict[int, StreamBounds]:
    """Where each partition begins and ends. Mistake: there is no such topic."""
    with closing(open_broker_client(how.bootstrap, namespace, True, False, how.login(), how.encryption())) as client:
        return client.ends(topic)


def source_ends(how: How, topic: str) -> dict[int, StreamBounds]:
    """As `topic_ends`, of a topic or queue that is read: in the namespace that was asked for."""
    return topic_ends(how, topic, how.options.get("namespace", ""))


def subscribed_ends(how: How, subscribed: Mapping[str, str]) -> dict[str, dict[int, StreamBounds]]:
    """Of all topics that are asked for, those that match a pattern too. Mistake: there is no such topic."""
    namespace, pattern = how.options.get("namespace", ""), subscribed.get("subscribePattern", "")
    with closing(open_broker_client(how.bootstrap, namespace, True, False, how.login(), how.encryption())) as client:
        if pattern:
            return {topic: client.ends(topic) for topic in client.topics() if re.fullmatch(pattern, topic)}
        return {topic: client.ends(topic) for topic in subscribed["subscribe"].split(",")}


def ensure_topic(how: How, topic: str, partitions: int) -> None:
    """Make the topic if there is none. StartupError: there is one that rows cannot be written to."""
    if is_writable(how, topic):
        return
    if how.is_http():
        how.administration().create_topic(topic, partitions)
    else:
        create_kafka_topic(how.bootstrap, how.login(), how.encryption(), topic, partitions)


def is_writable(how: How, topic: str) -> bool:
    """False: there is no topic of that name. StartupError: there is one of another home, and the sink writes to topics
    of Kafka's home alone."""
    with closing(open_broker_client(how.bootstrap, "", True, False, how.login(), how.encryption())) as client:
        try:
            home = client.home(topic)
        except TopicMistake:
            return False
    if home in OTHER_LAYOUTS:
        raise StartupError(
            f"{topic!r} is {OTHER_LAYOUTS[home]}, but rows are written to Kafka topics: name another topic"
        )
    return True


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
