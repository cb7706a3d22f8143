"""AMQP clients take messages of Kafka and RocketMQ topics one by one, as from queues."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from confluent_kafka import KafkaException, Producer
from cross.clients import ask_http, channel, delete_topic, kafka_consumer, receive
from pika.adapters.blocking_connection import BlockingChannel

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

HOMES = pytest.mark.parametrize("home", ["partition-log", "commit-log"])


def fill(broker: Broker, count: int, streams: int = 3, home: str = "partition-log") -> None:
    broker.create_topic("orders", streams, home=home)
    for number in range(count):
        broker.send("orders", b"%d" % number, partition=number % streams)


def take(amqp: BlockingChannel, count: int, **settings: Any) -> list[tuple[Any, Any, bytes]]:
    """Consumes this many messages, which stay unacked."""
    found = []
    for method, properties, body in amqp.consume("orders", inactivity_timeout=20, **settings):
        assert method is not None, f"{len(found)} of {count} messages"
        found.append((method, properties, body))
        if len(found) == count:
            return found
    return found


def settle(amqp: BlockingChannel) -> None:
    """Waits until the broker has handled what was sent on this channel."""
    amqp.basic_qos(prefetch_count=0)


@HOMES
def test_each_message_is_taken_once_whatever_happens_to_channels(broker: Broker, home: str) -> None:
    fill(broker, 12, home=home)
    with channel(broker.amqp) as amqp:
        assert amqp.queue_declare("orders", durable=True).method.message_count == 12
        amqp.basic_qos(prefetch_count=10)
        found = take(amqp, 10)
        assert amqp.connection.channel().queue_declare("orders", passive=True).method.message_count == 2
        assert not any(method.redelivered for method, _, _ in found)
        for method, _, _ in found[:4]:
            amqp.basic_ack(method.delivery_tag)
        settle(amqp)
    # the connection was closed: what it had not acknowledged comes again, first
    with channel(broker.amqp) as amqp:
        again = take(amqp, 6 + 2)
        assert {body for method, _, body in again if method.redelivered} >= {body for _, _, body in found[4:]}
        amqp.basic_ack(again[-1][0].delivery_tag, multiple=True)
        settle(amqp)
        assert {body for _, _, body in found[:4] + again} == {b"%d" % number for number in range(12)}
    broker.restart()
    with channel(broker.amqp) as amqp:
        assert amqp.basic_get("orders") == (None, None, None)
        broker.send("orders", b"new", partition=0)
        assert amqp.basic_get("orders", auto_ack=True)[2] == b"new"


def test_two_consumers_share_the_messages(broker: Broker) -> None:
    fill(broker, 40)
    with channel(broker.amqp) as first, channel(broker.amqp) as second:
        for each in (first, second):
            each.basic_qos(prefetch_count=20)
        ours = take(first, 1)
        theirs = take(second, 20)
        ours += take(first, 19)
        bodies = [body for _, _, body in ours + theirs]
        assert sorted(bodies, key=int) == [b"%d" % number for number in range(40)]


def test_nacked_messages_come_again_and_rejected_ones_are_in_the_ledger(broker: Broker) -> None:
    fill(broker, 2, streams=1)
    with channel(broker.amqp) as amqp:
        method, properties, body = amqp.basic_get("orders")
        assert (body, properties.headers["x-stream-offset"], properties.headers["trimq.partition"]) == (b"0", 0, 0)
        amqp.basic_nack(method.delivery_tag, requeue=True)
        method, _, body = amqp.basic_get("orders")
        assert (body, method.redelivered, method.message_count) == (b"0", True, 1)
        amqp.basic_reject(method.delivery_tag, requeue=False)
        method, _, body = amqp.basic_get("orders", auto_ack=True)
        assert (body, method.redelivered) == (b"1", False)
    (failure,) = ask_http(broker, "/api/failures")["failures"]
    assert (failure["reason"], failure["queue"]) == ("rejected", "orders")
    assert [each.body for each in broker.records("orders")] == [b"0", b"1"], "the topic keeps its messages"


def test_groups_have_places_of_their_own(broker: Broker) -> None:
    fill(broker, 3, streams=1)
    with channel(broker.amqp) as amqp:
        bodies = [body for _, _, body in take(amqp, 3, auto_ack=True)]
        amqp.cancel()
        other = [body for _, _, body in take(amqp, 3, auto_ack=True, arguments={"x-group": "audit"})]
        amqp.cancel()
    assert bodies == other == [b"0", b"1", b"2"]


def test_a_group_moves_between_amqp_and_kafka(broker: Broker) -> None:
    fill(broker, 4, streams=1)
    with channel(broker.amqp) as amqp:
        amqp.basic_qos(prefetch_count=3)
        found = take(amqp, 3, arguments={"x-group": "g"})
        with kafka_consumer(broker.kafka) as consumer:
            consumer.subscribe(["orders"])
            with pytest.raises((KafkaException, AssertionError), match=r"INCONSISTENT_GROUP_PROTOCOL|Inconsistent"):
                receive(consumer, 1)
        with Wire(broker.addresses["rocketmq_broker"]) as wire, pytest.raises(AssertionError, match="use AMQP"):
            wire.heartbeat("g", "orders")
        for method, _, _ in (found[0], found[2]):
            amqp.basic_ack(method.delivery_tag)
        settle(amqp)
    with kafka_consumer(broker.kafka) as consumer:
        consumer.subscribe(["orders"])
        assert [each.value() for each in receive(consumer, 3)] == [b"1", b"2", b"3"], "from the first unsettled one on"
        consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
        with channel(broker.amqp) as amqp, pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            next(amqp.consume("orders", arguments={"x-group": "g"}))
        assert refused.value.reply_code == 405
        assert "Kafka" in refused.value.reply_text
    with channel(broker.amqp) as amqp:
        broker.send("orders", b"4", partition=0)
        assert [body for _, _, body in take(amqp, 1, arguments={"x-group": "g"})] == [b"4"]
        amqp.cancel()


def test_only_committed_messages_are_taken(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "t"})
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("orders", b"%d" % number)
        producer.flush(20)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(20)
    with channel(broker.amqp) as amqp:
        assert [body for _, _, body in take(amqp, 3, auto_ack=True)] == [b"1", b"3", b"5"]


def test_a_deleted_topic_ends_its_consumers(broker: Broker) -> None:
    fill(broker, 1, streams=1)
    with channel(broker.amqp) as amqp:
        cancelled: list[object] = []
        amqp.add_on_cancel_callback(cancelled.append)
        amqp.basic_consume("orders", lambda *_: None)
        amqp.connection.process_data_events(0.2)
        delete_topic(broker, "orders")
        for _ in range(100):
            if cancelled:
                break
            amqp.connection.process_data_events(0.1)
        assert cancelled


def test_a_group_s_lag_is_told(broker: Broker) -> None:
    fill(broker, 5, streams=1)
    with channel(broker.amqp) as amqp:
        for _ in range(2):
            amqp.basic_get("orders", auto_ack=True)
        (cursor,) = ask_http(broker, "/api/groups/amqp")["cursors"]
    assert (cursor["topic"], cursor["offset"], cursor["lag"]) == ("orders", 2, 3)
