"""E19, Kafka: A and B in two partitions, committed together, then aborted together, read at both isolation levels.

A reader of committed messages sees both or none; a reader of uncommitted ones sees them at once, and still after the
abort, because an abort is a marker in the log and removes nothing. Needs TRIMQ_KAFKA, the broker's address."""

from __future__ import annotations

import os
import time
import uuid

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = os.environ["TRIMQ_KAFKA"]
TOPIC = f"e19-{uuid.uuid4().hex[:8]}"
PARTITIONS = (0, 1)
PATIENCE_S = 20


def create_topic() -> None:
    admin = AdminClient({"bootstrap.servers": BROKER})
    for made in admin.create_topics([NewTopic(TOPIC, len(PARTITIONS))]).values():
        made.result(PATIENCE_S)


def send_both(producer: Producer, round_name: str) -> None:
    """Sends A to partition 0 and B to partition 1. On return both are at the broker; the transaction stays open."""
    producer.begin_transaction()
    for partition, body in zip(PARTITIONS, "AB", strict=True):
        producer.produce(TOPIC, f"{body} {round_name}".encode(), partition=partition)
    if unanswered := producer.flush(PATIENCE_S):
        raise TimeoutError(f"{unanswered} messages were not answered")


def read(isolation: str) -> list[str]:
    """Returns the messages that a new reader finds up to the end of both partitions, sorted."""
    settings = {
        "bootstrap.servers": BROKER,
        "group.id": TOPIC,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,  # an empty fetch shows the end
        "isolation.level": isolation,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in PARTITIONS])
        bodies: list[str] = []
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(ended) < len(PARTITIONS):
            if time.monotonic() > deadline:
                raise TimeoutError(f"saw the end of partitions {ended} only")
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                bodies.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise RuntimeError(message.error().str())
        return sorted(bodies)
    finally:
        consumer.close()


def expect(moment: str, committed: list[str], uncommitted: list[str]) -> None:
    seen = {isolation: read(isolation) for isolation in ("read_committed", "read_uncommitted")}
    print(f"{moment}: {seen}")
    assert seen == {"read_committed": committed, "read_uncommitted": uncommitted}, (moment, seen)


def main() -> None:
    create_topic()
    producer = Producer({"bootstrap.servers": BROKER, "transactional.id": TOPIC})
    producer.init_transactions(PATIENCE_S)

    send_both(producer, "first")
    expect("first open      ", [], ["A first", "B first"])
    producer.commit_transaction(PATIENCE_S)
    expect("first committed ", ["A first", "B first"], ["A first", "B first"])

    everything = ["A first", "A second", "B first", "B second"]
    send_both(producer, "second")
    expect("second open     ", ["A first", "B first"], everything)
    producer.abort_transaction(PATIENCE_S)
    expect("second aborted  ", ["A first", "B first"], everything)


if __name__ == "__main__":
    main()
