"""AMQP clients publish to Kafka and RocketMQ topics: by name, through exchanges, with confirms and returns."""

from __future__ import annotations

import pika
import pytest
from confluent_kafka import TopicPartition
from cross.clients import channel, delete_topic, described, kafka_consumer, receive

from tools.rocketmq_wire import Wire
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.testing import Broker

LASTING = pika.BasicProperties(delivery_mode=2, type="paid", message_id="7", headers={"trace": "t"})


def test_a_confirmed_message_is_in_the_kafka_topic(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    with channel(broker.amqp) as amqp:
        amqp.confirm_delivery()
        amqp.basic_publish("", "orders", b"one", LASTING, mandatory=True)
    broker.crash()
    broker.restart()
    with kafka_consumer(broker.kafka) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        value, key, headers = described(receive(consumer, 1)[0])
    assert (value, key, headers["amqp.type"], headers["trace"]) == (b"one", None, b"paid", b"t")


def test_a_rocketmq_consumer_filters_published_messages_by_tag(broker: Broker) -> None:
    broker.create_topic("pay", 1, home="commit-log")
    with channel(broker.amqp) as amqp:
        amqp.confirm_delivery()
        amqp.basic_publish("", "pay", b"one", LASTING)
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        (unit,) = wire.pull("pay")
    properties = read_properties(unit.properties)
    assert (bytes(unit.body), properties["TAGS"], properties["UNIQ_KEY"]) == (b"one", "paid", "7")


def test_an_exchange_routes_to_topics_and_queues_together(broker: Broker) -> None:
    broker.create_topic("orders", 4)
    broker.create_topic("pay", 1, home="commit-log")
    with channel(broker.amqp) as amqp:
        amqp.queue_declare("tasks", durable=True)
        amqp.exchange_declare("shop", "topic", durable=True)
        for queue in ("orders", "pay", "tasks"):
            amqp.queue_bind(queue, "shop", "order.#")
        amqp.confirm_delivery()
        amqp.basic_publish("shop", "order.eu", b"one", LASTING, mandatory=True)
        assert amqp.basic_get("tasks", auto_ack=True)[2] == b"one"
    broker.restart()  # bindings to topics are durable
    with channel(broker.amqp) as amqp:
        amqp.confirm_delivery()
        amqp.basic_publish("shop", "order.eu", b"two", LASTING, mandatory=True)
    partitions = [broker.records("orders", number) for number in range(4)]
    (orders,) = filter(None, partitions)  # one key, one partition
    assert [(each.body, each.key) for each in orders] == [(b"one", b"order.eu"), (b"two", b"order.eu")]
    assert [each.body for each in broker.records("pay")] == [b"one", b"two"]


def test_a_deleted_topic_is_unbound(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    with channel(broker.amqp) as amqp:
        amqp.exchange_declare("shop", "fanout", durable=True)
        amqp.queue_bind("orders", "shop")
        delete_topic(broker, "orders")
        amqp.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError):
            amqp.basic_publish("shop", "", b"lost", LASTING, mandatory=True)
        broker.create_queue("orders")
        with pytest.raises(pika.exceptions.UnroutableError):
            amqp.basic_publish("shop", "", b"lost", LASTING, mandatory=True)


def test_the_header_names_the_partition(broker: Broker) -> None:
    broker.create_topic("orders", 4)
    with channel(broker.amqp) as amqp:
        amqp.confirm_delivery()
        for number in (3, 0):
            amqp.basic_publish("", "orders", b"%d" % number, pika.BasicProperties(headers={"trimq.partition": number}))
    bodies = [[each.body for each in broker.records("orders", number)] for number in range(4)]
    assert bodies == [[b"0"], [], [], [b"3"]]


@pytest.mark.parametrize("is_mandatory", [False, True])
def test_a_message_that_the_topic_cannot_keep_is_refused(broker: Broker, is_mandatory: bool) -> None:
    broker.create_topic("orders", 1)
    nowhere = pika.BasicProperties(headers={"trimq.partition": 9})
    with channel(broker.amqp) as amqp:
        amqp.confirm_delivery()
        with pytest.raises((pika.exceptions.NackError, pika.exceptions.UnroutableError)) as refused:
            amqp.basic_publish("", "orders", b"lost", nowhere, mandatory=is_mandatory)
        if is_mandatory:
            (returned,) = refused.value.messages
            assert "no stream 9" in returned.method.reply_text
    with channel(broker.amqp) as amqp:
        amqp.basic_publish("", "orders", b"lost", nowhere)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no stream 9"):
            amqp.queue_declare("orders", passive=True)
    assert broker.records("orders") == []


def test_what_the_broker_itself_writes_is_no_destination(broker: Broker) -> None:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.heartbeat("g", "pay")
    with channel(broker.amqp) as amqp:
        amqp.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError):
            amqp.basic_publish("", "%RETRY%g", b"forged", LASTING, mandatory=True)


def test_a_transaction_publishes_to_topics_at_its_commit(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    with channel(broker.amqp) as amqp:
        amqp.tx_select()
        amqp.basic_publish("", "orders", b"dropped", LASTING)
        amqp.tx_rollback()
        amqp.basic_publish("", "orders", b"kept", LASTING)
        amqp.tx_commit()
    assert [each.body for each in broker.records("orders")] == [b"kept"]


def test_dead_letters_of_a_queue_go_to_a_topic(broker: Broker) -> None:
    broker.create_topic("failed", 1)
    with channel(broker.amqp) as amqp:
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed"}
        amqp.queue_declare("tasks", durable=True, arguments=arguments)
        amqp.basic_publish("", "tasks", b"bad", LASTING)
        method, _, _ = amqp.basic_get("tasks")
        amqp.basic_reject(method.delivery_tag, requeue=False)
        amqp.queue_declare("tasks", passive=True)
    (record,) = broker.records("failed")
    assert record.body == b"bad"
