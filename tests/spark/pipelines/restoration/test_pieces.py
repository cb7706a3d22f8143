"""Restoring archives of large records: every record that a broker accepted is restored, in pieces that fit into
memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pyspark_trimq.pipelines import PipelineContext, PipelineFailure, archive, restore
from pyspark_trimq.pipelines.restoration import pieces
from pyspark_trimq.pipelines.restoration.pieces import Bucket, buckets, rounds
from trimq.errors import StartupError
from trimq.testing import Broker


def context(spark: Any, broker: Broker, **more: Any) -> PipelineContext:
    return PipelineContext(bootstrap=broker.http, spark=spark, show=False, **more)


def send(broker: Broker, topic: str, values: list[bytes], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka, "message.max.bytes": 100_000_000, **settings})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def test_records_accepted_compressed_or_alone_are_restored(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    values = [os.urandom(1_040_000), b"many zeros" * 600_000, b"small"]
    for value in values:
        send(broker, "orders", [value], **{"compression.type": "zstd"})
    archive(["orders"], lake=tmp_path / "lake", context=context(spark, broker))
    outcome = restore(tmp_path / "lake", to="again", context=context(spark, broker))
    assert outcome.figures["rows written"] == 3
    assert [record.body == value for record, value in zip(broker.records("again"), values, strict=True)] == [True] * 3


def test_a_record_that_is_larger_than_the_target_takes_is_named(spark: Any, broker: Broker, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([NewTopic("orders", 1, config={"max.message.bytes": "5000000"})])["orders"].result(30)
    send(broker, "orders", [b"small", os.urandom(3_000_000)])
    archive(["orders"], lake=tmp_path / "lake", context=context(spark, broker))
    with pytest.raises(PipelineFailure) as raised:
        restore(tmp_path / "lake", to="again", context=context(spark, broker))
    sentence = str(raised.value)
    assert re.search(
        r"^message 1 of orders 0 has 30001\d\d bytes, but 'again' does not accept more than 1048588 ", sentence
    )
    assert "raise max.message.bytes of 'again'" in sentence
    assert "\n" not in sentence
    # Both remedies are passed on: a topic that accepts it, or client settings.
    admin.create_topics([NewTopic("wide", 1, config={"max.message.bytes": "5000000"})])["wide"].result(30)
    options = {"compression": "none", "kafka.linger.ms": "5"}
    done = restore(tmp_path / "lake", to="wide", context=context(spark, broker, options=options))
    assert done.figures["rows written"] == 2


def test_pieces_are_bounded_by_bytes_and_by_rows() -> None:
    found = [Bucket(0, at, at, 1, 100, 100) for at in range(0, 20, 2)] + [Bucket(1, 0, 9, 10, 50, 5)]
    listed = rounds(found, max_rows=10, max_bytes=300)
    assert [part.spans.get(0) for part in listed] == [(0, 4), (6, 10), (12, 16), (18, 18)]
    assert [part.spans.get(1) for part in listed] == [(0, 4), (5, 9), None, None]
    assert sum(part.rows for part in listed) == 20
    assert [part.spans for part in rounds([Bucket(0, 0, 0, 1, 9999, 9999)], 5, 10)] == [{0: (0, 0)}]


def test_an_archive_is_restored_in_pieces_of_a_few_bytes(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders", partitions=2)
    for number in range(40):
        broker.send("orders", b"%d" % number * 300, partition=number % 2)
    archive(["orders"], lake=tmp_path / "lake", context=context(spark, broker))
    frame = spark.read.parquet(str(tmp_path / "lake"))
    monkeypatch.setattr(pieces, "MAX_BUCKETS", 4)
    assert {bucket.rows for bucket in buckets(frame, 40, 2000)} == {1}, "what is too large is looked at closely"
    assert len(buckets(frame, 40, 1 << 20)) < 10
    monkeypatch.setattr(pieces, "TASK_BYTES", 2000)
    assert restore(tmp_path / "lake", to="again", context=context(spark, broker)).figures["rows written"] == 40
    for partition in (0, 1):
        before, after = broker.records("orders", partition), broker.records("again", partition)
        assert [record.body for record in after] == [record.body for record in before]


def test_restore_follows_the_lake_and_resumes_at_its_checkpoint(spark: Any, broker: Broker, tmp_path: Path) -> None:
    for topic in ("orders", "again"):
        broker.create_topic(topic)
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"

    def grow(numbers: range) -> None:
        for number in numbers:
            broker.send("orders", str(number))
        archive(["orders"], lake=lake, compact_from=2, context=context(spark, broker))

    def restored() -> list[int]:
        return [int(record.body or b"") for record in broker.records("again")]

    class Growing(threading.Event):
        """Adds to the lake between the first and the second wait, then ends the run."""

        looks = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.looks += 1
            if self.looks == 1:
                assert restored() == [0, 1, 2]
                grow(range(3, 5))
                return False
            return True

    grow(range(3))
    following = context(spark, broker, once=False, every="100ms", checkpoint=checkpoint, stop=Growing())
    outcomes = [restore(lake, to="again", context=following)]
    assert outcomes[0].figures["rows written"] == 5
    grow(range(5, 6))
    again = restore(lake, to="again", context=context(spark, broker, checkpoint=checkpoint))
    assert (again.figures["rows written"], again.figures["rows there already"]) == (1, 5)
    assert restored() == list(range(6))
    with pytest.raises(StartupError, match="its to is 'again', not 'other'"):
        restore(lake, to="other", context=context(spark, broker, checkpoint=checkpoint))


DYING = """
import os, signal, sys
from pyspark_trimq.pipelines import PipelineContext, PipelineFailure, archive
from pyspark_trimq.session import make_session
spark = make_session("dying", "local[1]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xss4m"})
pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
os.kill(pid, signal.SIGKILL)
try:
    archive(["orders"], lake=sys.argv[1], context=PipelineContext(bootstrap=sys.argv[2], spark=spark, show=False))
except PipelineFailure as failure:
    print("TOLD", failure)
"""


def test_a_java_process_that_has_ended_is_reported_in_a_sentence(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    words = [sys.executable, "-c", DYING, str(tmp_path / "lake"), broker.http]
    done = subprocess.run(words, capture_output=True, text=True, timeout=150, check=False)
    assert re.search(r"^TOLD Spark's Java process has ended, .* nothing is lost$", done.stdout, re.MULTILINE), (
        done.stdout + done.stderr[-2000:]
    )
