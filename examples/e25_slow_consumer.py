"""E25, RabbitMQ clients: a slow consumer without prefetch, with it, and pulling.

Without prefetch the broker pushes everything to the first consumer: its memory holds the backlog, and a second consumer
finds the queue empty. With prefetch each has a limited number of messages, and the rest stays in the broker. A consumer
that pulls asks for each message, which costs a round trip each. Needs TRIMQ_AMQP, the broker's address."""

from __future__ import annotations

import os
import time
from typing import Any

import pika

HOST, _, PORT = os.environ["TRIMQ_AMQP"].rpartition(":")
PATIENCE_S = 20
MESSAGES = 100
PREFETCH = 5


def connect() -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, int(PORT), socket_timeout=PATIENCE_S))


class Pushed:
    """A consumer that keeps delivered messages in memory until it processes them."""

    def __init__(self, queue: str, prefetch: int) -> None:
        self.channel = connect().channel()
        if prefetch:
            self.channel.basic_qos(prefetch_count=prefetch)
        self.held: list[int] = []
        self.done = 0
        self.channel.basic_consume(queue, lambda _c, method, _p, _b: self.held.append(method.delivery_tag))

    def hear(self) -> None:
        """Receives all deliveries sent so far: the broker answers a request behind them."""
        self.channel.basic_qos(prefetch_count=0)
        self.channel.connection.process_data_events(0)

    def work(self, count: int) -> None:
        """Processes `count` messages in the order of delivery."""
        deadline = time.monotonic() + PATIENCE_S
        while count and time.monotonic() < deadline:
            self.channel.connection.process_data_events(0.01)
            for tag in self.held[:count]:
                self.channel.basic_ack(tag)
                self.held.remove(tag)
                self.done += 1
                count -= 1
        assert not count, "the broker delivered too few messages"

    def close(self) -> None:
        """Closes the channel; unacked messages are requeued."""
        self.channel.connection.close()


def filled(channel: Any, name: str) -> str:
    channel.queue_declare(name, durable=True)
    channel.queue_purge(name)
    for number in range(MESSAGES):
        channel.basic_publish("", name, b"%d" % number, pika.BasicProperties(delivery_mode=2))
    return name


def ready(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, durable=True, passive=True).method.message_count)


def push(channel: Any, prefetch: int) -> None:
    """Runs a slow consumer; then adds a second one."""
    queue = filled(channel, f"e25.prefetch.{prefetch}")
    slow = Pushed(queue, prefetch)
    slow.hear()
    helper = Pushed(queue, prefetch)
    helper.hear()
    waiting = ready(channel, queue)
    print(
        f"prefetch {prefetch or 'unlimited':>9}: the slow consumer holds {len(slow.held)}, "
        f"the second {len(helper.held)}, {waiting} are in the broker"
    )
    if prefetch:
        assert (len(slow.held), len(helper.held), waiting) == (prefetch, prefetch, MESSAGES - 2 * prefetch)
        slow.work(2)
        helper.work(MESSAGES // 2)  # the faster one gets more of them
        assert helper.done == MESSAGES // 2
    else:
        assert (len(slow.held), len(helper.held), waiting) == (MESSAGES, 0, 0)
        slow.close()  # its unacked messages are delivered to the other one
        helper.work(MESSAGES)
        helper.close()
        return
    slow.close()
    helper.close()


def pull(channel: Any) -> None:
    """Takes one message at a time."""
    queue = filled(channel, "e25.pull")
    begun = time.perf_counter()
    for number in range(MESSAGES):
        assert ready(channel, queue) == MESSAGES - number
        method, _, body = channel.basic_get(queue)
        assert body == b"%d" % number, body
        channel.basic_ack(method.delivery_tag)
    assert channel.basic_get(queue)[0] is None
    took_ms = (time.perf_counter() - begun) * 1000
    print(f"pull: {MESSAGES} messages with one request each in {took_ms:.0f} ms; the rest stayed in the broker")


def main() -> None:
    channel = connect().channel()
    push(channel, 0)
    push(channel, PREFETCH)
    pull(channel)
    channel.connection.close()


if __name__ == "__main__":
    main()
