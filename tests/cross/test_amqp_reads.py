"""AMQP clients read Kafka and RocketMQ topics from an offset on."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from cross.clients import channel
from pika.adapters.blocking_connection import BlockingChannel

from tools.rocketmq_wire import Wire
from trimq.testing import Broker


def read(amqp: BlockingChannel, queue: str, offset: object, count: int) -> list[tuple[Any, Any, bytes]]:
    """Reads this many messages, acknowledging each."""
    amqp.basic_qos(prefetch_count=3)
    found = []
    for method, properties, body in amqp.consume(queue, arguments={"x-stream-offset": offset}, inactivity_timeout=20):
        assert method is not None, f"{len(found)} of {count} messages"
        amqp.basic_ack(method.delivery_tag)
        found.append((method, properties, body))
        if len(found) == count:
            break
    amqp.cancel()
    return found


def test_a_kafka_topic_is_read_from_the_first_offset_of_each_partition(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    for number in range(10):
        broker.send(
            "orders", b"%d" % number, key=b"k", headers={"trace": b"t"}, partition=number % 2, timestamp_ms=1234
        )
    with channel(broker.amqp) as amqp:
        assert amqp.queue_declare("orders", durable=True).method.message_count == 10
        found = read(amqp, "orders", "first", 10)
    places = [(each[1].headers["trimq.partition"], each[1].headers["x-stream-offset"]) for each in found]
    assert sorted(places) == [(partition, offset) for partition in range(2) for offset in range(5)]
    method, properties, _ = found[0]
    assert method.routing_key == "k"
    assert (properties.headers["trace"], properties.headers["timestamp_in_ms"]) == ("t", 1234)
    assert properties.timestamp == 1


def test_new_messages_of_a_rocketmq_topic_are_delivered(broker: Broker) -> None:
    broker.create_topic("pay", 1, home="commit-log")
    with Wire(broker.addresses["rocketmq_broker"]) as wire, channel(broker.amqp) as amqp:
        wire.send("pay", b"before")
        amqp.basic_qos(prefetch_count=1)
        consumed = amqp.consume("pay", arguments={"x-stream-offset": "next"}, inactivity_timeout=20)
        amqp.connection.process_data_events(0)
        assert next(amqp.consume("pay", arguments={"x-stream-offset": "next"}, inactivity_timeout=0.3))[0] is None
        wire.send("pay", b"after", TAGS="paid", UNIQ_KEY="id", KEYS="k")
        method, properties, body = next(consumed)
        assert body == b"after"
        assert (properties.type, properties.message_id, method.routing_key) == ("paid", "id", "k")
        amqp.cancel()


@pytest.mark.parametrize("arguments", [{"exclusive": True}, {"durable": False}, {"arguments": {"x-message-ttl": 5}}])
def test_a_declaration_that_a_topic_does_not_meet_is_refused(broker: Broker, arguments: dict[str, Any]) -> None:
    broker.create_topic("orders", 1)
    with channel(broker.amqp) as amqp, pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        amqp.queue_declare("orders", **{"durable": True, **arguments})
    assert refused.value.reply_code == 406


def test_an_amqp_client_cannot_delete_or_purge_a_topic(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    broker.send("orders", b"1")
    for refused in (lambda amqp: amqp.queue_delete("orders"), lambda amqp: amqp.queue_purge("orders")):
        with channel(broker.amqp) as amqp, pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            refused(amqp)
        assert error.value.reply_code == 403
    assert [each.body for each in broker.records("orders")] == [b"1"]
