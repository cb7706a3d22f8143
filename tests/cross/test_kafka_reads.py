"""Kafka consumers read RocketMQ topics and AMQP queues."""

from __future__ import annotations

import pika
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from cross.clients import channel, described, kafka_consumer, receive

from tools.rocketmq_wire import Wire
from trimq.testing import Broker


def test_a_group_reads_a_rocketmq_topic_and_goes_on_where_it_committed(broker: Broker) -> None:
    broker.create_topic("pay", 2, home="commit-log")
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        for number in range(6):
            wire.send("pay", b"%d" % number, queue=number % 2, TAGS="paid", KEYS=f"k{number}", colour="red")
        with kafka_consumer(broker.kafka) as consumer:
            consumer.subscribe(["pay"])
            found = receive(consumer, 6)
            consumer.commit(asynchronous=False)
        assert sorted((each.partition(), each.offset(), each.value()) for each in found) == [
            (number % 2, number // 2, b"%d" % number) for number in (0, 2, 4, 1, 3, 5)
        ]
        value, key, headers = described(next(each for each in found if each.value() == b"3"))
        assert (value, key) == (b"3", b"k3")
        assert headers["colour"] == b"red"
        assert headers["rmq.TAGS"] == b"paid"
        assert headers["trimq.from"] == b"rocketmq"
        wire.send("pay", b"later", queue=1)
        with kafka_consumer(broker.kafka) as consumer:
            consumer.subscribe(["pay"])
            assert [each.value() for each in receive(consumer, 1)] == [b"later"]


def test_a_group_observes_a_queue_without_taking_its_messages(broker: Broker) -> None:
    with channel(broker.amqp) as amqp:
        amqp.queue_declare("tasks", durable=True)
        amqp.confirm_delivery()
        properties = pika.BasicProperties(content_type="text/plain", message_id="7", headers={"a": "b", "n": 5})
        for number in range(5):
            amqp.basic_publish("", "tasks", b"%d" % number, properties)
        with kafka_consumer(broker.kafka) as consumer:
            consumer.subscribe(["tasks"])
            found = receive(consumer, 5)
        assert [each.value() for each in found] == [b"0", b"1", b"2", b"3", b"4"]
        _, key, headers = described(found[0])
        assert key is None
        assert headers["amqp.content-type"] == b"text/plain"
        assert headers["amqp.message-id"] == b"7"
        assert (headers["a"], headers["n"]) == (b"b", b"5")
        assert amqp.queue_declare("tasks", passive=True).method.message_count == 5


def test_settled_messages_of_a_queue_are_gaps(broker: Broker) -> None:
    with channel(broker.amqp) as amqp:
        amqp.queue_declare("tasks", durable=True)
        amqp.confirm_delivery()
        for number in range(6):
            amqp.basic_publish("", "tasks", b"%d" % number)
        for _ in range(3):
            method, _, _ = amqp.basic_get("tasks", auto_ack=True)
            assert method is not None
        with kafka_consumer(broker.kafka) as consumer:
            consumer.assign([TopicPartition("tasks", 0, 1)])
            assert [(each.offset(), each.value()) for each in receive(consumer, 3)] == [(3, b"3"), (4, b"4"), (5, b"5")]
        while amqp.basic_get("tasks", auto_ack=True)[0] is not None:
            pass
        with kafka_consumer(broker.kafka) as consumer:
            consumer.assign([TopicPartition("tasks", 0, 1)])
            assert consumer.poll(1) is None
            amqp.basic_publish("", "tasks", b"6")
            assert [(each.offset(), each.value()) for each in receive(consumer, 1)] == [(6, b"6")]


def test_a_waiting_fetch_is_answered_when_a_message_arrives(broker: Broker) -> None:
    broker.create_topic("pay", 1, home="commit-log")
    settings = {"fetch.wait.max.ms": 20_000, "socket.timeout.ms": 25_000}
    with Wire(broker.addresses["rocketmq_broker"]) as wire, kafka_consumer(broker.kafka, **settings) as consumer:
        consumer.assign([TopicPartition("pay", 0, 0)])
        assert consumer.poll(1) is None
        wire.send("pay", b"now")
        message = consumer.poll(10)
        assert message is not None
        assert message.value() == b"now"


def test_names_are_escaped_and_hidden_ones_are_not_listed(broker: Broker) -> None:
    broker.create_topic("pay%x", 3, home="commit-log")
    broker.create_queue("jobs/today")
    with channel(broker.amqp) as amqp:
        own = amqp.queue_declare("", exclusive=True).method.queue
        amqp.queue_declare("passing", auto_delete=True)
        listed = AdminClient({"bootstrap.servers": broker.kafka}).list_topics(timeout=10).topics
        assert {name: len(topic.partitions) for name, topic in listed.items()} == {"pay.x25x": 3, "jobs.x2ftoday": 1}
        assert own not in listed
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.send("pay%x", b"1")
    with kafka_consumer(broker.kafka) as consumer:
        consumer.assign([TopicPartition("pay.x25x", 0, 0)])
        assert receive(consumer, 1)[0].value() == b"1"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_both_kinds_of_groups_are_assigned_foreign_topics(broker: Broker, protocol: str) -> None:
    broker.create_topic("pay", 2, home="commit-log")
    broker.create_queue("tasks")
    broker.send("tasks", b"task")
    broker.send("pay", b"payment", partition=1)
    with kafka_consumer(broker.kafka, **{"group.protocol": protocol}) as consumer:
        consumer.subscribe(["pay", "tasks"])
        assert {each.value() for each in receive(consumer, 2)} == {b"task", b"payment"}
        consumer.commit(asynchronous=False)


def test_offsets_are_found_by_time(broker: Broker) -> None:
    broker.create_topic("pay", 1, home="commit-log")
    start_ms = broker.now_ms()
    for number in range(4):
        broker.send("pay", b"%d" % number, timestamp_ms=start_ms + number * 1000)
    with kafka_consumer(broker.kafka) as consumer:
        (found,) = consumer.offsets_for_times([TopicPartition("pay", 0, start_ms)], timeout=10)
        assert found.offset == 0
        assert consumer.get_watermark_offsets(TopicPartition("pay", 0), timeout=10) == (0, 4)


def test_a_switched_off_crossing_refuses_foreign_names_as_before() -> None:
    with Broker(cross_list="off") as broker:
        broker.create_topic("pay", 1, home="commit-log")
        listed = AdminClient({"bootstrap.servers": broker.kafka}).list_topics("pay", timeout=10).topics
        error = listed["pay"].error
        assert error is not None
        assert error.name() == "TOPIC_EXCEPTION"
