"""A name that another protocol has, while protocols do not see the topics of others, is refused at once, with the same
sentence by every protocol, HTTP and the log."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection

import pika
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

PATIENCE_S = 20
SENTENCE = "the name {} belongs to a {}: names are unique across protocols, choose another one"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(cross_list="off") as broker:
        broker.create_topic("events")
        with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
            connection.channel().queue_declare("mails", durable=True)
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            assert rocketmq_send(wire, "orders")[0] == 0
        yield broker


def rocketmq_send(wire: Wire, topic: str) -> tuple[int, str]:
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 2, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}
    answer = wire.ask(310, fields, b"hello")[0]
    return answer["code"], answer.get("remark") or ""


@pytest.mark.parametrize(
    ("name", "kind"), [("mails", "RabbitMQ queue (queue-log)"), ("orders", "RocketMQ topic (commit-log)")]
)
def test_a_kafka_producer_hears_of_it_at_once(
    broker: Broker, caplog: pytest.LogCaptureFixture, name: str, kind: str
) -> None:
    failures: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        failures.append(error)

    producer = Producer({"bootstrap.servers": broker.kafka, "message.timeout.ms": 60_000})
    with caplog.at_level(logging.WARNING):
        producer.produce(name, b"hello", on_delivery=delivered)
        assert producer.flush(10) == 0, "the producer still waits"
    (error,) = failures
    assert error is not None
    assert error.code() in (KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_TOPIC)
    assert [SENTENCE.format(name, kind) in each for each in caplog.messages].count(True) == 1


def test_a_kafka_administrator_reads_it(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("mails", 1)])["mails"].result(PATIENCE_S)
    assert SENTENCE.format("mails", "RabbitMQ queue (queue-log)") in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind"), [("events", "Kafka topic (partition-log)"), ("orders", "RocketMQ topic (commit-log)")]
)
def test_an_amqp_client_reads_it(broker: Broker, name: str, kind: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare(name, durable=True)
    assert SENTENCE.format(name, kind) in refused.value.reply_text


@pytest.mark.parametrize(
    ("name", "kind"), [("events", "Kafka topic (partition-log)"), ("mails", "RabbitMQ queue (queue-log)")]
)
def test_a_rocketmq_producer_reads_it(broker: Broker, caplog: pytest.LogCaptureFixture, name: str, kind: str) -> None:
    with caplog.at_level(logging.WARNING), Wire(broker.addresses["rocketmq_broker"]) as wire:
        code, remark = rocketmq_send(wire, name)
    assert code != 0
    assert SENTENCE.format(name, kind) in remark
    assert any(SENTENCE.format(name, kind) in each for each in caplog.messages)


def test_http_and_the_command_show_it(broker: Broker) -> None:
    address = broker.addresses["http"]
    connection = HTTPConnection(address, timeout=PATIENCE_S)
    connection.request("POST", "/api/topics", json.dumps({"name": "mails"}))
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    expected = SENTENCE.format("mails", "RabbitMQ queue (queue-log)")
    assert (response.status, answer) == (409, {"error": "OtherHome", "message": expected})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    command = [sys.executable, "-m", "trimq.cli", "topics", "create", "mails", "--http", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert (done.returncode, done.stderr) == (1, f"trimq: {expected}\n")
