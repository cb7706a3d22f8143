"""Unmodified clients of each protocol, with short waits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

import pika
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka.admin import AdminClient
from pika.adapters.blocking_connection import BlockingChannel

from trimq.testing import Broker

PATIENCE_S = 30


@contextmanager
def kafka_consumer(address: str, group: str = "g", **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def receive(consumer: Consumer, count: int) -> list[Message]:
    """Returns this many messages."""
    until = time.monotonic() + PATIENCE_S
    found: list[Message] = []
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} messages"
        message = consumer.poll(0.5)
        if message is not None:
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            if error is None:
                found.append(message)
    return found


def described(message: Message) -> tuple[bytes | None, bytes | None, dict[str, bytes]]:
    return message.value(), message.key(), dict(message.headers() or ())


def ask_http(broker: Broker, path: str) -> Any:
    """Returns what the broker's own API answers."""
    with urlopen(f"{broker.http}{path}") as answer:
        return json.load(answer)


def delete_topic(broker: Broker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.delete_topics([name])[name].result(PATIENCE_S)


@contextmanager
def channel(address: str) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(f"{address}?heartbeat=0"))
    try:
        yield connection.channel()
    finally:
        connection.close()
