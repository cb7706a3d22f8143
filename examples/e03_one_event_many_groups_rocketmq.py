"""E3, RocketMQ: one event reaches several groups; one more group is added and the producer does not change.

Each group has its own offsets, so no group takes an event away from another. A group that is added later begins with
the first event that the broker still has. Uses the C++ client. Needs TRIMQ_ROCKETMQ and TRIMQ_ROCKETMQ_BROKER."""

from __future__ import annotations

import os
import time
import uuid

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage, SendStatus

from tools.rocketmq_wire import Wire

NAMES, BROKER = os.environ["TRIMQ_ROCKETMQ"], os.environ["TRIMQ_ROCKETMQ_BROKER"]
TOPIC = f"e03-{uuid.uuid4().hex[:8]}"
PATIENCE_S = 40


def send(producer: Producer, *events: str) -> None:
    for event in events:
        message = Message(TOPIC)
        message.set_body(event)
        result = producer.send_sync(message)
        assert result.status is SendStatus.OK, result


def join(service: str, events: list[str]) -> PushConsumer:
    """Returns a consumer in the service's own group, which notes its events."""

    def take(message: RecvMessage) -> None:
        events.append(message.body.decode())

    consumer = PushConsumer(f"{TOPIC}-{service}")
    consumer.set_namesrv_addr(NAMES)
    consumer.set_instance_name(service)
    consumer.set_thread_count(1)
    consumer.subscribe(TOPIC, take)
    consumer.start()
    return consumer


def wait(seen: dict[str, list[str]], count: int) -> None:
    """Waits until every service has seen `count` events."""
    deadline = time.monotonic() + PATIENCE_S
    while any(len(events) < count for events in seen.values()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {count} events each, saw {seen}")
        time.sleep(0.05)


def main() -> None:
    with Wire(BROKER) as wire:
        wire.create_topic(TOPIC, 1)
    producer = Producer("e03")
    producer.set_namesrv_addr(NAMES)
    producer.start()
    seen: dict[str, list[str]] = {"stock": [], "mail": []}
    consumers = [join(service, events) for service, events in seen.items()]
    try:
        send(producer, "order 1 paid", "order 2 paid")
        wait(seen, 2)
        print(f"two groups: {seen}")
        everything = ["order 1 paid", "order 2 paid"]
        assert seen == dict.fromkeys(("stock", "mail"), everything), seen

        seen["points"] = []
        consumers.append(join("points", seen["points"]))
        send(producer, "order 3 paid")
        wait(seen, 3)
        print(f"one more:   {seen}")
        everything.append("order 3 paid")
        assert seen == dict.fromkeys(("stock", "mail", "points"), everything), seen
    finally:
        for consumer in consumers:
            consumer.shutdown()
        producer.shutdown()


if __name__ == "__main__":
    main()
