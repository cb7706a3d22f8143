"""A RabbitMQ client against a broker in this process: address, clock, crashes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from trimq.errors import UnknownStream, UnknownTopic
from trimq.model import SYSTEM
from trimq.testing import Broker

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextmanager
def channel_of(broker: Broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp))
    yield connection.channel()
    if connection.is_open:
        connection.close()


def test_confirmed_messages_survive_a_power_cut(trimq_broker: Broker) -> None:
    with channel_of(trimq_broker) as channel:
        channel.queue_declare("orders", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"one espresso", PERSISTENT)
        trimq_broker.crash()
        trimq_broker.restart()
        with pytest.raises(pika.exceptions.AMQPError):
            channel.basic_get("orders")
    with channel_of(trimq_broker) as channel:
        assert channel.basic_get("orders", auto_ack=True)[2] == b"one espresso"


def test_a_message_expires_when_the_test_advances_time(trimq_broker: Broker) -> None:
    with channel_of(trimq_broker) as channel:
        channel.queue_declare("expired", durable=True)
        arguments = {"x-message-ttl": 3_600_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired"}
        channel.queue_declare("orders", durable=True, arguments=arguments)
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"one espresso", PERSISTENT)
        trimq_broker.advance("59m")
        assert channel.queue_declare("expired", passive=True).method.message_count == 0
        trimq_broker.advance("2m")
        assert channel.basic_get("expired", auto_ack=True)[2] == b"one espresso"
        assert channel.basic_get("orders")[0] is None


def test_messages_of_a_queue_are_read_without_consuming_them(trimq_broker: Broker) -> None:
    assert trimq_broker.create_queue("mails", {"x-max-priority": 5}) == "mails"
    with channel_of(trimq_broker) as channel:
        channel.confirm_delivery()
        headers = {"to": "alice", "copies": 2}
        channel.basic_publish("", "mails", b"first", pika.BasicProperties(delivery_mode=2, headers=headers))
        channel.basic_publish("", "mails", b"urgent", pika.BasicProperties(delivery_mode=2, priority=5))
        assert [record.body for record in trimq_broker.records("mails")] == [b"urgent", b"first"]
        assert trimq_broker.records("mails")[1].headers == (("to", b"alice"), ("copies", b"2"))
        got, _, _ = channel.basic_get("mails")
        assert [record.body for record in trimq_broker.records("mails")] == [b"urgent", b"first"]  # one is unacked
        channel.basic_ack(got.delivery_tag)
        channel.queue_declare("mails", passive=True)
        assert [record.body for record in trimq_broker.records("mails")] == [b"first"]


def test_a_queue_is_created_and_filled_without_a_client(trimq_broker: Broker) -> None:
    name = trimq_broker.create_queue()
    assert name.startswith("amq.gen")
    assert [trimq_broker.send(name, body, headers={"to": b"alice"}) for body in ("one", "two")] == [0, 1]
    trimq_broker.crash()
    trimq_broker.restart()
    with channel_of(trimq_broker) as channel:
        _, properties, body = channel.basic_get(name, auto_ack=True)
        assert (body, properties.headers) == (b"one", {"to": b"alice"})
    with pytest.raises(TypeError, match="messages have no key"):
        trimq_broker.send(name, "three", key="k")
    with pytest.raises(UnknownStream):
        trimq_broker.records(name, 1)


def test_exclusive_queues_and_those_of_another_vhost_are_readable_too(trimq_broker: Broker) -> None:
    with channel_of(trimq_broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("mine", exclusive=True)
        channel.basic_publish("", "mine", b"reply")
        assert [record.body for record in trimq_broker.records("mine")] == [b"reply"]
    trimq_broker.on_loop(lambda node: node.core.broker.namespaces.define(SYSTEM, "shop"))
    trimq_broker.create_queue("mails", vhost="shop")
    trimq_broker.send("mails", "hello", vhost="shop")
    assert [record.body for record in trimq_broker.records("mails", vhost="shop")] == [b"hello"]
    with pytest.raises(UnknownTopic):
        trimq_broker.records("mails")


def test_a_full_queue_rejects_what_the_test_sends(trimq_broker: Broker) -> None:
    trimq_broker.create_queue("short", {"x-max-length": 1, "x-overflow": "reject-publish"})
    trimq_broker.send("short", "one")
    with pytest.raises(RuntimeError, match="the queue short is full"):
        trimq_broker.send("short", "two")


def test_methods_are_reported_with_object_and_outcome(trimq_broker: Broker) -> None:
    with channel_of(trimq_broker) as channel:
        channel.queue_declare("orders", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"one espresso", PERSISTENT)
        channel.basic_get("orders", auto_ack=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare("gone", passive=True)
    seen = [line.partition(": ")[2] for line in trimq_broker.sightings()]
    assert "queue.declare orders -> queue.declare-ok orders (0 messages)" in seen
    assert "basic.publish to the default exchange, key 'orders', 12 bytes -> basic.ack" in seen
    assert "basic.get orders -> basic.get-ok (0 messages)" in seen
    assert "queue.declare gone -> channel.close 404 NOT_FOUND - no queue 'gone' in vhost '/'" in seen
    assert "connection.open vhost '/' -> connection.open-ok" in seen


def test_a_listener_that_is_off_has_no_address() -> None:
    with Broker(amqp_listen="off") as broker, pytest.raises(RuntimeError, match="no amqp listener"):
        broker.amqp.strip()
