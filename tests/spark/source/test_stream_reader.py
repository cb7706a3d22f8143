"""Deleted, recreated and empty topics: reported in a sentence, or skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyspark.errors import PySparkException

from pyspark_trimq.arrow.columns import row_schema
from pyspark_trimq.mistakes import Lost, sentence_of
from pyspark_trimq.source.stream_reader import StreamReader
from trimq.model import SYSTEM
from trimq.testing import Broker

BOTH_PORTS = pytest.mark.parametrize("port", ["http", "kafka"])


def delete_topic(broker: Broker, name: str) -> None:
    with urlopen(Request(f"{broker.http}/api/topics/{name}", method="DELETE"), timeout=20):
        pass


def fill(broker: Broker, topic: str, first: int, after: int, partitions: int = 1) -> None:
    for index in range(first, after):
        broker.send(topic, str(index), partition=index % partitions)


class Query:
    """A stream that is run repeatedly until it has read everything."""

    def __init__(self, spark: Any, bootstrap: str, folder: Path, **options: str) -> None:
        self._spark, self._folder = spark, folder
        self._options = {"bootstrap": bootstrap, "startingOffsets": "earliest", **options}
        self.seen: list[int] = []

    def run(self, **options: str) -> list[int]:
        """Returns the messages that this run has read."""
        before = len(self.seen)
        reader = self._spark.readStream.format("trimq").options(**{**self._options, **options})
        writer = reader.load().select("value").writeStream.foreachBatch(self._keep)
        writer.option("checkpointLocation", str(self._folder)).trigger(availableNow=True).start().awaitTermination(60)
        return sorted(self.seen[before:])

    def _keep(self, batch: Any, _: int) -> None:
        self.seen += [int(row.value) for row in batch.collect()]


def said(run: Any, **options: str) -> str:
    with pytest.raises(PySparkException) as raised:
        run(**options)
    return sentence_of(raised.value)


@BOTH_PORTS
def test_a_recreated_topic_is_not_mistaken_for_the_old_one(
    spark: Any, broker: Broker, tmp_path: Path, port: str
) -> None:
    broker.create_topic("orders", partitions=2)
    fill(broker, "orders", 0, 10, 2)
    query = Query(spark, getattr(broker, port), tmp_path, subscribe="orders")
    assert query.run() == list(range(10))
    delete_topic(broker, "orders")
    broker.create_topic("orders")
    fill(broker, "orders", 100, 120)  # more than before, so that offsets do not show the difference
    for _ in range(2):
        assert "the topic 'orders' was deleted and created again" in said(query.run)
    assert query.run(failOnDataLoss="false") == list(range(100, 120))
    assert query.run() == []
    broker.send("orders", "120")
    assert query.run() == [120]


def test_a_position_is_understood_by_both_ports_and_without_the_topic_s_id(broker: Broker) -> None:
    broker.create_topic("orders")
    fill(broker, "orders", 0, 3)
    found = []
    for bootstrap in (broker.http, broker.kafka):
        reader = StreamReader(row_schema(False), {"bootstrap": bootstrap, "subscribe": "orders"})
        start = {"orders": {"0": 1}}  # a position of a version that did not store topic ids
        found.append(reader.latestOffset(start, reader.getDefaultReadLimit()))
        assert [part.wanted[1:] for part in reader.partitions(start, found[-1])] == [(1, 3)]
        assert reader.latestOffset(found[0], reader.getDefaultReadLimit()) == found[0]
        with pytest.raises(Lost, match="message 7 of orders 0 was to be read next, but it has messages from 0 to 3"):
            reader.latestOffset({"orders": {"0": 7}}, reader.getDefaultReadLimit())
        reader.stop()
    assert found[0] == found[1]
    assert found[0]["orders"] == {"0": 3}


@BOTH_PORTS
def test_a_start_beyond_the_end_is_refused(spark: Any, broker: Broker, tmp_path: Path, port: str) -> None:
    broker.create_topic("orders")
    fill(broker, "orders", 0, 3)
    query = Query(spark, getattr(broker, port), tmp_path, subscribe="orders", startingOffsets='{"orders": {"0": 9}}')
    assert "message 9 of orders 0 was to be read next, but it has messages from 0 to 3" in said(query.run)
    assert query.run(failOnDataLoss="false") == []
    broker.send("orders", "3")
    assert query.run() == [3]


@BOTH_PORTS
@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "empty"},
        {"subscribePattern": "none.*"},
        {"assign": "{}"},
        {"subscribe": "orders", "startingTimestamp": "99999999999999"},
        {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 2}}', "endingOffsets": '{"orders": {"0": 1}}'},
        {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 3}}'},
    ],
)
def test_an_empty_batch_has_no_rows(spark: Any, broker: Broker, port: str, options: dict[str, str]) -> None:
    broker.create_topic("empty")
    broker.create_topic("orders")
    fill(broker, "orders", 0, 3)
    rows = spark.read.format("trimq").option("bootstrap", getattr(broker, port)).options(**options).load()
    assert rows.count() == 0


@BOTH_PORTS
def test_a_deleted_topic_does_not_stop_the_others(spark: Any, broker: Broker, tmp_path: Path, port: str) -> None:
    for number, topic in enumerate(("a", "c")):
        broker.create_topic(topic)
        fill(broker, topic, 10 * number, 10 * number + 5)
    query = Query(spark, getattr(broker, port), tmp_path, subscribe="a,c")
    assert query.run() == [*range(5), *range(10, 15)]
    delete_topic(broker, "a")
    broker.send("c", "15")
    assert "the topic 'a' was deleted" in said(query.run)
    assert query.run(failOnDataLoss="false") == [15]
    assert "there is no topic" in said(query.run, subscribe="b,c", failOnDataLoss="false")
    broker.send("c", "16")
    assert query.run(failOnDataLoss="false") == [16]
    broker.create_topic("a")
    broker.send("a", "7")
    assert query.run(failOnDataLoss="false") == [7]


@BOTH_PORTS
def test_a_topic_of_a_pattern_may_be_deleted_after_it_was_read(
    spark: Any, broker: Broker, tmp_path: Path, port: str
) -> None:
    for topic in ("log.a", "log.b"):
        broker.create_topic(topic)
        fill(broker, topic, 0, 5)
    query = Query(spark, getattr(broker, port), tmp_path, subscribePattern=r"log\..*")
    query.run()
    delete_topic(broker, "log.a")
    broker.send("log.b", "5")
    assert query.run() == [5]
    broker.send("log.b", "6")
    assert query.run() == [6]


@BOTH_PORTS
def test_a_topic_deleted_before_it_was_read_is_a_loss(broker: Broker, port: str) -> None:
    broker.create_topic("log.a")
    broker.create_topic("log.b")
    fill(broker, "log.a", 0, 5)
    given = {"bootstrap": getattr(broker, port), "subscribePattern": r"log\..*", "startingOffsets": "earliest"}
    reader = StreamReader(row_schema(False), {**given, "maxOffsetsPerTrigger": "2"})
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert end["log.a"] == {"0": 2}
    delete_topic(broker, "log.a")
    with pytest.raises(Lost, match=r"message 2 of log\.a 0 was to be read next, but it was deleted"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    reader.stop()


@BOTH_PORTS
def test_new_partitions_are_found(broker: Broker, port: str) -> None:
    broker.create_topic("orders")
    reader = StreamReader(row_schema(False), {"bootstrap": getattr(broker, port), "subscribe": "orders"})
    start = reader.initialOffset()
    broker._write(
        lambda node: (
            None,
            node.core.broker.topics.grow(SYSTEM, node.core.broker.topics.get(SYSTEM, "orders"), 2),
        )
    )
    broker.send("orders", "0", partition=1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["orders"] == {"0": 0, "1": 1}
    assert [part.wanted[1:] for part in reader.partitions(start, end)] == [(0, 1)]
    reader.stop()


@BOTH_PORTS
def test_a_batch_that_is_replayed_after_a_loss_has_the_same_tasks(broker: Broker, port: str) -> None:
    """Tokens of a sink contain the number of the task, so a task stays, empty, after its messages are lost."""
    broker.create_topic("in", partitions=3)
    fill(broker, "in", 0, 12, 3)
    given = {"bootstrap": getattr(broker, port), "subscribe": "in", "startingOffsets": "earliest"}
    reader = StreamReader(row_schema(False), {**given, "failOnDataLoss": "false", "minPartitions": "6"})
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    def tasks() -> list[tuple[int, int, int]]:
        return [(part.wanted.key.number, *part.wanted[1:]) for part in reader.partitions(start, end)]

    assert tasks() == [(0, 0, 2), (0, 2, 4), (1, 0, 2), (1, 2, 4), (2, 0, 2), (2, 2, 4)]
    broker._write(
        lambda node: (
            None,
            node.core.broker.partitions.cut_head(SYSTEM, node.core.broker.topics.get(SYSTEM, "in"), 0, 4),
        )
    )
    assert tasks() == [(0, 4, 4), (0, 4, 4), (1, 0, 2), (1, 2, 4), (2, 0, 2), (2, 2, 4)]
    delete_topic(broker, "in")
    assert [(first, after) for _, first, after in tasks()] == [(0, 0), (2, 2)] * 3
    reader.stop()
