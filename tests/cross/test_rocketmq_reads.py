"""RocketMQ consumers pull Kafka topics and AMQP queues."""

from __future__ import annotations

import json

import pika
from confluent_kafka import Producer
from cross.clients import channel

from tools.rocketmq_wire import Wire
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import Unit, iterate_units
from trimq.testing import Broker

ROUTE, TOPIC_LIST = 105, 206


def pull_all(wire: Wire, topic: str, expression: str = "*") -> list[Unit]:
    """Pulls from where the broker says that the next message may be."""
    found: list[Unit] = []
    offset = 0
    while True:
        fields = {"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32}
        fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0}
        header, body = wire.ask(11, fields | {"subscription": expression})
        next_offset = int(header["extFields"]["nextBeginOffset"])
        if header["code"] != 0 and next_offset == offset:
            return found
        found += iterate_units(body)
        offset = next_offset


def test_a_consumer_pulls_compressed_batches_of_a_kafka_topic(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    producer = Producer({"bootstrap.servers": broker.kafka, "compression.type": "zstd", "linger.ms": 50})
    for number in range(1000):
        headers = [("trace", b"t"), ("rmq.TAGS", b"odd" if number % 2 else b"even"), ("DELAY", b"9")]
        producer.produce("orders", b"%d" % number, f"k{number}".encode(), number % 2, headers=headers)
    assert producer.flush(30) == 0
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        units = [unit for queue in range(2) for unit in wire.pull("orders", queue=queue)]
        assert [unit.queue_offset for unit in units] == [*range(500), *range(500)]
        assert sorted(int(bytes(unit.body)) for unit in units) == list(range(1000))
        properties = read_properties(units[1].properties)
        assert properties["KEYS"] == f"k{int(bytes(units[1].body))}"
        assert properties["trace"] == "t"
        assert "DELAY" not in properties
        assert properties["h.DELAY"] == "9"
        assert properties["TAGS"] == "even"


def test_only_committed_records_are_pulled(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "t"})
    producer.init_transactions()
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce("orders", b"%d" % number)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        units = pull_all(wire, "orders")
        assert [(unit.queue_offset, bytes(unit.body)) for unit in units] == [(0, b"0"), (4, b"2")]


def test_a_consumer_pulls_a_queue_and_takes_nothing(broker: Broker) -> None:
    with channel(broker.amqp) as amqp, Wire(broker.addresses["rocketmq_broker"]) as wire:
        amqp.queue_declare("tasks", durable=True)
        amqp.confirm_delivery()
        amqp.basic_publish("", "tasks", b"1", pika.BasicProperties(type="paid", message_id="m", headers={"a": "b"}))
        (unit,) = wire.pull("tasks")
        properties = read_properties(unit.properties)
        assert bytes(unit.body) == b"1"
        assert (properties["TAGS"], properties["UNIQ_KEY"], properties["a"]) == ("paid", "m", "b")
        assert amqp.queue_declare("tasks", passive=True).method.message_count == 1


def test_routes_and_lists_name_foreign_topics(broker: Broker) -> None:
    broker.create_topic("orders.eu", 3)
    broker.create_queue("tasks")
    with Wire(broker.rocketmq) as wire:
        _, body = wire.ask(TOPIC_LIST)
        assert {"orders.eu", "tasks"} <= set(json.loads(body)["topicList"])
        for name in ("orders.eu", "orders%2Eeu"):
            header, body = wire.ask(ROUTE, {"topic": name})
            assert header["code"] == 0
            (queues,) = json.loads(body)["queueDatas"]
            assert queues["readQueueNums"] == 3


def test_tags_filter_and_offsets_are_committed(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    for number in range(4):
        broker.send("orders", b"%d" % number, headers={"rmq.TAGS": b"a" if number % 2 else b"b"})
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.heartbeat("g", "orders")
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
        fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "a", "subVersion": 0}
        header, body = wire.ask(11, fields)
        assert header["code"] == 0
        assert body.count(b"TAGS\x01a\x02") == 2
        assert body.count(b"TAGS\x01b\x02") == 0
        wire.commit_offset("g", "orders", 0, 3)
        assert wire.offset("g", "orders", 0) == 3
    broker.restart()
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        assert wire.offset("g", "orders", 0) == 3


def test_a_message_sent_back_is_retried_as_the_group_s_own(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    broker.send("orders", b"again", key=b"k")
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.heartbeat("g", "orders")
        (unit,) = wire.pull("orders")
        wire.done(36, {"group": "g", "offset": unit.position, "delayLevel": 1, "originTopic": "orders"})
        broker.advance("2s")
        (retried,) = wire.pull("%RETRY%g")
        assert bytes(retried.body) == b"again"
        assert read_properties(retried.properties)["RETRY_TOPIC"] == "orders"
        assert retried.reconsume_times == 1
