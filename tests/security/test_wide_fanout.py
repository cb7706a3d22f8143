"""Attack t18c: many publishes to an exchange with very many queues must not keep others waiting."""

from __future__ import annotations

from pathlib import Path

import pika
from security.attacked import others_are_served

from tools.broker import running

QUEUES = 2000
PUBLISHES = 1024


def test_many_publishes_to_many_queues(tmp_path: Path) -> None:
    with running(tmp_path) as addresses:
        host, _, port = addresses["amqp"].rpartition(":")
        with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
            channel = connection.channel()
            channel.exchange_declare("wide", "fanout")
            for number in range(QUEUES):
                channel.queue_declare(f"q{number}")
                channel.queue_bind(f"q{number}", "wide")

            def attack() -> None:
                for _ in range(PUBLISHES):
                    channel.basic_publish("wide", "", b"x")
                found = channel.queue_declare("q0", passive=True).method.message_count
                assert found % PUBLISHES == 0

            others_are_served(addresses["http"], attack)
