"""Python calls of the broker for one native message on eight paths. They are part of its speed: a change of a number
needs a reason in the commit."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from protocols.amqp.desk import PERSISTENT
from protocols.amqp.desk import Desk as AmqpDesk
from protocols.kafka.desk import Desk as KafkaDesk
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk
from protocols.rocketmq.rocketmq_desk import Desk as RocketMQDesk
from protocols.rocketmq.rocketmq_desk import receive, request

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.rocketmq_unit.batch_body import BatchEntry, write_batch
from trimq.model import Record
from trimq.protocols.amqp import methods
from trimq.protocols.rocketmq.grpc.wire import wire

Step = Callable[[int], object]
"""Handles this many messages."""


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """Counts calls of named functions of the broker. Comprehensions are left out: some Python versions inline them."""
    count: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if "/src/trimq/" in code.co_filename and not code.co_name.startswith("<"):
                count[code.co_qualname] += 1

    gc.collect()
    gc.disable()  # a collection would call finalizers of objects that other tests left
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def kafka_produce() -> Step:
    desk = KafkaDesk()
    desk.create("t")
    batch = bytes(from_records([Record(b"hello", timestamp_ms=1)]))

    def step(count: int) -> None:
        for _ in range(count):
            assert desk.produce("t", batch).error_code == 0

    return step


def kafka_fetch() -> Step:
    desk = KafkaDesk()
    desk.create("t")
    batch = bytes(from_records([Record(b"hello", timestamp_ms=1)]))
    for _ in range(60):
        desk.produce("t", batch)

    def step(count: int) -> None:
        for _ in range(count):
            (topic,) = desk.fetch("t", 59).responses
            assert topic.partitions[0].records

    return step


def rocketmq_desk() -> RocketMQDesk:
    desk = RocketMQDesk()
    fields = {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    assert desk.broker.ask(17, fields).code == 0
    return desk


def send_single() -> Step:
    desk = rocketmq_desk()

    def step(count: int) -> None:
        for number in range(count):
            assert desk.broker.send("t", properties=f"UNIQ_KEY\x01{number:032d}\x02").code == 0

    return step


def send_run() -> Step:
    desk = rocketmq_desk()

    def step(count: int) -> None:
        frames = b"".join(
            request(310, {**_SEND, "i": f"UNIQ_KEY\x01{number:032d}\x02"}, b"hello", 0, 479) for number in range(count)
        )
        conversation = desk.broker.conversation
        for _ in receive(conversation, frames):
            while (event := conversation.next_event()) is not None:
                conversation.handle(event)
        desk.settle()

    return step


def send_whole_batch() -> Step:
    desk = rocketmq_desk()

    def step(count: int) -> None:
        entries = [BatchEntry(0, b"hello", f"UNIQ_KEY\x01{number:032d}\x02".encode()) for number in range(count)]
        assert desk.broker.ask(320, {**_SEND, "i": "", "m": True}, write_batch(entries)).code == 0

    return step


_SEND = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0}


def pull() -> Step:
    desk = rocketmq_desk()
    for _ in range(60):
        desk.broker.send("t")

    def step(count: int) -> None:
        for offset in range(count):
            assert desk.broker.pull("t", offset, maxMsgNums=1).code == 0

    return step


def grpc_send() -> Step:
    desk = GrpcDesk()
    desk.make_topic("t")
    phone = desk.client()
    phone.produce("t")

    def step(count: int) -> None:
        for number in range(count):
            properties = wire.SystemProperties(message_id=f"01{number:032X}", message_type=1)
            message = wire.Message(topic=wire.Resource(name="t"), system_properties=properties, body=b"hello")
            assert phone.send(message).status.code == 20_000

    return step


def amqp_publish() -> Step:
    desk = AmqpDesk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())

    def step(count: int) -> None:
        for _ in range(count):
            client.publish(1, "q", b"hello", header=PERSISTENT)
            desk.settle()
        client.heard()

    return step


def amqp_deliver_and_ack() -> Step:
    desk = AmqpDesk()
    client, producer = desk.client(1), desk.client(1)
    client.declare(1, "q")
    for _ in range(60):
        producer.publish(1, "q", b"hello", header=PERSISTENT)
    desk.settle()
    client.tell(1, methods.BasicQos(prefetch_count=1), methods.BasicConsume(queue="q", consumer_tag="c"))
    desk.settle()
    client.heard()
    tags = iter(range(1, 100))

    def step(count: int) -> None:
        for _ in range(count):
            client.tell(1, methods.BasicAck(delivery_tag=next(tags)))
            desk.settle()
        assert len(client.bodies()) == count

    return step


# For 20 messages more.
CALLS = {
    kafka_produce: 1960,
    kafka_fetch: 2320,
    send_single: 2022,
    send_run: 100,
    send_whole_batch: 120,
    pull: 1760,
    grpc_send: 2596,
    amqp_publish: 2960,
    amqp_deliver_and_ack: 2820,
}


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.__name__)
def test_a_native_message_costs_as_many_calls_as_before(path: Callable[[], Step]) -> None:
    step = path()
    step(10)
    few, many = calls_of(lambda: step(5)), calls_of(lambda: step(25))
    more = {name: many[name] - few[name] for name in many.keys() | few.keys()}
    # Some calls, such as those that preallocate a file, come once in many messages: half a call per message counts.
    uneven = {name: number for name, number in more.items() if number % 20}
    assert abs(sum(more.values()) - CALLS[path]) < 10, uneven
