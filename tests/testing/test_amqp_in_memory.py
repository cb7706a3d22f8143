"""A RabbitMQ client against a broker in this process: address, clock, crashes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

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
    assert "QueueDeclare -> response of" in trimq_broker.sightings()


def test_a_listener_that_is_off_has_no_address() -> None:
    with Broker(amqp_listen="off") as broker, pytest.raises(RuntimeError, match="no amqp listener"):
        broker.amqp.strip()
