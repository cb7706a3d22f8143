"""Spark's own Kafka connector on TriMQ's Kafka port: batch, streaming, read_committed, and real-time mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.cache import require
from confluent_kafka import Producer

from pyspark_trimq.session import make_session
from tools.spark_jars import kafka_connector
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]

PATIENCE_S = 120


@pytest.fixture(autouse=True)
def _nothing_leaks() -> None:
    """Replaces the leak check of the other tests: the gateway to the JVM keeps its connections and threads."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require("java")
    require("mvn")
    folder = tmp_path_factory.mktemp("spark")
    session = make_session(
        "connector",
        "local[2]",
        {
            "spark.jars": ",".join(kafka_connector()),
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.log.level": "OFF",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def of_kafka(maker: Any, broker: Broker, **options: str) -> Any:
    return maker.format("kafka").option("kafka.bootstrap.servers", broker.kafka).options(**options)


def eventually(look: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)


def values(rows: list[Any]) -> list[bytes]:
    return sorted(bytes(row.value) for row in rows)


def test_it_reads_a_batch(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(20):
        broker.send("orders", f"{index:02}", "key", {"h": b"v"}, partition=index % 2)
    rows = of_kafka(spark.read, broker, subscribe="orders", includeHeaders="true").load().collect()
    assert values(rows) == [b"%02d" % index for index in range(20)]
    assert [(header.key, header.value) for header in rows[0].headers] == [("h", b"v")]


def test_it_reads_and_writes_a_stream(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("in", partitions=2)
    broker.create_topic("out")
    for index in range(20):
        broker.send("in", f"{index:02}", partition=index % 2)
    options = {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
    rows = of_kafka(spark.readStream, broker, **options).load().select("value")
    writer = of_kafka(rows.writeStream, broker, topic="out").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert query.exception() is None
    found = [record.body or b"" for record in broker.records("out")]
    assert sorted(found) == [b"%02d" % index for index in range(20)]


def test_it_writes_a_batch(spark: Any, broker: Broker) -> None:
    broker.create_topic("out", partitions=3)
    rows = spark.range(30).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    of_kafka(rows.write, broker, topic="out").save()
    found = [record.body for number in range(3) for record in broker.records("out", number)]
    assert sorted(int(body or b"") for body in found) == list(range(30))


def test_it_reads_only_committed_records(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders")
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    for body, is_kept in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce("orders", body)
        producer.flush(PATIENCE_S)
        if is_kept:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    options = {"subscribe": "orders", "kafka.isolation.level": "read_committed"}
    assert values(of_kafka(spark.read, broker, **options).load().collect()) == [b"a", b"c"]


def test_it_supports_real_time_mode(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("in", partitions=2)
    broker.create_topic("out")
    rows = of_kafka(spark.readStream, broker, subscribe="in", startingOffsets="earliest").load()
    rows = rows.selectExpr("key", "upper(cast(value as string)) as value")
    writer = of_kafka(rows.writeStream, broker, topic="out").option("checkpointLocation", str(tmp_path))
    query = writer.outputMode("update").trigger(realTime="5 seconds").start()
    try:
        broker.send("in", "first")
        eventually(lambda: [record.body for record in broker.records("out")] == [b"FIRST"], "nothing came out")
        broker.send("in", "second", partition=1)
        eventually(lambda: len(broker.records("out")) == 2, "nothing more came out")
    finally:
        query.stop()
    assert query.exception() is None
