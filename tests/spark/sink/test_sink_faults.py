"""The sink with slow tasks, broker restarts and invalid rows; and the groups that it leaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from pyspark_trimq.broker.client import OffsetRange, StreamKey, open_broker_client
from pyspark_trimq.mistakes import Unreachable, sentence_of
from pyspark_trimq.sink import sender
from pyspark_trimq.sink.sender import Target, Token, send_exactly_once
from trimq.testing import Broker

ROWS = pa.RecordBatch.from_pydict({"value": [b"one", b"two"]})


def groups(broker: Broker) -> list[str]:
    with urlopen(f"{broker.http}/api/groups", timeout=20) as answer:
        return [group["name"] for group in json.loads(answer.read())["groups"]]


def slowly(broker: Broker, minutes: int) -> Iterator[pa.RecordBatch]:
    before = len(broker.records("orders"))
    yield ROWS
    while len(broker.records("orders")) == before:  # until the broker has the transaction
        threading.Event().wait(0.01)
    broker.advance(f"{minutes}m", liveness=True)
    yield ROWS


def test_a_task_may_take_longer_than_a_minute(broker: Broker) -> None:
    broker.create_topic("orders")
    target = Target(broker.kafka, "orders", "none", {})
    assert send_exactly_once(target, Token("q", 0, 0), slowly(broker, 10)) == (4, False)


def test_a_task_that_takes_too_long_is_reported(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    target = Target(broker.kafka, "orders", "none", {"transaction.timeout.ms": "60000"})
    times = iter([0.0, 90.0])
    with pytest.raises(Unreachable, match="another attempt of the same task took over, or its transaction was open"):
        send_exactly_once(target, Token("q", 0, 0), slowly(broker, 2))
    monkeypatch.setattr(sender, "monotonic_seconds", lambda: next(times))
    with pytest.raises(Unreachable, match=r"after 90 s, its timeout is 60 s: .* kafka\.transaction\.timeout\.ms"):
        send_exactly_once(target, Token("q", 0, 0), slowly(broker, 2))


def test_a_broker_that_restarts_within_a_transaction_has_its_rows_once(broker: Broker) -> None:
    broker.create_topic("orders")
    target = Target(broker.kafka, "orders", "none", {})
    is_first = True

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal is_first
        yield ROWS
        if is_first:
            is_first = False
            while not broker.records("orders"):  # until the broker has the transaction
                threading.Event().wait(0.01)
            broker.restart()
        yield ROWS

    for _ in range(2):  # like Spark, which retries a failed task
        try:
            sent = send_exactly_once(target, Token("q", 0, 0), rows())
            break
        except Unreachable:
            continue
    assert sent == (4, False)
    assert send_exactly_once(target, Token("q", 0, 0), rows()) == (0, True)
    with closing(open_broker_client(broker.http, "", is_committed=True)) as port:
        wanted = OffsetRange(StreamKey("orders", 0), 0, port.ends("orders")[0].end)
        batches = list(port.read(wanted, pa.schema([("value", pa.binary())]), fails_on_loss=True))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"one", b"two"] * 2


def test_a_sink_waits_for_a_broker_that_restarts(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "0.txt").write_text("0\n")
    rows = spark.readStream.format("text").load(str(lines))
    writer = rows.writeStream.format("trimq").option("bootstrap", broker.http).option("topic", "orders")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        broker.stop()
        again = threading.Timer(3, broker.restart)
        again.start()
        (lines / "1.txt").write_text("1\n")
        query.processAllAvailable()
        again.join()
    finally:
        query.stop()
    assert [record.body for record in broker.records("orders")] == [b"0", b"1"]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("select 'a' as value, -1 as partition", "a row has a negative partition"),
        (
            "select 'a' as value, array(struct(cast(null as string) as key, binary('v') as value)) as headers",
            "a row has a header without a key",
        ),
    ],
)
def test_rows_that_are_no_valid_messages_are_refused(spark: Any, broker: Broker, rows: str, sentence: str) -> None:
    broker.create_topic("orders", partitions=2)
    writer = spark.sql(rows).write.format("trimq").option("bootstrap", broker.kafka).option("topic", "orders")
    with pytest.raises(PySparkException) as raised:
        writer.mode("append").save()
    assert sentence in sentence_of(raised.value)
    assert broker.records("orders") == []


def test_a_null_partition_is_any(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders")
    rows = spark.sql("select 'a' as value, cast(null as int) as partition")
    rows.write.format("trimq").option("bootstrap", broker.kafka).option("topic", "orders").mode("append").save()
    assert [record.body for record in broker.records("orders")] == [b"a"]


def test_a_write_without_an_id_leaves_no_group(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders")
    rows = spark.range(0, 40, 1, 34).selectExpr("cast(id as string) as value")
    writer = rows.write.format("trimq").option("bootstrap", broker.http).option("topic", "orders").mode("append")
    writer.save()
    assert len(broker.records("orders")) == 40
    assert groups(broker) == []
    writer.option("writeId", "again").save()
    assert groups(broker) == ["spark-sink-write-again", "spark-sink-write-again-1"]


def test_a_wrong_address_of_a_write_is_reported_at_once(spark: Any) -> None:
    writer = spark.sql("select 'a' as value").write.format("trimq").option("bootstrap", "http://127.0.0.1:1")
    with pytest.raises(PySparkException) as raised:
        writer.option("topic", "orders").mode("append").save()
    assert "the broker at http://127.0.0.1:1 does not answer" in sentence_of(raised.value)
