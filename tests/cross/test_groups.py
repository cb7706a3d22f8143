"""A consumer group moves between Kafka and RocketMQ."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from cross.clients import kafka_consumer, receive

from tools.rocketmq_wire import Wire
from trimq.testing import Broker


@pytest.mark.parametrize("home", ["partition-log", "commit-log"])
def test_a_group_goes_on_at_its_place_in_the_other_protocol(broker: Broker, home: str) -> None:
    broker.create_topic("orders", 1, home=home)
    for number in range(5):
        broker.send("orders", b"%d" % number)
    with kafka_consumer(broker.kafka) as consumer:
        consumer.subscribe(["orders"])
        found = receive(consumer, 5)
        consumer.commit(found[1], asynchronous=False)
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.heartbeat("g", "orders")
        assert wire.offset("g", "orders", 0) == 2
        wire.commit_offset("g", "orders", 0, 4)
        wire.done(35, {"clientID": "wire", "consumerGroup": "g"})
    with kafka_consumer(broker.kafka) as consumer:
        consumer.subscribe(["orders"])
        assert [each.value() for each in receive(consumer, 1)] == [b"4"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_has_members_of_one_protocol_at_a_time(broker: Broker, protocol: str) -> None:
    broker.create_topic("orders", 1)
    broker.send("orders", b"1")
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        with kafka_consumer(broker.kafka, **{"group.protocol": protocol}) as consumer:
            consumer.subscribe(["orders"])
            receive(consumer, 1)
            with pytest.raises(AssertionError, match="group g has members that use Kafka"):
                wire.heartbeat("g", "orders")
        wire.heartbeat("g", "orders")
        with kafka_consumer(broker.kafka, **{"group.protocol": "classic"}) as consumer:
            consumer.subscribe(["orders"])
            with pytest.raises((KafkaException, AssertionError), match=r"INCONSISTENT_GROUP_PROTOCOL|Inconsistent"):
                receive(consumer, 1)
