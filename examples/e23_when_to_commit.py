"""E23, Kafka: commit before the work loses, commit after it repeats; auto-commit; threads fed from memory.

Ten messages each time. The first consumer processes four and stops as if it had failed; a second one of the same group
continues from the committed offset. The partition is assigned by hand, so that no case waits for a rebalance. Needs
TRIMQ_KAFKA, the broker's address."""

from __future__ import annotations

import os
import queue
import threading
import time
import uuid
from collections.abc import Callable

from confluent_kafka import OFFSET_STORED, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = os.environ["TRIMQ_KAFKA"]
TOPIC = f"e23-{uuid.uuid4().hex[:8]}"
COUNT = 10
WORKED = 4  # messages that the first consumer has processed when it fails
PATIENCE_S = 20


def send_all() -> None:
    admin = AdminClient({"bootstrap.servers": BROKER})
    for made in admin.create_topics([NewTopic(TOPIC, 1)]).values():
        made.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": BROKER})
    for number in range(COUNT):
        producer.produce(TOPIC, str(number).encode())
    if unanswered := producer.flush(PATIENCE_S):
        raise TimeoutError(f"{unanswered} messages were not answered")


def start(group: str, **settings: object) -> Consumer:
    """Returns a consumer that starts at the committed offset of its group, or at the earliest."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    defaults = {"bootstrap.servers": BROKER, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**defaults, "group.id": f"{TOPIC}-{group}", **named})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_STORED)])
    return consumer


def take(consumer: Consumer, until: int = COUNT) -> list[Message]:
    """Returns the messages from the position of the consumer up to number `until`."""
    messages: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while not messages or messages[-1].offset() < until - 1:
        if time.monotonic() > deadline:
            raise TimeoutError(f"got only {len(messages)} messages")
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            raise RuntimeError(message.error().str())
        messages.append(message)
    return messages


def committed(consumer: Consumer) -> int:
    """Returns the group's committed offset; 0 if there is none, since all start from the earliest."""
    return max(consumer.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)[0].offset, 0)


def up_to(offset: int) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, 0, offset)]


def commit_before_work(done: list[int]) -> None:
    consumer = start("before")
    messages = take(consumer)
    consumer.commit(offsets=up_to(COUNT), asynchronous=False)
    done.extend(message.offset() for message in messages[:WORKED])
    consumer.close()


def commit_after_work(done: list[int]) -> None:
    consumer = start("after")
    done.extend(message.offset() for message in take(consumer)[:WORKED])
    consumer.close()  # it fails before all is processed and committed


def auto_commit(done: list[int]) -> None:
    """The timer commits delivered messages, processed or not."""
    consumer = start("auto", enable_auto_commit=True, auto_commit_interval_ms=100)
    done.extend(message.offset() for message in take(consumer)[:WORKED])
    await_committed(consumer, COUNT)
    consumer.close()


def auto_commit_of_work(done: list[int]) -> None:
    """The timer commits only messages that the program has marked as processed."""
    timer = {"enable_auto_commit": True, "auto_commit_interval_ms": 100, "enable_auto_offset_store": False}
    consumer = start("stored", **timer)
    for message in take(consumer)[:WORKED]:
        done.append(message.offset())
        consumer.store_offsets(message)
    await_committed(consumer, WORKED)
    consumer.close()


def await_committed(consumer: Consumer, offset: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while committed(consumer) < offset:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the timer did not commit {offset}")
        time.sleep(0.02)


def threads_fed_from_memory(done: list[int]) -> None:
    """Two threads work from queues in memory; one is stuck on message 2, so nothing after it may be committed."""
    consumer = start("threads")
    stuck = threading.Event()
    inboxes: list[queue.Queue[Message | None]] = [queue.Queue(), queue.Queue()]

    def work(inbox: queue.Queue[Message | None]) -> None:
        while (message := inbox.get()) is not None:
            if message.offset() == 2:
                stuck.set()
                return
            done.append(message.offset())

    workers = [threading.Thread(target=work, args=(inbox,)) for inbox in inboxes]
    for worker in workers:
        worker.start()
    for message in take(consumer):
        inboxes[message.offset() % 2].put(message)
    for inbox in inboxes:
        inbox.put(None)
    for worker in workers:
        worker.join()
    assert stuck.is_set()
    first_undone = next(number for number in range(COUNT) if number not in done)
    consumer.commit(offsets=up_to(first_undone), asynchronous=False)
    consumer.close()


def finish(group: str, done: list[int]) -> int:
    """Processes all messages from the committed offset on with a second consumer. Returns that offset."""
    consumer = start(group)
    try:
        offset = committed(consumer)
        if offset < COUNT:
            done.extend(message.offset() for message in take(consumer))
        return offset
    finally:
        consumer.close()


def main() -> None:
    send_all()
    first, rest = list(range(WORKED)), list(range(WORKED, COUNT))
    cases: list[tuple[str, Callable[[list[int]], None], list[int], list[int]]] = [  # lost messages, repeated messages
        ("before", commit_before_work, rest, []),
        ("after", commit_after_work, [], first),
        ("auto", auto_commit, rest, []),
        ("stored", auto_commit_of_work, [], []),
        ("threads", threads_fed_from_memory, [], [3, 5, 7, 9]),
    ]
    for group, fail, expected_lost, expected_repeated in cases:
        done: list[int] = []
        fail(done)
        offset = finish(group, done)
        lost = [number for number in range(COUNT) if number not in done]
        repeated = [number for number in range(COUNT) if done.count(number) > 1]
        print(f"{fail.__name__:<24} committed {offset:>2}, lost {lost}, repeated {repeated}")
        assert (lost, repeated) == (expected_lost, expected_repeated), group


if __name__ == "__main__":
    main()
