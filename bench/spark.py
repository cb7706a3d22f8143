"""`python -m bench.spark [--quick] [--only WORD] [--folder F]`: TriMQ's source for Spark and Spark's own Kafka
connector, which Maven downloads, compared in one session on one broker. Prints one JSON line per figure, then a
table."""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.broker_rounds import Outcome, Result, run_rounds
from bench.figures import Figure, at_least_times_floor, at_most
from bench.kafka_brokers import Broker, topic_on
from bench.kafka_wire import await_leader, encode_batch, encode_produce, produce_until
from bench.processes import RunningBroker, broker_in, cpu_s
from bench.runner import Measure, run, scratch
from bench.spark_processes import tree_cpu_s
from pyspark_trimq.pipelines import PipelineContext, archive
from pyspark_trimq.session import make_session
from tools.maven import JavaMissing
from tools.spark_jars import kafka_connector

CONNECTOR = "connector"
OURS = "ours"
PARTITIONS = 4

# Columns of Spark's connector: TriMQ's source has six more, which are left out.
COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
_BATCH_BYTES = 100_000
_FILL_S = 600.0


@dataclass(frozen=True, slots=True)
class SparkSizes:
    rounds: int = 3
    large: int = 1_000_000
    """Records of 1 KB."""
    small: int = 5_000_000
    """Records of 100 bytes."""
    parquet: int = 2
    """Rounds that write files."""
    warm: int = 300_000
    """Records per warm-up round."""
    micro_batches: int = 15
    """Micro-batches of one record."""


FULL = SparkSizes()
QUICK = SparkSizes(rounds=1, large=2000, small=4000, parquet=1, warm=1000, micro_batches=3)


@dataclass(frozen=True, slots=True)
class Reader:
    """One of the two sources, with the process that it costs CPU time."""

    name: str
    pid: int
    make: Callable[[Any, str, dict[str, str]], Any]


class Setup:
    """A broker, a Spark session, and both sources."""

    def __init__(self, spark: Any, broker: RunningBroker, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.folder = folder
        self.jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        host, port = broker.addresses["kafka"].rsplit(":", 1)
        self.kafka_broker = Broker(OURS, host, int(port), broker.pid)
        http = f"http://{broker.addresses['http']}"
        kafka = broker.addresses["kafka"]

        def ours(reader: Any, topic: str, more: dict[str, str]) -> Any:
            options = {"bootstrap": http, "subscribe": topic, "startingOffsets": "earliest", **more}
            return reader.format("trimq").schema(COLUMNS).options(**options).load()

        def connector(reader: Any, topic: str, more: dict[str, str]) -> Any:
            options = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "startingOffsets": "earliest", **more}
            return reader.format("kafka").options(**options).load()

        self.readers = [Reader(OURS, self.jvm, ours), Reader(CONNECTOR, self.jvm, connector)]
        self._numbers = iter(range(1_000_000))

    def used_s(self) -> float:
        """CPU time of Spark, its Python workers and the broker."""
        return tree_cpu_s(self.jvm) + cpu_s(self.broker.pid)

    def new_path(self, name: str) -> str:
        return str(self.folder / f"{name}-{next(self._numbers)}")


def measured(setup: Setup, rows: int, work: Callable[[], None]) -> Outcome:
    wall_s, used_s = time.perf_counter(), setup.used_s()
    work()
    return Outcome(rows, setup.used_s() - used_s, time.perf_counter() - wall_s)


def to_noop(setup: Setup, topic: str, rows: int, reader: Reader) -> Outcome:
    frame = reader.make(setup.spark.read, topic, {})
    return measured(setup, rows, lambda: frame.write.format("noop").mode("overwrite").save())


def to_parquet(setup: Setup, topic: str, rows: int, reader: Reader) -> Outcome:
    frame = reader.make(setup.spark.read, topic, {})
    return measured(setup, rows, lambda: frame.write.mode("overwrite").parquet(setup.new_path("parquet")))


