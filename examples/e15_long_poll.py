"""E15, Kafka: a fetch is held for up to 15 s; a message sent meanwhile arrives within milliseconds.

The consumer allows the broker to hold its fetch, so that waiting costs few requests and adds no delay. The client's own
statistics count the fetches. Needs TRIMQ_KAFKA, the broker's address."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = os.environ["TRIMQ_KAFKA"]
TOPIC = f"e15-{uuid.uuid4().hex[:8]}"
HOLD_S = 15
SENT_AFTER_S = 3
PATIENCE_S = 20


def create_topic() -> None:
    admin = AdminClient({"bootstrap.servers": BROKER})
    for made in admin.create_topics([NewTopic(TOPIC, 1)]).values():
        made.result(PATIENCE_S)


def count_fetches(statistics: str) -> int:
    """Returns the number of fetches that the client has sent so far, to all brokers."""
    return sum(broker["req"].get("Fetch", 0) for broker in json.loads(statistics)["brokers"].values())


def wait_for_message(fetches: list[int]) -> tuple[float, float]:
    """Returns the send time written in the message, and its arrival. `fetches` gets the count of each half second."""
    settings = {
        "bootstrap.servers": BROKER,
        "group.id": TOPIC,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": HOLD_S * 1000,
        "statistics.interval.ms": 500,
        "stats_cb": lambda statistics: fetches.append(count_fetches(statistics)),
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(PATIENCE_S)
        arrived = time.perf_counter()
        if message is None:
            raise TimeoutError(f"no message in {PATIENCE_S} s")
        if message.error() is not None:
            raise RuntimeError(message.error().str())
        return float(message.value()), arrived
    finally:
        consumer.close()


def main() -> None:
    create_topic()
    producer = Producer({"bootstrap.servers": BROKER, "linger.ms": 0})
    producer.list_topics(TOPIC, PATIENCE_S)  # connects before the measurement starts

    def send() -> None:
        producer.produce(TOPIC, repr(time.perf_counter()).encode())
        producer.flush(PATIENCE_S)

    timer = threading.Timer(SENT_AFTER_S, send)
    started = time.perf_counter()
    timer.start()
    fetches: list[int] = []
    sent, arrived = wait_for_message(fetches)
    timer.join()

    print(f"the fetch may be held {HOLD_S} s; the message was sent after {sent - started:.1f} s")
    print(f"it arrived {(arrived - sent) * 1000:.1f} ms later; fetches sent by each half second: {fetches}")
    assert arrived - sent < 1, arrived - sent
    assert fetches, "the client gave no statistics"
    assert fetches[-1] <= 2, f"the broker did not hold the fetch: {fetches}"


if __name__ == "__main__":
    main()
