"""Real clients against a broker in this process, through its crashes."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from trimq.model import SYSTEM
from trimq.server.node import Node
from trimq.testing import Broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonTopicPartition
    from kafka.net.inet import KafkaNetSocket

PATIENCE_S = 30
TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        yield broker


class Sender:
    """A confluent-kafka producer that records acknowledged bodies by offset."""

    def __init__(self, broker: Broker) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": broker.kafka,
                "acks": "all",
                "linger.ms": 0,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )

    def send(self, count: int, prefix: str) -> None:
        for number in range(count):
            self._producer.produce(TOPIC, f"{prefix} {number}".encode(), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.offset()] = message.value()

    def wait_for_some(self, count: int) -> None:
        while len(self.acknowledged) < count:
            assert self._producer.poll(PATIENCE_S), f"{len(self.acknowledged)} acknowledged"

    def poll(self) -> None:
        self._producer.poll(0.01)

    def wait_for_all(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0


def kept(broker: Broker) -> dict[int, bytes | None]:
    return {record.offset: record.body for record in broker.records(TOPIC)}


def test_nothing_that_confluent_kafka_got_acknowledged_is_lost_by_crashes(broker: Broker) -> None:
    sender = Sender(broker)
    for life in range(4):
        sender.send(300, f"life {life}")
        sender.wait_for_some(100 * life + 1)  # so that the crash interrupts it
        broker.crash()
        broker.restart()
        stored = kept(broker)
        lost = {offset: body for offset, body in sender.acknowledged.items() if stored.get(offset) != body}
        assert lost == {}
    sender.wait_for_all()
    assert sender.failed == []
    stored = kept(broker)
    assert len(sender.acknowledged) >= 1200
    assert {offset: stored.get(offset) for offset in sender.acknowledged} == sender.acknowledged
    assert sorted(stored) == list(range(len(stored)))


@pytest.fixture
def hanging_disk(broker: Broker) -> Iterator[None]:
    """Blocks syncs until the broker crashes."""
    is_over = threading.Event()

    def hang_on(node: Node) -> None:
        syncs: Any = node._platform.sync_offload

        def hang() -> None:
            while not (syncs._is_shut_down or is_over.wait(0.001)):
                """The crash cuts the thread of the syncs before the files lose what was not synced."""

        syncs(hang, lambda result, error: None)

    broker.on_loop(hang_on)
    yield
    is_over.set()


@pytest.mark.usefixtures("hanging_disk")
def test_nothing_is_acknowledged_before_it_is_synced(broker: Broker) -> None:
    """The power cut happens during a sync."""
    sender = Sender(broker)
    sender.send(10, "written")
    while broker.on_loop(lambda node: node.core.broker.topics.get(SYSTEM, TOPIC).streams[0].end) < 10:
        sender.poll()
    assert sender.acknowledged == {}
    broker.crash()
    broker.restart()
    assert kept(broker) == {}
    sender.wait_for_all()  # it retries the unacknowledged messages
    assert sender.acknowledged == kept(broker)


def test_confluent_kafka_reads_on_after_a_restart(broker: Broker) -> None:
    with confluent_consumer(broker) as consumer:
        broker.send(TOPIC, "before")
        assert read(consumer) == b"before"
        broker.restart()
        broker.send(TOPIC, "after")
        assert read(consumer) == b"after"


@contextmanager
def confluent_consumer(broker: Broker) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": broker.kafka,
        "group.id": "readers",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        yield consumer


def read(consumer: Consumer) -> bytes | None:
    for _ in range(PATIENCE_S):
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            value: bytes | None = message.value()
            return value
    raise TimeoutError("no message came")


def test_advancing_returns_while_a_consumer_waits_for_messages(broker: Broker) -> None:
    """A long poll is almost always pending: it must not count as unsent output."""
    with confluent_consumer(broker) as consumer:
        broker.send(TOPIC, "one")
        assert read(consumer) == b"one"
        for _ in range(20):
            broker.advance("1h")
        broker.send(TOPIC, "two")
        assert read(consumer) == b"two"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Sockets that kafka-python opened. It drops a refused one without closing it."""
    made: list[socket.socket] = []
    make = KafkaNetSocket.socket

    def note(*arguments: Any) -> socket.socket:
        made.append(make(*arguments))
        return made[-1]

    monkeypatch.setattr(KafkaNetSocket, "socket", note)
    yield made
    for each in made:
        each.close()
    made.clear()


def test_kafka_python_sends_and_reads_across_a_crash(broker: Broker, tried: list[socket.socket]) -> None:
    backoff = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50, "retry_backoff_ms": 10}
    settings = {"bootstrap_servers": broker.kafka, "enable_idempotence": False, "acks": "all"} | backoff
    with closing(KafkaProducer(**settings)) as producer:
        assert producer.send(TOPIC, b"before", partition=0).get(PATIENCE_S).offset == 0
        broker.crash()
        before, until_s = len(tried), time.monotonic() + PATIENCE_S
        while len(tried) < before + 2:  # refused at least once
            assert time.monotonic() < until_s, "the client does not reconnect"
        broker.restart()
        assert producer.send(TOPIC, b"after", partition=0).get(PATIENCE_S).offset == 1
    with closing(KafkaConsumer(bootstrap_servers=broker.kafka, group_id=None, consumer_timeout_ms=30_000)) as consumer:
        consumer.assign([PythonTopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        assert [next(consumer).value, next(consumer).value] == [b"before", b"after"]


def test_requests_of_clients_are_recorded(broker: Broker) -> None:
    sender = Sender(broker)
    sender.send(1, "one")
    sender.wait_for_all()
    seen = "\n".join(broker.sightings())
    assert f"topic {TOPIC} was created with 1 streams" in seen
    assert "by rdkafka -> ok" in seen
    for api in ("ApiVersions", "Metadata", "Produce"):
        assert f": {api} v" in seen
    assert "connected" in seen
