"""Mistakes are reported in a sentence, and the checkpoint stays usable."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pyspark_trimq.arrow.columns import row_schema
from pyspark_trimq.broker import kafka_metadata
from pyspark_trimq.broker.kafka_client import KafkaBrokerClient
from pyspark_trimq.mistakes import Mistake, sentence_of
from pyspark_trimq.source.stream_reader import StreamReader
from trimq.model import SYSTEM
from trimq.testing import Broker

GOOD = {"subscribe": "orders"}


def source(maker: Any, broker: Broker, options: dict[str, str]) -> Any:
    given = {"bootstrap": broker.http, **options}
    return maker.format("trimq").options(**{name: value for name, value in given.items() if value})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "none"}, "there is no topic or queue 'none' at http://"),
        ({}, "give one of the options subscribe, subscribePattern, assign"),
        ({**GOOD, "assign": "{}"}, "give one of the options subscribe, subscribePattern, assign, not"),
        ({**GOOD, "bootstrap": ""}, "give the option bootstrap: host:9092 or http://host:8180"),
        ({**GOOD, "bootstrap": "nonsense"}, "bootstrap is 'nonsense': give host:9092 or http://host:8180"),
        ({**GOOD, "bootstrap": "127.0.0.1:1"}, "the broker at 127.0.0.1:1 does not answer"),
        ({**GOOD, "bootstrap": "http://127.0.0.1:1"}, "the broker at http://127.0.0.1:1 does not answer"),
        ({**GOOD, "startingOffset": "earliest"}, "there is no option 'startingoffset'"),
        ({**GOOD, "startingOffsets": "latest"}, "startingOffsets is 'latest', so that a batch reads nothing"),
        ({**GOOD, "startingOffsets": "soon"}, "the option startingOffsets is 'soon': it must be JSON"),
        ({**GOOD, "startingOffsets": '{"orders": {"0": 1}}'}, "startingOffsets names no offset for partition 1"),
        (
            {**GOOD, "startingOffsets": '{"orders": {"0": 1, "1": 0}, "others": {"0": 1}}'},
            "startingOffsets names partition 0 of 'others', which the query does not read",
        ),
        (
            {**GOOD, "startingOffsets": '{"orders": {"0": 1, "1": 0, "7": 0}}'},
            "startingOffsets names partition 7 of 'orders', which the query does not read",
        ),
        ({**GOOD, "minPartitions": "0"}, "the option minPartitions is '0': it must be a whole number above 0"),
        ({**GOOD, "failOnDataLoss": "maybe"}, "the option failOnDataLoss is 'maybe': it must be true or false"),
        ({**GOOD, "isolation": "dirty"}, "the option isolation is 'dirty'"),
        ({"subscribePattern": "("}, "the option subscribePattern is '(': it must be a regular expression"),
        ({"assign": '{"orders": [7]}'}, "the topic 'orders' has no partition 7"),
        ({**GOOD, "endingOffsets": '{"orders": {"0": 9, "1": 0}}'}, "messages 0 to 9 of orders 0 were to be read"),
    ],
)
def test_a_wrong_option_is_a_sentence(spark: Any, broker: Broker, options: dict[str, str], sentence: str) -> None:
    broker.create_topic("orders", partitions=2)
    with pytest.raises(PySparkException) as raised:
        source(spark.read, broker, options).load().collect()
    assert sentence in sentence_of(raised.value)


def test_a_schema_that_rows_do_not_have_is_refused(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders")
    for schema, sentence in (
        ("colour string", "there is no column 'colour'; there are key, value, topic"),
        ("value string", "the column 'value' is binary, not string; select and cast it after the load"),
    ):
        with pytest.raises(PySparkException) as raised:
            source(spark.read, broker, GOOD).schema(schema).load().collect()
        assert sentence in sentence_of(raised.value)


def test_a_schema_chooses_columns(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders")
    broker.send("orders", "one")
    found = source(spark.read, broker, GOOD).schema("offset bigint, partition int").load().collect()
    assert [tuple(row) for row in found] == [(0, 0)]


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ("select 'a' as body", {"topic": "orders"}, "the sink has no column 'body': select only value, key"),
        ("select 1 as value", {"topic": "orders"}, "the column 'value' must be binary or string, not int"),
        ("select 'a' as key", {"topic": "orders"}, "there is no column 'value'"),
        ("select 'a' as value", {}, "give the option topic, or a column named 'topic'"),
        ("select 'a' as value", {"topic": "orders", "delivery": "twice"}, "the option delivery is 'twice'"),
        ("select 'a' as value", {"topic": "orders", "topics": "b"}, "there is no option 'topics'"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_in_a_sentence(
    spark: Any, broker: Broker, rows: str, options: dict[str, str], sentence: str
) -> None:
    broker.create_topic("orders")
    with pytest.raises(PySparkException) as raised:
        source(spark.sql(rows).write, broker, options).mode("append").save()
    assert sentence in sentence_of(raised.value)
    assert broker.records("orders") == []


class Query:
    """A stream that is run repeatedly until it has read everything."""

    def __init__(self, spark: Any, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.seen: list[bytes] = []

    def run(self, **options: str) -> None:
        reader = source(self.spark.readStream, self.broker, {**GOOD, "startingOffsets": "earliest", **options})
        writer = reader.load().select("value").writeStream.foreachBatch(self._keep)
        query = writer.option("checkpointLocation", str(self.folder)).trigger(availableNow=True).start()
        query.awaitTermination(60)

    def _keep(self, batch: Any, number: int) -> None:
        self.seen += sorted(bytes(row.value) for row in batch.collect())


def test_expired_messages_fail_the_query_unless_failondataloss_is_false(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    query = Query(spark, broker, tmp_path)
    broker.send("orders", "0")
    query.run()
    for index in range(1, 5):
        broker.send("orders", str(index))
    broker._write(
        lambda node: (
            None,
            node.core.broker.partitions.cut_head(SYSTEM, node.core.broker.topics.get(SYSTEM, "orders"), 0, 3),
        )
    )
    with pytest.raises(PySparkException) as raised:
        query.run()
    assert "messages 1 to 5 of orders 0 were to be read, but it has messages from 3 to 5" in sentence_of(raised.value)
    with pytest.raises(PySparkException):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.seen == [b"0", b"3", b"4"]


def test_a_broker_that_restarts_is_waited_for(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    query = Query(spark, broker, tmp_path)
    broker.send("orders", "0")
    query.run()
    broker.restart()
    broker.send("orders", "1")
    query.run()
    broker.stop()
    with pytest.raises(PySparkException) as raised:
        query.run()
    assert f"the broker at {broker.http} does not answer" in sentence_of(raised.value)
    broker.restart()
    query.run()
    assert query.seen == [b"0", b"1"]


def test_a_running_query_outlives_a_restart(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    query = Query(spark, broker, tmp_path)
    reader = source(spark.readStream, broker, {**GOOD, "startingOffsets": "earliest"})
    running = reader.load().select("value").writeStream.foreachBatch(query._keep)
    running = running.option("checkpointLocation", str(tmp_path)).start()
    try:
        broker.send("orders", "0")
        running.processAllAvailable()
        broker.restart()
        broker.send("orders", "1")
        running.processAllAvailable()
    finally:
        running.stop()
    assert query.seen == [b"0", b"1"]


def test_the_checkpoint_of_another_source_is_refused(spark: Any, broker: Broker, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    query.awaitTermination(60)
    broker.create_topic("orders")
    broker.send("orders", "0")
    with pytest.raises(PySparkException) as raised:
        Query(spark, broker, tmp_path).run()
    assert "which is not an offset of this source: use another checkpoint" in sentence_of(raised.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets and endingTimestamp are for spark.read"),
        ({"endingTimestamp": "5"}, "endingOffsets and endingTimestamp are for spark.read"),
    ],
)
def test_options_without_meaning_for_a_stream_are_refused(options: dict[str, str], sentence: str) -> None:
    given = {"bootstrap": "http://127.0.0.1:8180", **GOOD, **options}
    with pytest.raises(Mistake, match=sentence):
        StreamReader(row_schema(False), given)


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_a_micro_batch_is_limited_in_messages_and_in_bytes(broker: Broker, port: str) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(40):
        broker.send("orders", bytes(1000), partition=index % 2)
    for limits, most in (
        ({"maxOffsetsPerTrigger": "6"}, 6),
        ({"maxBytesPerTrigger": "11000"}, 10),
        ({"maxOffsetsPerTrigger": "4", "maxBytesPerTrigger": "11000"}, 4),
    ):
        reader = StreamReader(
            row_schema(False), {"bootstrap": getattr(broker, port), **GOOD, "startingOffsets": "earliest", **limits}
        )
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert sum(end["orders"].values()) == most
        reader.stop()


def test_sizes_are_estimated_from_the_first_messages_for_users_without_the_right_to_read_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders")
    for _ in range(100):
        broker.send("orders", bytes(1000))
    with closing(KafkaBrokerClient(broker.kafka, True)) as port:
        known = port.sizes("orders")
        monkeypatch.setattr(kafka_metadata, "read_sizes", lambda _: {})
        judged = port.sizes("orders")
    assert known[0] > 100_000
    assert judged == known
