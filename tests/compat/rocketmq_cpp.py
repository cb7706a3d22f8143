"""RocketMQ's C++ client (PyPI `rocketmq`), reduced to the calls that the tests use."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 40
# Each consumer is a separate instance: one that shares connections and timers with a producer may start a minute late,
# and the client may abort the process when one of the two ends.
_NUMBERS = itertools.count()


@contextmanager
def producer_of(names: str, group: str = "pg") -> Iterator[Any]:
    from rocketmq.client import Producer

    producer: Any = Producer(group)
    producer.set_namesrv_addr(names)
    producer.start()
    try:
        yield producer
    finally:
        producer.shutdown()


@contextmanager
def consumer_of(
    names: str, group: str, topic: str, take: Callable[[Any], None], expression: str = "*", **options: Any
) -> Iterator[Any]:
    from rocketmq.client import PushConsumer, RecvMessage

    instance, answer = options.pop("instance", f"consumer-{next(_NUMBERS)}"), options.pop("answer", None)
    consumer: Any = PushConsumer(group, **options)
    consumer.set_namesrv_addr(names)
    consumer.set_instance_name(instance)
    consumer.subscribe(topic, take, expression)
    if answer is not None:
        consumer._register_callback(lambda _, handle: answer(RecvMessage(handle)))
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.shutdown()


def message_of(topic: str, body: str, tags: str = "", level: int = 0) -> Any:
    from rocketmq.client import Message

    message: Any = Message(topic)
    message.set_keys(f"key of {body}")
    message.set_body(body)
    if tags:
        message.set_tags(tags)
    if level:
        message.set_delay_time_level(level)
    return message


def send(names: str, topic: str, count: int) -> None:
    with producer_of(names) as producer:
        for number in range(count):
            producer.send_sync(message_of(topic, f"body {number}", "even" if number % 2 == 0 else "odd"))


def send_at_last(producer: Any, message: Any) -> None:
    """Sends until a broker accepts it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.send_sync(message)
            return
        except Exception:  # the package has many exceptions for a lost connection
            assert time.monotonic() < deadline
            time.sleep(0.01)


class Taken:
    """Messages that a consumer received, in order."""

    def __init__(self) -> None:
        self._grown = threading.Condition()
        self.bodies: list[str] = []
        self.queues: dict[int, list[str]] = {}

    def __call__(self, message: Any) -> None:
        with self._grown:
            self.bodies.append(bytes(message.body).decode())
            self.queues.setdefault(message.queue_id, []).append(self.bodies[-1])
            self._grown.notify_all()

    def wait(self, count: int) -> list[str]:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.bodies) >= count, PATIENCE_S), self.bodies
            return list(self.bodies)

    def is_reached(self, is_so: Callable[[Taken], bool], seconds: float = PATIENCE_S) -> bool:
        with self._grown:
            return self._grown.wait_for(lambda: is_so(self), seconds)


def pull(names: str, topic: str, expression: str = "*") -> list[Any]:
    """Body, keys and queue of each message, queue after queue."""
    from rocketmq.client import PullConsumer

    consumer: Any = PullConsumer(f"pull-{topic}")
    consumer.set_namesrv_addr(names)
    consumer.start()
    try:
        found = consumer.pull(topic, expression)
        return [(bytes(each.body).decode(), bytes(each.keys).decode(), each.queue_id) for each in found]
    finally:
        consumer.shutdown()
