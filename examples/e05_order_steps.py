"""E5, RocketMQ and Kafka: the steps of each order arrive in order, because all of them go to one queue.

RocketMQ: the producer selects the queue by the order's number, and the consumer processes the messages of a queue one
after the other. A topic with one queue keeps the order of all events. Kafka: the key selects the partition. Needs
TRIMQ_ROCKETMQ, TRIMQ_ROCKETMQ_BROKER and TRIMQ_KAFKA."""

from __future__ import annotations

import os
import threading
import time
import uuid

from confluent_kafka import Consumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from rocketmq.client import Message, Producer, PushConsumer, RecvMessage

from tools.rocketmq_wire import Wire

NAMES, BROKER, KAFKA = (os.environ[f"TRIMQ_{name}"] for name in ("ROCKETMQ", "ROCKETMQ_BROKER", "KAFKA"))
RUN = uuid.uuid4().hex[:8]
STEPS = ("made", "paid", "packed", "sent")
ORDERS = range(6)
EVENTS = [(order, step) for step in STEPS for order in ORDERS]  # interleaved: all orders at the same time
PATIENCE_S = 30


def send(topic: str) -> None:
    producer = Producer(topic)
    producer.set_namesrv_addr(NAMES)
    producer.start()
    for order, step in EVENTS:
        message = Message(topic)
        message.set_body(f"{order} {step}")
        producer.send_orderly(message, order)  # the queue is order % queues by default; a selector may choose another
    producer.shutdown()


def consume(topic: str) -> list[tuple[int, str]]:
    """Returns all events in the order of an orderly listener."""
    seen: list[tuple[int, str]] = []
    everything = threading.Event()

    def take(message: RecvMessage) -> None:
        order, step = message.body.decode().split()
        seen.append((int(order), step))
        if len(seen) >= len(EVENTS):
            everything.set()

    consumer = PushConsumer(topic, orderly=True)
    consumer.set_namesrv_addr(NAMES)
    consumer.subscribe(topic, take)
    consumer.start()
    is_complete = everything.wait(PATIENCE_S)
    consumer.shutdown()
    assert is_complete, seen
    return seen


def through_kafka(topic: str) -> list[tuple[int, str]]:
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for made in admin.create_topics([NewTopic(topic, 4)]).values():
        made.result(PATIENCE_S)
    producer = KafkaProducer({"bootstrap.servers": KAFKA})
    for order, step in EVENTS:
        producer.produce(topic, step.encode(), key=str(order).encode())
    producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[tuple[int, str]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < len(EVENTS) and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.append((int(message.key()), message.value().decode()))
    consumer.close()
    return seen


def check(kind: str, seen: list[tuple[int, str]], is_global: bool = False) -> None:
    steps = {order: [step for of, step in seen if of == order] for order in ORDERS}
    print(f"{kind:<22} order 3: {', '.join(steps[3])}; the first events: {seen[:4]}")
    assert all(of_order == list(STEPS) for of_order in steps.values()), steps
    assert not is_global or seen == EVENTS, seen


def main() -> None:
    with Wire(BROKER) as wire:
        wire.create_topic(f"e05-{RUN}", 4)
        wire.create_topic(f"e05-global-{RUN}", 1)
    for topic, is_global in ((f"e05-{RUN}", False), (f"e05-global-{RUN}", True)):
        send(topic)
        check("RocketMQ, 1 queue" if is_global else "RocketMQ, 4 queues", consume(topic), is_global)
    check("Kafka, 4 partitions", through_kafka(f"e05-kafka-{RUN}"))


if __name__ == "__main__":
    main()
