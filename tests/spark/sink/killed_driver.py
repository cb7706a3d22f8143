"""A driver that copies a topic with the exactly-once sink. It and its workers are killed once for each entry of
`DEATHS`, when the sink has just reached that phase. `test_kills` starts it until it completes. The module is imported,
not run: a subclass of the Kafka client is pickled by its name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Producer
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_trimq import DefaultSource
from pyspark_trimq.session import make_session
from pyspark_trimq.sink import sender
from pyspark_trimq.sink.writers import StreamWriter, TaskCommit

BATCH_ROWS = 20  # in two tasks


class Death(NamedTuple):
    """`part` is the number of the task; None for the commit of the sink, after those of all tasks. `takes_driver`:
    kills the driver and its JVM. `takes_worker`: kills the worker."""

    batch: int
    part: int | None
    phase: str
    takes_driver: bool
    takes_worker: bool

    @property
    def name(self) -> str:
        who = "driver" if self.takes_driver else "worker"
        return f"{self.batch}-{'all' if self.part is None else self.part}-{self.phase}-{who}"


DEATHS = {
    "drivers": (
        Death(0, 0, "half", True, True),
        Death(1, 1, "committed", True, False),
        Death(2, None, "done", True, False),
    ),
    "workers": (
        Death(0, 0, "begin", False, True),
        Death(0, 1, "half", False, True),
        Death(1, 0, "rows", False, True),
        Death(1, 1, "offsets", False, True),
        Death(2, 0, "committed", False, True),
        # The same task dies twice; the second time it had nothing left to send.
        Death(2, 1, "committed", False, True),
        Death(2, 1, "found", False, True),
        Death(3, None, "done", False, True),
    ),
}


def reach(batch: int, part: int | None, phase: str) -> None:
    """Kills this process if a death is planned here that did not happen yet."""
    folder = Path(os.environ["DEATHS_FOLDER"])
    for death in DEATHS[os.environ["DEATHS_OF"]]:
        if death[:3] == (batch, part, phase) and not (folder / death.name).exists():
            (folder / death.name).touch()
            if death.takes_driver:
                os.killpg(int(os.environ["DRIVER_GROUP"]), signal.SIGKILL)
            if death.takes_worker:
                os.kill(os.getpid(), signal.SIGKILL)


class MortalProducer(Producer):
    """Reports its phases, after all its messages so far have reached the broker."""

    produced = 0

    def _reach(self, phase: str) -> None:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert batch is not None
        reach(int(batch), context.partitionId(), phase)

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._reach("begin")

    def produce(self, *given: Any, **named: Any) -> None:
        super().produce(*given, **named)
        self.produced += 1
        if self.produced == BATCH_ROWS // 4:
            self.flush(60)
            self._reach("half")

    def send_offsets_to_transaction(self, *given: Any) -> None:
        self.flush(60)
        self._reach("rows")
        super().send_offsets_to_transaction(*given)
        self._reach("offsets")

    def commit_transaction(self, *given: Any) -> None:
        super().commit_transaction(*given)
        self._reach("committed")


class MortalWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        sender.Producer = MortalProducer  # type: ignore[misc]
        written = super().write(iterator)
        context = TaskContext.get()
        if written.was_sent_before and context is not None:
            reach(int(context.getLocalProperty("streaming.sql.batchId") or ""), context.partitionId(), "found")
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:
        reach(batchId, None, "done")


class MortalSink(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: StructType, overwrite: bool) -> MortalWriter:
        return MortalWriter(schema, self.options)


def copy(http: str, folder: Path) -> None:
    spark = make_session(
        "killed",
        "local[2,8]",  # a task may fail seven times
        {
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
            "spark.driver.memory": "512m",
            "spark.log.level": "OFF",
            "spark.sql.streaming.pollingDelay": "10ms",
        },
    )
    spark.dataSource.register(MortalSink)
    try:
        _copy(spark, http, folder)
    except StreamingQueryException:
        # Spark retries a task, but not the commit of the sink.
        if DEATHS["workers"][-1].name not in os.listdir(folder / "deaths"):
            raise
        _copy(spark, http, folder)
    print("done", flush=True)


def _copy(spark: SparkSession, http: str, folder: Path) -> None:
    reader = spark.readStream.format("trimq").option("bootstrap", http).option("subscribe", "in")
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH_ROWS))
    writer = reader.load().select("key", "value").writeStream.format("mortal").option("bootstrap", http)
    writer = writer.option("topic", "out").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    http, folder, of = sys.argv[1:]
    os.environ["DRIVER_GROUP"] = str(os.getpgid(0))
    os.environ["DEATHS_FOLDER"] = str(Path(folder) / "deaths")
    os.environ["DEATHS_OF"] = of
    copy(http, Path(folder))
