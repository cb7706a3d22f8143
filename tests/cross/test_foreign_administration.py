"""A topic is made, changed and deleted through its own protocol only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

HOMES = pytest.mark.parametrize("home", ["commit-log", "queue"])


def make(broker: Broker, home: str) -> None:
    if home == "queue":
        broker.create_queue("orders")
    else:
        broker.create_topic("orders", 1, home=home)
    broker.send("orders", b"1")


CHANGES: dict[str, tuple[int, Callable[[AdminClient], dict[Any, Any]]]] = {
    "create": (KafkaError.TOPIC_ALREADY_EXISTS, lambda admin: admin.create_topics([NewTopic("orders", 3)])),
    "delete": (KafkaError.TOPIC_EXCEPTION, lambda admin: admin.delete_topics(["orders"])),
    "grow": (KafkaError.TOPIC_EXCEPTION, lambda admin: admin.create_partitions([NewPartitions("orders", 5)])),
    "configure": (
        KafkaError.TOPIC_EXCEPTION,
        lambda admin: admin.incremental_alter_configs(
            [
                ConfigResource(
                    "topic",
                    "orders",
                    incremental_configs=[
                        ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
                    ],
                )
            ]
        ),
    ),
    "empty": (KafkaError.TOPIC_EXCEPTION, lambda admin: admin.delete_records([TopicPartition("orders", 0, 1)])),
}


@HOMES
@pytest.mark.parametrize("change", CHANGES)
def test_a_kafka_client_cannot_change_a_foreign_topic(broker: Broker, home: str, change: str) -> None:
    make(broker, home)
    code, ask = CHANGES[change]
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    (answer,) = ask(admin).values()
    with pytest.raises(KafkaException) as refused:
        answer.result(30)
    assert refused.value.args[0].code() == code
    assert [each.body for each in broker.records("orders")] == [b"1"]


@pytest.mark.parametrize("home", ["partition-log", "queue"])
def test_a_rocketmq_client_cannot_change_a_foreign_topic(broker: Broker, home: str) -> None:
    make(broker, home)
    fields = {"topic": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.done(17, fields)  # as it is
        with pytest.raises(AssertionError, match="another protocol"):
            wire.done(17, {**fields, "readQueueNums": 4})
        with pytest.raises(AssertionError, match="another protocol"):
            wire.done(215, {"topic": "orders"})
    assert [each.body for each in broker.records("orders")] == [b"1"]


def test_a_kafka_producer_to_a_name_that_is_off_is_refused_soon() -> None:
    """D1: the client is told at once, instead of after its time-out."""
    with Broker(cross_list="off") as broker:
        broker.create_topic("orders", 1, home="commit-log")
        producer = Producer({"bootstrap.servers": broker.kafka})
        refused: list[KafkaError | None] = []
        begun = time.monotonic()
        producer.produce("orders", b"1", on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(30) == 0
        assert time.monotonic() - begun < 5, "below the time-outs of the client"
        (error,) = refused
        assert error is not None
        assert error.code() == KafkaError.TOPIC_EXCEPTION
