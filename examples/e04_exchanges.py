"""E4, RabbitMQ clients: one message, many queues: direct, topic and fanout exchanges.

A direct exchange compares the routing key, a topic exchange matches its words (`*` is one word, `#` any number,
including none), a fanout exchange ignores it. Needs TRIMQ_AMQP, the broker's address."""

from __future__ import annotations

import os
from typing import Any

import pika

HOST, _, PORT = os.environ["TRIMQ_AMQP"].rpartition(":")

# Type of the exchange, bindings of the queues, and the expected queues of each message.
Table = tuple[str, dict[str, list[str]], dict[str, list[str]]]

DIRECT: Table = (
    "direct",
    {"Q1": ["error"], "Q2": ["info", "warning", "error"]},
    {"error": ["Q1", "Q2"], "info": ["Q2"], "warning": ["Q2"], "debug": []},
)
TOPIC: Table = (
    "topic",
    {"Q1": ["*.error"], "Q2": ["#.error", "*"], "Q3": ["#"]},
    {
        "net.error": ["Q1", "Q2", "Q3"],
        "db.error": ["Q1", "Q2", "Q3"],
        "net.connect.error": ["Q2", "Q3"],
        "error": ["Q2", "Q3"],
        "info": ["Q2", "Q3"],
        "net.info": ["Q3"],
    },
)
FANOUT: Table = ("fanout", {"Q1": [""], "Q2": [""], "Q3": [""]}, {"whatever": ["Q1", "Q2", "Q3"]})


def route(channel: Any, table: Table) -> dict[str, list[str]]:
    """Returns the queues that each message reaches."""
    kind, bindings, messages = table
    exchange = f"e04.{kind}"
    channel.exchange_declare(exchange, kind, durable=True)
    for queue, keys in bindings.items():
        channel.queue_declare(f"{exchange}.{queue}", durable=True)
        for key in keys:
            channel.queue_bind(f"{exchange}.{queue}", exchange, key)
    for key in messages:
        channel.basic_publish(exchange, key, key.encode())
    reached: dict[str, list[str]] = {key: [] for key in messages}
    for queue in bindings:
        while (body := channel.basic_get(f"{exchange}.{queue}", auto_ack=True)[2]) is not None:
            reached[body.decode()].append(queue)
    return reached


def main() -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, int(PORT), socket_timeout=20))
    channel = connection.channel()
    for table in (DIRECT, TOPIC, FANOUT):
        reached = route(channel, table)
        assert reached == table[2], reached
        print(f"{table[0]}:")
        for key, queues in reached.items():
            print(f"  {key:<18} {' '.join(queues) or 'no queue'}")
    connection.close()


if __name__ == "__main__":
    main()
