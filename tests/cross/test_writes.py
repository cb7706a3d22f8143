"""Clients write to topics of other protocols, and read back what they sent."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from cross.clients import channel, described, kafka_consumer, receive

from tools.rocketmq_wire import Wire
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.testing import Broker

HEADERS = [
    ("trace", b"t"),
    ("rmq.TAGS", b"paid"),
    ("sig", b"\xff\x00"),
    ("none", None),
    ("trace", b"again"),
    ("KEYS", b"x"),
]


def make(broker: Broker, home: str, name: str = "orders") -> None:
    if home == "queue":
        broker.create_queue(name)
    else:
        broker.create_topic(name, 1, home=home)


def produce(broker: Broker, name: str, count: int, **settings: object) -> list[Message]:
    """Sends messages and returns them as confirmed."""
    confirmed: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        confirmed.append(message)

    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 20, **settings})
    for number in range(count):
        producer.produce(name, b"%d" % number, b"k\xfe", headers=HEADERS, on_delivery=delivered)
    assert producer.flush(20) == 0
    return confirmed


@pytest.mark.parametrize("home", ["commit-log", "queue"])
@pytest.mark.parametrize("settings", [{}, {"enable.idempotence": True, "compression.type": "zstd"}])
def test_a_kafka_producer_gets_back_what_it_sent(broker: Broker, home: str, settings: dict[str, object]) -> None:
    make(broker, home)
    confirmed = produce(broker, "orders", 100, **settings)
    assert [each.offset() for each in confirmed] == list(range(100))
    with kafka_consumer(broker.kafka) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        found = receive(consumer, 100)
    assert [each.value() for each in found] == [b"%d" % number for number in range(100)]
    assert {each.key() for each in found} == {b"k\xfe"}
    assert found[0].headers() == HEADERS
    assert found[0].timestamp() == confirmed[0].timestamp()


def test_amqp_consumers_take_what_kafka_producers_wrote(broker: Broker) -> None:
    broker.create_queue("tasks")
    produce(broker, "tasks", 3)
    with channel(broker.amqp) as amqp:
        method, properties, body = amqp.basic_get("tasks", auto_ack=True)
        assert method is not None
        assert (body, properties.type, properties.headers["trace"]) == (b"0", "paid", ["t", "again"])
        assert properties.delivery_mode == 2
        assert amqp.queue_declare("tasks", passive=True).method.message_count == 2


def test_rocketmq_consumers_filter_what_kafka_producers_wrote(broker: Broker) -> None:
    broker.create_topic("pay", 1, home="commit-log")
    produce(broker, "pay", 2)
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        unit = wire.pull("pay")[1]
    properties = read_properties(unit.properties)
    assert (bytes(unit.body), properties["TAGS"], properties["h.KEYS"]) == (b"1", "paid", "x")
    broker.restart()
    assert len(broker.records("pay")) == 2


@pytest.mark.parametrize("home", ["partition-log", "queue"])
def test_a_rocketmq_producer_gets_back_what_it_sent(broker: Broker, home: str) -> None:
    make(broker, home)
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        sent = wire.send("orders", b"one", TAGS="paid", KEYS="k", UNIQ_KEY="7F00000100002A139A5500000000", colour="red")
        assert (sent["queueId"], sent["queueOffset"]) == ("0", "0")
        (unit,) = wire.pull("orders")
    properties = read_properties(unit.properties)
    expected = {"TAGS": "paid", "KEYS": "k", "UNIQ_KEY": "7F00000100002A139A5500000000", "colour": "red"}
    assert (bytes(unit.body), properties) == (b"one", expected)
    with kafka_consumer(broker.kafka) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        value, key, headers = described(receive(consumer, 1)[0])
    assert (value, key, headers["rmq.TAGS"], headers["colour"]) == (b"one", b"k", b"paid", b"red")


@pytest.mark.parametrize("properties", [{"DELAY": "3"}, {"TRAN_MSG": "true", "PGROUP": "pg"}])
def test_messages_that_would_have_to_wait_are_refused(broker: Broker, properties: dict[str, str]) -> None:
    broker.create_topic("orders", 1)
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        with pytest.raises(AssertionError, match="another protocol"):
            wire.send("orders", b"later", **properties)
        assert wire.pull("orders") == []


def test_a_transaction_cannot_include_a_foreign_topic(broker: Broker) -> None:
    broker.create_topic("pay", 1, home="commit-log")
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "t"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("pay", b"1")
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
    assert broker.records("pay") == []


def test_a_record_that_rocketmq_cannot_keep_is_refused(broker: Broker) -> None:
    broker.create_topic("pay", 1, home="commit-log")
    refused: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce("pay", b"1", headers=[("a", b"x" * 40_000)], on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(20) == 0
    (error,) = refused
    assert error is not None
    assert error.name() == "INVALID_RECORD"
    assert broker.records("pay") == []
