"""kombu, and py-amqp below it, against a broker process of its own: producers, consumers, confirms, compression."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import kombu
import pytest

from tools.broker import running

PATIENCE_S = 20


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        yield f"pyamqp://guest:guest@{addresses['amqp']}//"


@pytest.fixture
def connection(url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(url, transport_options={"confirm_publish": True}) as connection:
        yield connection


def consume(connection: kombu.Connection, queue: kombu.Queue, count: int) -> list[Any]:
    came: list[Any] = []

    def take(body: Any, message: Any) -> None:
        came.append(body)
        message.ack()

    with connection.Consumer(queue, callbacks=[take], prefetch_count=5):
        while len(came) < count:
            connection.drain_events(timeout=PATIENCE_S)
    return came


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_what_is_published_is_consumed(connection: kombu.Connection, kind: str) -> None:
    exchange = kombu.Exchange(f"kombu.{kind}", kind)
    queue = kombu.Queue(f"kombu.{kind}", exchange, routing_key="key")
    producer = connection.Producer()
    sent = [{"number": number, "text": "é"} for number in range(20)]
    for body in sent:
        producer.publish(body, exchange=exchange, routing_key="key", declare=[queue], compression="zlib")
    assert consume(connection, queue, 20) == sent


def test_priorities_are_kept(connection: kombu.Connection) -> None:
    queue = kombu.Queue("kombu.ranked", max_priority=10)
    producer = connection.Producer()
    for priority in (0, 9, 5):
        producer.publish(priority, routing_key=queue.name, declare=[queue], priority=priority)
    assert consume(connection, queue, 3) == [9, 5, 0]


def test_a_simple_queue_is_simple(connection: kombu.Connection) -> None:
    with connection.SimpleQueue("kombu.simple") as queue:
        queue.put({"a": 1})
        message = queue.get(timeout=PATIENCE_S)
        message.ack()
        assert message.payload == {"a": 1}
        assert queue.qsize() == 0


def test_heartbeats_keep_a_connection_that_says_nothing_else(url: str) -> None:
    with kombu.Connection(url, heartbeat=1) as connection:
        connection.connect()
        for _ in range(16):
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.25)
            connection.heartbeat_check()
        with connection.SimpleQueue("kombu.alive") as queue:
            queue.put("alive")
            assert queue.get(timeout=PATIENCE_S).payload == "alive"
