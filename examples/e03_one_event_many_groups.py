"""E3, Kafka: one event reaches several groups; one more group is added and the producer does not change.

Each group has its own offsets, so no group takes an event away from another. A group that is added later and starts
from the earliest offset also gets the events from before. Needs TRIMQ_KAFKA, the broker's address."""

from __future__ import annotations

import os
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = os.environ["TRIMQ_KAFKA"]
TOPIC = f"e03-{uuid.uuid4().hex[:8]}"
PATIENCE_S = 20


def create_topic() -> None:
    # A group that subscribes to a missing topic finds it only at its next metadata refresh.
    admin = AdminClient({"bootstrap.servers": BROKER})
    for made in admin.create_topics([NewTopic(TOPIC, 1)]).values():
        made.result(PATIENCE_S)


def send(producer: Producer, *events: str) -> None:
    for event in events:
        producer.produce(TOPIC, event.encode())
    if unanswered := producer.flush(PATIENCE_S):
        raise TimeoutError(f"{unanswered} events were not answered")


def join(service: str) -> Consumer:
    """Returns a consumer in the service's own group."""
    settings = {
        "bootstrap.servers": BROKER,
        "group.id": f"{TOPIC}-{service}",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    return consumer


def read(services: dict[str, Consumer], seen: dict[str, list[str]], count: int) -> None:
    """Polls every service in turn until each has seen `count` events."""
    deadline = time.monotonic() + PATIENCE_S
    while any(len(seen[service]) < count for service in services):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {count} events each, saw {seen}")
        for service, consumer in services.items():
            message = consumer.poll(0.02)
            if message is None:
                continue
            if message.error() is not None:
                raise RuntimeError(message.error().str())
            seen[service].append(message.value().decode())


def main() -> None:
    create_topic()
    producer = Producer({"bootstrap.servers": BROKER})
    services = {service: join(service) for service in ("stock", "mail")}
    seen: dict[str, list[str]] = {service: [] for service in services}
    try:
        send(producer, "order 1 paid", "order 2 paid")
        read(services, seen, 2)
        print(f"two groups: {seen}")
        everything = ["order 1 paid", "order 2 paid"]
        assert seen == dict.fromkeys(("stock", "mail"), everything), seen

        services["points"], seen["points"] = join("points"), []
        send(producer, "order 3 paid")
        read(services, seen, 3)
        print(f"one more:   {seen}")
        everything.append("order 3 paid")
        assert seen == dict.fromkeys(("stock", "mail", "points"), everything), seen
    finally:
        for consumer in services.values():
            consumer.close()


if __name__ == "__main__":
    main()
