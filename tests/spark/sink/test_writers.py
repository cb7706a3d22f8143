"""Rows are written as messages, each once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from trimq.testing import Broker


def bodies(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.body for record in broker.records(topic, partition)]


def test_rows_are_written_with_key_headers_time_and_partition(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    rows = spark.sql(
        "select 'a' as key, 'one' as value, timestamp_millis(1234) as timestamp, 1 as partition, "
        "array(struct('h' as key, binary('v') as value)) as headers"
    )
    rows.write.format("trimq").option("bootstrap", broker.kafka).option("topic", "orders").mode("append").save()
    (record,) = broker.records("orders", 1)
    assert (record.key, record.body, record.timestamp_ms, record.headers) == (b"a", b"one", 1234, (("h", b"v"),))


def test_rows_may_name_their_topics(spark: Any, broker: Broker) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    rows = spark.createDataFrame([("a", b"1"), ("b", b"2"), (None, b"3")], "topic string, value binary")
    rows.write.format("trimq").option("bootstrap", broker.http).option("topic", "b").mode("append").save()
    assert (bodies(broker, "a"), sorted(bodies(broker, "b"))) == ([b"1"], [b"2", b"3"])


def test_a_write_with_an_id_is_done_once(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders")
    rows = spark.range(0, 10, 1, 3).selectExpr("cast(id as string) as value")
    for _ in range(2):
        writer = rows.write.format("trimq").option("bootstrap", broker.kafka).option("topic", "orders")
        writer.option("writeId", "restore-1").mode("append").save()
    assert sorted(bodies(broker, "orders")) == [str(index).encode() for index in range(10)]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_batch_that_is_replayed_is_skipped_when_it_was_committed(
    spark: Any, broker: Broker, tmp_path: Path, delivery: str
) -> None:
    broker.create_topic("in", partitions=2)
    broker.create_topic("out")
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("trimq").option("bootstrap", broker.http).option("subscribe", "in")
        rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
        writer = rows.writeStream.format("trimq").option("bootstrap", broker.kafka).option("topic", "out")
        writer = writer.option("delivery", delivery).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination(60)

    for index in range(6):
        broker.send("in", str(index), partition=index % 2)
    run()
    assert sorted(bodies(broker, "out")) == [str(index).encode() for index in range(6)]
    for name in ("0", ".0.crc"):  # the state after a driver died between the tasks' commit and its own
        (checkpoint / "commits" / name).unlink()
    run()
    times = 1 if delivery == "exactly-once" else 2
    assert sorted(bodies(broker, "out")) == sorted(str(index).encode() for index in range(6) for _ in range(times))
    shutil.rmtree(checkpoint)
