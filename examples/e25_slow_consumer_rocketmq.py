"""E25, RocketMQ: a slow consumer that is pushed to, without and with a small cache, and one that pulls.

RocketMQ's push consumer fetches ahead into its own memory, 1,024 messages of a topic by default. A slow one holds them
all, and a second consumer of the group finds nothing. With a small cache, which is what prefetch is for RabbitMQ, the
rest stays in the broker, where others get it. A consumer that pulls takes as many as it asks for. Uses RocketMQ's gRPC
client. Needs TRIMQ_ROCKETMQ_GRPC and TRIMQ_ROCKETMQ_BROKER."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from typing import Any

import rocketmq
from rocketmq.v5.client import ClientConfiguration, Credentials

# Two packages share this name; the wrong one may be imported.
rocketmq.ClientConfiguration = ClientConfiguration

from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer, SimpleConsumer  # noqa: E402
from rocketmq.v5.model import FilterExpression  # noqa: E402

from tools.rocketmq_wire import Wire  # noqa: E402

GRPC, BROKER = os.environ["TRIMQ_ROCKETMQ_GRPC"], os.environ["TRIMQ_ROCKETMQ_BROKER"]
RUN = uuid.uuid4().hex[:8]
MESSAGES, QUEUES = 100, 2
CACHE = 10
INVISIBLE_S = 60
PATIENCE_S = 30


def configuration() -> ClientConfiguration:
    return ClientConfiguration(GRPC, Credentials(), request_timeout=10)


class SlowListener(MessageListener):
    """Processes no message until it may."""

    def __init__(self) -> None:
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self.done: list[str] = []

    def consume(self, message: Any) -> ConsumeResult:
        self.has_begun.set()
        self.may_go_on.wait()
        self.done.append(message.body.decode())
        return ConsumeResult.SUCCESS


def fill(wire: Wire, name: str) -> list[str]:
    """Makes a topic and a group of this name. Returns the bodies of the messages in the topic."""
    wire.create_topic(name, QUEUES, message_type="NORMAL")
    wire.done(200, body=json.dumps({"groupName": name}).encode())
    bodies = [str(number) for number in range(MESSAGES)]
    for number, body in enumerate(bodies):
        wire.send(name, body.encode(), number % QUEUES)
    return bodies


def pull(name: str, count: int) -> list[str]:
    """Takes up to `count` messages, as long as there are any, and acknowledges each."""
    consumer: Any = SimpleConsumer(configuration(), name, {name: FilterExpression()}, await_duration=1)
    consumer.startup()
    taken: list[str] = []
    empty = 0
    while len(taken) < count and empty < QUEUES:  # each request asks one queue
        received = consumer.receive(min(CACHE, count - len(taken)), INVISIBLE_S) or ()
        empty = 0 if received else empty + 1
        for message in received:
            taken.append(message.body.decode())
            consumer.ack(message)
    consumer.shutdown()
    return taken


def push(wire: Wire, name: str, **cache: int) -> tuple[int, int]:
    """Returns how many messages the slow consumer held, and how many a second consumer got meanwhile."""
    bodies = fill(wire, name)
    slow = SlowListener()
    consumer = PushConsumer(
        configuration(), name, slow, {name: FilterExpression()}, consumption_thread_count=1, **cache
    )
    consumer.startup()
    assert slow.has_begun.wait(PATIENCE_S), "nothing was delivered"
    time.sleep(1)  # it fetches ahead
    taken = pull(name, MESSAGES)
    held = MESSAGES - len(taken)
    slow.may_go_on.set()
    deadline = time.monotonic() + PATIENCE_S
    while len(slow.done) < held and time.monotonic() < deadline:
        time.sleep(0.01)
    consumer.shutdown()
    assert sorted(slow.done + taken) == sorted(bodies), "each message is processed once"
    return held, len(taken)


def main() -> None:
    with Wire(BROKER) as wire:
        held, taken = push(wire, f"e25-push-{RUN}")
        print(f"pushed, default cache:  the slow consumer holds {held}, a second one gets {taken}")
        assert (held, taken) == (MESSAGES, 0)

        held, taken = push(wire, f"e25-cache-{RUN}", max_cache_message_count=CACHE)
        print(f"pushed, cache of {CACHE}:     the slow consumer holds {held}, a second one gets {taken}")
        assert 1 <= held <= CACHE, held

        name = f"e25-pull-{RUN}"
        fill(wire, name)
        few, rest = pull(name, CACHE), pull(name, MESSAGES)
        print(f"pulled:                 the slow consumer asks for {len(few)}, a second one gets {len(rest)}")
        assert (len(few), len(rest)) == (CACHE, MESSAGES - CACHE)


if __name__ == "__main__":
    main()
