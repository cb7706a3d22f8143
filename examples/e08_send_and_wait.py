"""E8, Kafka: send and wait for the answer, send with a callback, send one way.

Waiting costs a round trip for each message; a callback reports each message while others are in flight; one way
(`acks=0`) has no response, so that only reading back shows which messages arrived. Needs TRIMQ_KAFKA, the broker's
address."""

from __future__ import annotations

import os
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

BROKER = os.environ["TRIMQ_KAFKA"]
TOPIC = "e08"  # created by the first message
COUNT = 100
PATIENCE_S = 20


def send_and_wait() -> list[int]:
    """Each message is on the broker's disk before the next is sent."""
    producer = Producer({"bootstrap.servers": BROKER, "acks": "all", "linger.ms": 0})
    offsets: list[int] = []
    for number in range(COUNT):
        producer.produce(TOPIC, f"waited {number}".encode(), on_delivery=lambda error, sent: take(offsets, error, sent))
        if producer.flush(PATIENCE_S):
            raise TimeoutError(f"message {number} was not answered")
    return offsets


def send_with_callback() -> list[int]:
    """All messages are in flight at once; the callback is called for each."""
    producer = Producer({"bootstrap.servers": BROKER, "acks": "all"})
    offsets: list[int] = []
    for number in range(COUNT):
        producer.produce(TOPIC, f"called {number}".encode(), on_delivery=lambda error, sent: take(offsets, error, sent))
        producer.poll(0)
    if unanswered := producer.flush(PATIENCE_S):
        raise TimeoutError(f"{unanswered} messages were not answered")
    return offsets


def send_one_way() -> None:
    """The broker sends no response: a flush only means that the bytes were sent."""
    producer = Producer({"bootstrap.servers": BROKER, "acks": 0})
    for number in range(COUNT):
        producer.produce(TOPIC, f"one way {number}".encode())
    producer.flush(PATIENCE_S)


def take(offsets: list[int], error: KafkaError | None, sent: Message) -> None:
    if error is not None:
        raise RuntimeError(error.str())
    offsets.append(sent.offset())


def read(count: int) -> list[str]:
    """Returns the first `count` messages of the topic."""
    consumer = Consumer({"bootstrap.servers": BROKER, "group.id": "e08", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        bodies: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(bodies) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(bodies), timeout=1):
                if message.error() is not None:
                    raise RuntimeError(message.error().str())
                bodies.append(message.value().decode())
        return bodies
    finally:
        consumer.close()


def main() -> None:
    started = time.perf_counter()
    waited = send_and_wait()
    waited_s = time.perf_counter() - started
    called = send_with_callback()
    called_s = time.perf_counter() - started - waited_s
    send_one_way()
    bodies = read(3 * COUNT)

    assert waited == list(range(COUNT)), waited
    assert called == list(range(COUNT, 2 * COUNT)), called
    kinds = ("waited", "called", "one way")
    assert bodies == [f"{kind} {number}" for kind in kinds for number in range(COUNT)], bodies
    print(f"send and wait:      {COUNT} messages in {waited_s * 1000:.0f} ms, offsets {waited[0]} to {waited[-1]}")
    print(f"send with callback: {COUNT} messages in {called_s * 1000:.0f} ms, offsets {called[0]} to {called[-1]}")
    print(f"one way:            {COUNT} messages, no answer; all {len(bodies)} messages read back in order")


if __name__ == "__main__":
    main()
