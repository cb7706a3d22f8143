"""Rows of a topic, by batch and by stream, with a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimq.testing import Broker


def load(spark: Any, broker: Broker, **options: object) -> Any:
    reader = spark.read.format("trimq").option("bootstrap", broker.http)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def test_a_batch_has_every_message_with_the_columns_of_spark_s_own_kafka_source(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(10):
        headers = {"n": str(index).encode(), "none": None} if index % 2 else {}
        broker.send("orders", f"body {index}", f"key {index}", headers, partition=index % 2, timestamp_ms=1000 + index)
    broker.send("orders", None, None, timestamp_ms=5)
    found = load(spark, broker, subscribe="orders", includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in found] == [(0, at) for at in range(6)] + [(1, at) for at in range(5)]
    first = found[6]
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"key 1", b"body 1", "orders")
    assert first.timestamp.timestamp() == 1.001
    assert first.timestampType == 0
    assert [(header.key, header.value) for header in first.headers] == [("n", b"1"), ("none", None)]
    assert found[0].headers == []
    last = found[5]
    assert (last.key, last.value) == (None, None)
    assert (last.producerId, last.sequence, last.tags, last["keys"], last.properties) == (None, None, None, [], {})


def test_a_stream_resumes_at_its_checkpoint(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders", partitions=2)
    seen: list[tuple[int, int]] = []

    def run() -> None:
        reader = spark.readStream.format("trimq").option("bootstrap", broker.http).option("subscribe", "orders")
        rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "4").load()
        query = (
            rows.select("partition", "offset")
            .writeStream.foreachBatch(lambda batch, id: seen.extend((row[0], row[1]) for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    for index in range(10):
        broker.send("orders", f"body {index}", partition=index % 2)
    run()
    assert sorted(seen) == [(number, at) for number in range(2) for at in range(5)]
    broker.send("orders", "more", partition=1)
    run()
    assert sorted(seen) == sorted([*[(number, at) for number in range(2) for at in range(5)], (1, 5)])