def stream_to_noop(setup: Setup, topic: str, rows: int, reader: Reader) -> Outcome:
    frame = reader.make(setup.spark.readStream, topic, {"maxOffsetsPerTrigger": str(half(rows))})

    def work() -> None:
        writer = frame.writeStream.format("noop").option("checkpointLocation", setup.new_path("checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        if query.exception() is not None:
            raise query.exception()

    return measured(setup, rows, work)


def half(rows: int) -> int:
    """Returns a limit that gives two micro-batches, independent of how a source rounds the share of each partition."""
    return rows // 2 + PARTITIONS


def to_archive(setup: Setup, topic: str, rows: int, reader: Reader) -> Outcome:
    """Runs the archive pipeline; the connector has none, so it writes Parquet."""
    if reader.name != OURS:
        return to_parquet(setup, topic, rows, reader)
    http = f"http://{setup.broker.addresses['http']}"
    context = PipelineContext(bootstrap=http, spark=setup.spark, show=False, rows_per_batch=half(rows))

    def work() -> None:
        outcome = archive([topic], lake=setup.new_path("lake"), context=context)
        if outcome.figures["rows archived"] != rows:
            raise AssertionError(f"{outcome.figures['rows archived']} of {rows} rows were archived")

    return measured(setup, rows, work)


@contextmanager
def filled(setup: Setup, rows: int, record_bytes: int) -> Iterator[tuple[str, int]]:
    """Creates a topic with at least `rows` records of this size over all partitions. Yields its name and the number of
    records."""
    batch = encode_batch(_BATCH_BYTES, record_bytes)
    per_batch = int.from_bytes(batch[57:61], "big")
    with topic_on(setup.kafka_broker, PARTITIONS) as topic:
        for number in range(PARTITIONS):
            await_leader(setup.kafka_broker.address, topic, number)
        count = -(-rows // per_batch)
        requests = [encode_produce(topic, number, batch, acks=1) for number in range(PARTITIONS)]
        done = produce_until(setup.kafka_broker.address, topic, requests, 4, count, _FILL_S)
        yield topic, done * per_batch + PARTITIONS


def warm_up(setup: Setup, sizes: SparkSizes) -> None:
    """Runs both sources until the JIT compiler has seen all work, so that the first measured source has no
    disadvantage."""
    with filled(setup, sizes.warm, 300) as (topic, count):
        for _ in range(sizes.rounds):
            for work in (to_noop, stream_to_noop, to_parquet, to_archive):
                for reader in setup.readers:
                    work(setup, topic, count, reader)


def measure_size(setup: Setup, sizes: SparkSizes, rows: int, record_bytes: int, goal: float) -> Iterator[Figure]:
    size = f"{record_bytes} B"
    works = {"batch": (to_noop, sizes.rounds), "stream": (stream_to_noop, sizes.rounds)}
    works |= {"to Parquet": (to_parquet, sizes.parquet), "archive": (to_archive, sizes.parquet)}
    with filled(setup, rows, record_bytes) as (topic, count):
        for name, (work, rounds) in works.items():
            found = run_rounds(setup.readers, rounds, partial(work, setup, topic, count))
            yield from _figures(f"{name}, {size}", found, 1.5 if name == "archive" else goal)


def _figures(name: str, found: dict[str, Result], goal: float) -> Iterator[Figure]:
    ours, theirs = found[OURS], found[CONNECTOR]
    note = f"wall clock, best of {len(ours.outcomes)}; median {ours.median_rate:,.0f}, theirs {theirs.median_rate:,.0f}"
    yield Figure(f"{name}: rows", ours.rate, "rows/s", theirs.rate, at_least_times_floor(goal), note, CONNECTOR)
    note = f"CPU of Spark, its workers and the broker, least of {len(ours.outcomes)}; median {ours.median_cpu_us:.3g}"
    yield Figure(f"{name}: CPU", ours.cpu_us, "us/row", theirs.cpu_us, None, note, CONNECTOR)


def measure_micro_batches(setup: Setup, sizes: SparkSizes) -> Iterator[Figure]:
    """Measures the duration of a micro-batch of one record beyond that of Spark's rate source."""

    def median_ms(frame: Any) -> float:
        # The query never ends by itself: it is stopped after this number of batches.
        query = frame.writeStream.format("noop").option("checkpointLocation", setup.new_path("micro_batches")).start()
        try:
            while len(query.recentProgress) < sizes.micro_batches + 2:
                if query.exception() is not None:
                    raise query.exception()
                time.sleep(0.05)
            found = [progress.durationMs["triggerExecution"] for progress in query.recentProgress]
            return statistics.median(found[2:])
        finally:
            query.stop()

    idle = setup.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").option("numPartitions", "1")
    with filled(setup, 2000, 100) as (topic, _):
        for reader in setup.readers:
            frame = reader.make(setup.spark.readStream, topic, {"maxOffsetsPerTrigger": "1"})
            own = median_ms(frame)
            floor = median_ms(idle.load())
            note = f"triggerExecution, median of {sizes.micro_batches}: {own:.0f} ms, rate source {floor:.0f} ms"
            goal = at_most(50) if reader.name == OURS else None
            yield Figure(f"micro-batch overhead, {reader.name}", own - floor, "ms", None, goal, note, CONNECTOR)


def measures_of(setup: Setup, sizes: SparkSizes) -> dict[str, Measure]:
    return {
        "1 KB": partial(measure_size, setup, sizes, sizes.large, 1000, 1.5),
        "100 B": partial(measure_size, setup, sizes, sizes.small, 100, 1.0),
        "micro-batch": partial(measure_micro_batches, setup, sizes),
    }


@contextmanager
def setup_in(folder: Path) -> Iterator[Setup]:
    jars = kafka_connector()
    with broker_in(folder / "broker", ["--flush", "async"]) as broker:
        conf = {
            "spark.jars": ",".join(jars),
            "spark.driver.memory": "3g",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.log.level": "OFF",
        }
        spark = make_session("bench", "local[2]", conf)
        try:
            yield Setup(spark, broker, folder)
        finally:
            spark.stop()


def main(words: list[str] | None = None) -> int:
    """Returns 0 even if a goal is missed: the figures depend on the other load of the machine."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check that every figure runs; the values are meaningless")
    parser.add_argument("--only", default="", metavar="WORD", help="only the measurements with this in their name")
    parser.add_argument("--folder", type=Path, help="folder for 5 GB of temporary files; default: TMPDIR or build/")
    chosen = parser.parse_args(words)
    sizes = QUICK if chosen.quick else FULL
    try:
        with scratch(chosen.folder) as folder, setup_in(folder) as setup:
            every = measures_of(setup, sizes)
            wanted = {name: measure for name, measure in every.items() if chosen.only in name}
            if not wanted:
                print(f"no measurement matches {chosen.only!r}; there are: {', '.join(every)}", file=sys.stderr)
                return 2
            warm_up(setup, sizes)
            run(wanted, CONNECTOR)
    except JavaMissing as missing:
        print(f"Spark's Kafka connector cannot be downloaded: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # SIGTERM ends the run like Ctrl-C, so that the started broker is stopped too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
