"""E8, RocketMQ: send and wait for the answer, send with a callback, send one way.

Waiting costs a round trip for each message; a callback reports each message while others are in flight; one way has no
response, so that only reading back shows which messages arrived. Uses the C++ client. Needs TRIMQ_ROCKETMQ and
TRIMQ_ROCKETMQ_BROKER."""

from __future__ import annotations

import os
import threading
import time
import uuid

from rocketmq.client import Message, Producer, SendResult, SendStatus

from tools.rocketmq_wire import Wire

NAMES, BROKER = os.environ["TRIMQ_ROCKETMQ"], os.environ["TRIMQ_ROCKETMQ_BROKER"]
TOPIC = f"e08-{uuid.uuid4().hex[:8]}"
COUNT = 100
PATIENCE_S = 20


def message(kind: str, number: int) -> Message:
    made = Message(TOPIC)
    made.set_body(f"{kind} {number}")
    return made


def send_and_wait(producer: Producer) -> list[int]:
    """Each message is on the broker's disk before the next is sent. Returns their offsets."""
    results = [producer.send_sync(message("waited", number)) for number in range(COUNT)]
    assert all(result.status is SendStatus.OK for result in results), results
    return [result.offset for result in results]


def send_with_callback(producer: Producer) -> int:
    """All messages are in flight at once; a callback is called for each. Returns the number of those that arrived."""
    answered = threading.Semaphore(0)
    failures: list[Exception] = []

    def sent(result: SendResult) -> None:
        answered.release()

    def failed(error: Exception) -> None:
        failures.append(error)
        answered.release()

    for number in range(COUNT):
        producer.send_async(message("called", number), sent, failed)
    for number in range(COUNT):
        assert answered.acquire(timeout=PATIENCE_S), f"{COUNT - number} messages were not answered"
    assert not failures, failures
    return COUNT


def send_one_way(producer: Producer) -> None:
    """The broker sends no response: on return a message was sent, no more."""
    for number in range(COUNT):
        producer.send_oneway(message("one way", number))


def read(wire: Wire, count: int) -> list[str]:
    """Returns the messages of the topic once there are `count`."""
    deadline = time.monotonic() + PATIENCE_S
    while len(bodies := wire.bodies(TOPIC)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return [body.decode() for body in bodies]


def main() -> None:
    producer = Producer("e08")
    producer.set_namesrv_addr(NAMES)
    with Wire(BROKER) as wire:
        wire.create_topic(TOPIC, 1)
        producer.start()
        started = time.perf_counter()
        offsets = send_and_wait(producer)
        waited_s = time.perf_counter() - started
        called = send_with_callback(producer)
        called_s = time.perf_counter() - started - waited_s
        send_one_way(producer)
        bodies = read(wire, 3 * COUNT)
    producer.shutdown()

    assert offsets == list(range(COUNT)), offsets
    assert bodies[:COUNT] == [f"waited {number}" for number in range(COUNT)]
    for kind in ("called", "one way"):  # in flight together, they may overtake each other
        assert {body for body in bodies if body.startswith(kind)} == {f"{kind} {number}" for number in range(COUNT)}
    assert len(bodies) == 3 * COUNT, len(bodies)
    print(f"send and wait:      {COUNT} messages in {waited_s * 1000:.0f} ms, offsets {offsets[0]} to {offsets[-1]}")
    print(f"send with callback: {called} messages in {called_s * 1000:.0f} ms, a callback for each")
    print(f"one way:            {COUNT} messages, no answer; all {len(bodies)} messages read back")


if __name__ == "__main__":
    main()
