"""E3, RocketMQ: one event reaches several groups; another group is added without changing the producer.

Each group has its own offsets. A group that is added later also gets the events from before, as long as the topic still
has its very first message; in an older topic it would begin at the end. Uses the C++ client. Needs TRIMQ_ROCKETMQ and
TRIMQ_ROCKETMQ_BROKER."""

from __future__ import annotations

import os
import time
import uuid

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage

from tools.rocketmq_wire import Wire

NAMES, BROKER = os.environ["TRIMQ_ROCKETMQ"], os.environ["TRIMQ_ROCKETMQ_BROKER"]
TOPIC = f"e03-{uuid.uuid4().hex[:8]}"
PATIENCE_S = 30


class Service:
    """A consumer in a group of its own."""

    def __init__(self, name: str) -> None:
        self.seen: list[str] = []
        self._consumer = PushConsumer(f"{TOPIC}-{name}")
        self._consumer.set_namesrv_addr(NAMES)
        self._consumer.subscribe(TOPIC, self._take)
        self._consumer.start()

    def _take(self, message: RecvMessage) -> None:
        self.seen.append(message.body.decode())

    def close(self) -> None:
        self._consumer.shutdown()


def send(producer: Producer, *events: str) -> None:
    for event in events:
        message = Message(TOPIC)
        message.set_body(event)
        producer.send_sync(message)


def wait(services: dict[str, Service], events: list[str]) -> dict[str, list[str]]:
    """Returns what each service has seen, once each has seen as many events as these."""
    deadline = time.monotonic() + PATIENCE_S
    while any(len(service.seen) < len(events) for service in services.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    seen = {name: sorted(service.seen) for name, service in services.items()}  # the listeners run on several threads
    assert seen == dict.fromkeys(services, events), seen
    return seen


def main() -> None:
    with Wire(BROKER) as wire:
        wire.create_topic(TOPIC, 2)
    producer = Producer("e03")
    producer.set_namesrv_addr(NAMES)
    producer.start()
    services = {name: Service(name) for name in ("stock", "mail")}
    events = ["order 1 paid", "order 2 paid"]
    send(producer, *events)
    print(f"two groups: {wait(services, events)}")

    services["points"] = Service("points")
    events.append("order 3 paid")
    send(producer, events[-1])
    print(f"one more:   {wait(services, events)}")
    for service in services.values():
        service.close()
    producer.shutdown()


if __name__ == "__main__":
    main()
