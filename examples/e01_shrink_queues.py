"""E1, RocketMQ: a topic shrinks from 16 queues to 8 without loss: first writing to the others stops, then they are
drained.

A topic has a number of queues to write to and one to read from. The first is reduced at once; the second only when the
last 8 queues are empty, because later their messages could not be read. Needs TRIMQ_ROCKETMQ (name server), and
TRIMQ_ROCKETMQ_BROKER, where topics are changed."""

from __future__ import annotations

import os
import uuid
from collections import Counter

from rocketmq.client import Message, Producer, PullConsumer

from tools.rocketmq_wire import Wire

NAMES, BROKER = os.environ["TRIMQ_ROCKETMQ"], os.environ["TRIMQ_ROCKETMQ_BROKER"]
TOPIC = f"e01-{uuid.uuid4().hex[:8]}"


def send(first: int, count: int) -> list[str]:
    """Sends with a new producer, which fetches the current queues; a running one does so every 30 s."""
    producer = Producer(TOPIC)
    producer.set_namesrv_addr(NAMES)
    producer.start()
    bodies = [str(number) for number in range(first, first + count)]
    for body in bodies:
        message = Message(TOPIC)
        message.set_body(body)
        producer.send_sync(message)
    producer.shutdown()
    return bodies


def pull() -> list[tuple[str, int]]:
    """Returns body and queue of each message that this program has not pulled yet."""
    consumer = PullConsumer(TOPIC)
    consumer.set_namesrv_addr(NAMES)
    consumer.start()
    found = [(message.body.decode(), message.queue_id) for message in consumer.pull(TOPIC)]
    consumer.shutdown()
    return found


def main() -> None:
    with Wire(BROKER) as wire:
        wire.create_topic(TOPIC, 16)
        sent = send(0, 160)
        found = pull()
        print(f"16 and 16: {len(sent)} sent to {len(Counter(queue for _, queue in found))} queues")
        assert sorted({queue for _, queue in found}) == list(range(16))

        sent += send(160, 32)  # a backlog, in all queues
        wire.create_topic(TOPIC, 8, to_read=16)
        sent += send(192, 64)
        more = pull()
        fresh = [queue for body, queue in more if int(body) >= 192]
        print(f"write to 8: new messages are in queues {min(fresh)} to {max(fresh)}; the backlog is drained")
        assert max(fresh) == 7
        assert {queue for body, queue in more if int(body) < 192} == set(range(16))
        found += more

        wire.create_topic(TOPIC, 8)
        sent += send(256, 64)
        found += pull()
        times = Counter(body for body, _ in found)
        print(f"8 and 8:    {len(sent)} sent, {len(times)} read, {max(times.values())} time each")
        assert sorted(times, key=int) == sent
        assert max(times.values()) == 1


if __name__ == "__main__":
    main()
