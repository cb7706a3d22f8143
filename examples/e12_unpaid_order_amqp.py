"""E12, RabbitMQ clients: an order that is not paid within half an hour is cancelled by a message that expires.

Each order publishes a message to a queue without consumers. The messages expire after 30 minutes and are dead-lettered
to the queue of the cashier, which checks if the order was paid. The broker runs in this process, so that its clock can
be advanced."""

from __future__ import annotations

from typing import Any

import pika

from trimq.testing import Broker

WAITING, DUE = "orders-waiting", "orders-due"
HALF_AN_HOUR_MS = 30 * 60 * 1000
PATIENCE_S = 30


def connect(address: str) -> Any:
    host, _, port = address.rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=PATIENCE_S))


def declare(channel: Any) -> None:
    channel.queue_declare(DUE, durable=True)
    to_the_cashier = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DUE}
    channel.queue_declare(WAITING, durable=True, arguments={"x-message-ttl": HALF_AN_HOUR_MS, **to_the_cashier})


def look(channel: Any, states: dict[str, str]) -> None:
    """Processes all due messages as the cashier."""
    due = len(states)
    for method, _, body in channel.consume(DUE, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"{due} orders are missing"
        order = body.decode()
        if states[order] == "open":
            states[order] = "cancelled"
        channel.basic_ack(method.delivery_tag)
        due -= 1
        if not due:
            break
    channel.cancel()


def main() -> None:
    states = {f"order {number}": "open" for number in range(4)}
    with Broker() as broker:
        connection = connect(broker.addresses["amqp"])
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel)
        for order in states:
            channel.basic_publish("", WAITING, order.encode(), pika.BasicProperties(delivery_mode=2))
        broker.advance("29m")
        states["order 1"] = states["order 3"] = "paid"
        print(f"after 29 minutes: {states}")
        assert channel.queue_declare(DUE, passive=True).method.message_count == 0
        broker.advance("1m")
        look(channel, states)
        print(f"after 30 minutes: {states}")
        connection.close()
    assert states == {"order 0": "cancelled", "order 1": "paid", "order 2": "cancelled", "order 3": "paid"}


if __name__ == "__main__":
    main()
