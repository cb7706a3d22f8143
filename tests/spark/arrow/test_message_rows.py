"""Messages of RocketMQ and RabbitMQ clients as rows, besides those of Kafka clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pika
import pytest

from pyspark_trimq.pipelines import PipelineContext, aggregate, archive, audit, dead_letters, dedupe, restore, snapshot
from trimq.core.commit_log.topics import CommitLogTopicDefinition
from trimq.errors import StartupError
from trimq.formats.rocketmq_unit.unit import UnitDraft
from trimq.model import SYSTEM
from trimq.server.node import Node
from trimq.testing import Broker

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 9))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(rocketmq_listen="127.0.0.1:0", rocketmq_broker_listen="127.0.0.1:0") as broker:
        yield broker


def load(spark: Any, broker: Broker, **options: object) -> Any:
    reader = spark.read.format("trimq").option("bootstrap", broker.http)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def send_units(broker: Broker, topic: str, properties: bytes, *bodies: bytes) -> None:
    def create(node: Node) -> tuple[UUID, Any]:
        assert node.core.commit_log_service is not None
        made, ticket = node.core.commit_log_service.commit_log.topics.create(
            SYSTEM, CommitLogTopicDefinition("", topic, 1, 1)
        )
        return made.id, ticket

    broker._write(create)
    for body in bodies:
        append_unit(broker, topic, properties, body)


def append_unit(broker: Broker, topic: str, properties: bytes, body: bytes, born_ms: int = 1500) -> None:
    def write(node: Node) -> tuple[None, Any]:
        assert node.core.commit_log_service is not None
        commit_log = node.core.commit_log_service.commit_log
        found = commit_log.topics.get(SYSTEM, topic)
        draft = UnitDraft(topic.encode(), 0, body, properties, 0, 0, born_ms, HOST)
        return None, commit_log.messages.append(SYSTEM, found, found.stream(0), draft, 0, HOST).ticket

    broker._write(write)


def test_a_rocketmq_topic_has_tags_keys_and_properties(spark: Any, broker: Broker) -> None:
    properties = b"TAGS\x01paid\x02KEYS\x01k1 k2\x02colour\x01red\x02"
    send_units(broker, "orders", properties, b"one", b"two")
    first, second = load(spark, broker, subscribe="orders", includeHeaders="true").orderBy("offset").collect()
    assert (bytes(first.value), bytes(second.value), second.offset) == (b"one", b"two", 1)
    assert (first.tags, first["keys"], bytes(first.key)) == ("paid", ["k1", "k2"], b"k1 k2")
    assert first.properties == {"TAGS": "paid", "KEYS": "k1 k2", "colour": "red"}
    assert ("colour", b"red") in [(header.key, header.value) for header in first.headers]
    assert first.timestamp.timestamp() == 1.5


def test_an_amqp_queue_is_read_without_taking_anything(spark: Any, broker: Broker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True)
        channel.confirm_delivery()
        given = pika.BasicProperties(content_type="text/plain", message_id="m1", headers={"n": 7})
        for body in (b"one", b"two"):
            channel.basic_publish("", "jobs", body, given)
        for _ in range(2):
            rows = load(spark, broker, subscribe="jobs", includeHeaders="true").orderBy("offset").collect()
            assert [bytes(row.value) for row in rows] == [b"one", b"two"]
        assert bytes(rows[0].key) == b"jobs"
        assert rows[0].properties["content_type"] == "text/plain"
        assert rows[0].properties["message_id"] == "m1"
        assert [(header.key, header.value) for header in rows[0].headers] == [("n", b"7")]
        assert channel.queue_declare("jobs", passive=True).method.message_count == 2


def test_a_pattern_selects_topics_of_every_layout(spark: Any, broker: Broker) -> None:
    send_units(broker, "log-r", b"", b"r")
    broker.create_topic("log-k")
    broker.send("log-k", "k")
    broker.create_topic("other")
    broker.send("other", "o")
    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        channel = connection.channel()
        channel.queue_declare("log-a")
        channel.confirm_delivery()
        channel.basic_publish("", "log-a", b"a")
        rows = load(spark, broker, subscribePattern="log-.*").collect()
    assert sorted((row.topic, bytes(row.value)) for row in rows) == [("log-a", b"a"), ("log-k", b"k"), ("log-r", b"r")]


RECIPE = """
to = "windows"
window = "1 minute"
select = ["count(*) AS n", "max(ms) AS most"]
[from]
topic = "{topic}"
columns = "ms INT"
late = "1s"
"""


def fill_both(broker: Broker, channel: Any) -> None:
    """Fills a RocketMQ topic and an AMQP queue with four messages each, one of which is repeated."""
    send_units(broker, "units", b"KEYS\x01k1\x02UNIQ_KEY\x01id1\x02", b'{"ms": 1}', b'{"ms": 2}')
    append_unit(broker, "units", b"KEYS\x01k2\x02UNIQ_KEY\x01id2\x02", b'{"ms": 3}', 120_000)
    append_unit(broker, "units", b"KEYS\x01k2\x02UNIQ_KEY\x01id3\x02", b'{"ms": 4}', 300_000)
    channel.queue_declare("jobs", durable=True)
    channel.confirm_delivery()
    for number, id in enumerate(("m1", "m1", "m2", "m3")):
        properties = pika.BasicProperties(message_id=id, headers={"n": 7}, timestamp=5)
        channel.basic_publish("", "jobs", b'{"ms": %d}' % (number + 1), properties)


@pytest.mark.timeout(400)
def test_pipelines_take_rocketmq_topics_and_amqp_queues(spark: Any, broker: Broker, tmp_path: Path) -> None:
    both = ["units", "jobs"]

    def context(name: str = "") -> PipelineContext:
        return PipelineContext(
            bootstrap=broker.http, spark=spark, show=False, checkpoint=tmp_path / name if name else None
        )

    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        channel = connection.channel()
        fill_both(broker, channel)
        assert archive(both, lake=tmp_path / "lake", context=context()).figures["rows archived"] == 8
        for written in (8, 0):
            assert restore(tmp_path / "lake", to="{topic}-again", context=context()).figures["rows written"] == written
        units, jobs = broker.records("units-again"), broker.records("jobs-again")
        assert [record.body for record in units] == [b'{"ms": %d}' % (number + 1) for number in range(4)]
        assert dict(units[2].headers)["trimq-origin-property-UNIQ_KEY"] == b"id2"
        assert units[2].timestamp_ms == 120_000
        assert dict(jobs[0].headers)["trimq-origin-property-message_id"] == b"m1"
        assert (dict(jobs[0].headers)["n"], jobs[0].key) == (b"7", b"jobs")
        assert dedupe(both, to="once", context=context("dedupe")).figures["repetitions"] == 2
        assert (
            snapshot(both, lake=tmp_path / "latest", context=context()).figures["keys"] == 3
        )  # k1, k2, and the routing key
        audited = audit(both, context=context("audit")).figures
        assert (audited["records checked"], audited["records without a sequence"]) == (0, 8)
        (tmp_path / "windows.toml").write_text(RECIPE.format(topic="units"))
        assert aggregate(tmp_path / "windows.toml", context=context("windows")).figures["messages read"] == 4
        assert channel.queue_declare("jobs", passive=True).method.message_count == 4  # nothing was consumed


def test_rows_are_not_written_to_rocketmq_topics_or_amqp_queues(spark: Any, broker: Broker, tmp_path: Path) -> None:
    def context(name: str) -> PipelineContext:
        return PipelineContext(bootstrap=broker.http, spark=spark, show=False, checkpoint=tmp_path / name)

    send_units(broker, "units", b"DLQ_ORIGIN_TOPIC\x01orders-r\x02", b"one")
    send_units(broker, "orders-r", b"", b"two")
    broker.create_topic("orders")
    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        connection.channel().queue_declare("jobs", durable=True)
    for target, what in (("units", "a RocketMQ topic"), ("jobs", "an AMQP queue")):
        sentence = f"^'{target}' is {what}, but rows are written to Kafka topics only: name another topic$"
        with pytest.raises(StartupError, match=sentence):
            dedupe(["orders"], to=target, context=context(f"dedupe {target}"))
        with pytest.raises(StartupError, match=sentence):
            dead_letters(["units"], redrive=True, to=target, context=context(f"letters {target}"))
    with pytest.raises(StartupError, match=r"^'orders-r' is a RocketMQ topic"):
        dead_letters(["units"], redrive=True, context=context("letters"))
