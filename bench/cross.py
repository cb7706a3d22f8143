"""`python -m bench.cross [--quick]`: CPU time of messages that cross from one protocol to another, in the core: reads,
takes with acks, and writes. One JSON line per figure on standard output, then a table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.figures import Figure, at_most
from bench.runner import run
from bench.work_cost import broker_gc_settings
from trimq.core.api.commit_log_messages import OutgoingMessage
from trimq.core.queues.consumers import Consumer, Subscription
from trimq.core.queues.unacked import Delivery
from trimq.core.readership import Readership
from trimq.formats.crossing import rocketmq
from trimq.formats.crossing.neutral import KAFKA, Neutral
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent
from trimq.formats.rocketmq_unit.properties import tags_code, write_properties
from trimq.formats.rocketmq_unit.unit import UnitDraft
from trimq.model import SYSTEM, Record, TopicName
from trimq.testing import Broker

_HOST = bytes(8)
_BATCH = 100
_PREFETCH = 500
_BODY = b"x" * 100
_HEADERS = (("trace", b"7f3a"), ("rmq.TAGS", b"paid"))


def measures(messages: int, rounds: int) -> dict[str, Callable[[], Iterator[Figure]]]:
    reads: dict[str, tuple[str, Callable[[Any, int], float], float]] = {
        "Kafka reads a RocketMQ topic": ("commit-log", _fetch, 8),
        "Kafka reads an AMQP queue": ("queue", _fetch, 10),
        "RocketMQ pulls a Kafka topic": ("partition-log", _pull, 8),
        "AMQP takes and acks of a Kafka topic": ("partition-log", _take, 25),
    }
    found = {
        name: partial(_measure_read, name, home, step, goal, messages, rounds)
        for name, (home, step, goal) in reads.items()
    }
    found["take and ack in a readership"] = partial(_measure_readership, messages, rounds)
    found["Kafka writes to a RocketMQ topic"] = partial(_measure_write, messages, rounds)
    return found


def _measure_read(
    name: str, home: str, step: Callable[[Any, int], float], goal: float, messages: int, rounds: int
) -> Iterator[Figure]:
    with Broker() as broker:
        _fill(broker, home, messages)
        costs = [broker.on_loop(lambda node: step(node, messages)) for _ in range(rounds)]
    yield Figure(name, min(costs), "µs of CPU a message", goal=at_most(goal), note=f"{messages} messages of 100 bytes")


def _fill(broker: Broker, home: str, messages: int) -> None:
    if home == "queue":
        broker.create_queue("t")
    else:
        broker.create_topic("t", 1, home=home)
    if home == "partition-log":
        broker.on_loop(lambda node: _append_batches(node, messages - 1))
        messages = 1
    for _ in range(messages):
        broker.send("t", _BODY, headers=_HEADERS)


def _append_batches(node: Any, messages: int) -> None:
    topic = node.core.topics.get(TopicName("", "t"))
    for begin in range(0, messages, _BATCH):
        records = [Record(_BODY, b"k", _HEADERS, 1)] * min(_BATCH, messages - begin)
        batch = from_records(records)
        node.core.broker.partitions.append(SYSTEM, topic, topic.stream(0), batch, check_sent(batch))


def _timed(work: Callable[[], int], expected: int) -> float:
    begun_ns = time.thread_time_ns()
    count = work()
    cost = (time.thread_time_ns() - begun_ns) / expected / 1000
    assert count == expected, f"{count} messages instead of {expected}"
    return cost


def _fetch(node: Any, messages: int) -> float:
    topic = node.core.broker.foreign_topics.find_batched(SYSTEM, "t", None)

    def work() -> int:
        stream = topic.stream(0)
        offset = stream.start
        while offset < stream.readable_end:
            offset = stream.read(offset, 1 << 20).next_offset
        return int(offset)

    return _timed(work, messages)


def _pull(node: Any, messages: int) -> float:
    topic = node.core.broker.foreign_topics.find_units(SYSTEM, "t", _HOST)

    def work() -> int:
        stream = topic.stream(0)
        count = offset = 0
        while offset < stream.readable_end:
            found = stream.read(offset, 32, 256 * 1024, 32)
            offset, count = found.next_offset, count + len(found.parts)
        return count

    return _timed(work, messages)


class _Receiver:
    can_take = True

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries


def _take(node: Any, messages: int) -> float:
    queues, receiver = node.core.broker.queues, _Receiver()
    group = f"g{time.monotonic_ns()}"  # each round begins with the first message
    subscription = Subscription("c", receiver, _PREFETCH, arguments={"x-group": group})
    consumer = queues.subscribe(SYSTEM, "t", "owner", subscription)

    def work() -> int:
        count = 0
        while count < messages:
            consumer.queue.dispatch()
            taken, receiver.deliveries = receiver.deliveries, []
            queues.ack(taken)
            count += len(taken)
        return count

    try:
        return _timed(work, messages)
    finally:
        queues.unsubscribe(consumer)


def _measure_readership(messages: int, rounds: int) -> Iterator[Figure]:
    def work() -> int:
        reader = Readership(0)
        for begin in range(0, messages, _BATCH):
            taken = reader.take(range(begin, min(begin + _BATCH, messages)), min(begin + _BATCH, messages))
            for each in reversed(taken):  # out of order: the dear case
                reader.settle((each.offset,))
        return reader.start

    cost = min([_timed(work, messages) for _ in range(rounds)])
    yield Figure("take and ack in a readership", cost, "µs of CPU a message", goal=at_most(8), note="acks in reverse")


def _measure_write(messages: int, rounds: int) -> Iterator[Figure]:
    with Broker() as broker:
        broker.create_topic("t", 1, home="commit-log")
        across = min([broker.on_loop(lambda node: _write_across(node, messages)) for _ in range(rounds)])
        native = min([broker.on_loop(lambda node: _write_natively(node, messages)) for _ in range(rounds)])
    note = f"{across:.1f} µs, of which {native:.1f} for the append itself"
    yield Figure("Kafka writes to a RocketMQ topic", across - native, "µs above native", goal=at_most(12), note=note)


def _write_across(node: Any, messages: int) -> float:
    api = node.core.broker.foreign_topics
    topic = api.find_batched(SYSTEM, "t", None)
    batch = from_records([Record(_BODY, b"k", _HEADERS, 1)] * _BATCH)
    header = check_sent(batch)

    def work() -> int:
        for _ in range(0, messages, _BATCH):
            api.append_batch(SYSTEM, topic, 0, batch, header)
        return messages

    return _timed(work, messages)


def _write_natively(node: Any, messages: int) -> float:
    commit_log = node.core.commit_log_service.commit_log
    topic = commit_log.topics.find(SYSTEM, "t")
    neutral = Neutral(_BODY, b"k", (("trace", b"7f3a"),), 1, KAFKA, {"rmq.TAGS": "paid"})
    fields = rocketmq.from_neutral(neutral)
    draft = UnitDraft(topic.raw_name, 0, fields.body, write_properties(fields.properties), 0, 0, 1, _HOST, 0)
    outgoing = [OutgoingMessage(topic, topic.stream(0), draft, tags_code("paid"))] * _BATCH

    def work() -> int:
        for _ in range(0, messages, _BATCH):
            commit_log.messages.append_all(SYSTEM, outgoing, _HOST)
        return messages

    return _timed(work, messages)


def main(words: list[str] | None = None) -> int:
    """Returns 0 even if a goal is missed: the figures depend on the other load of the machine."""
    parser = argparse.ArgumentParser(prog="python -m bench.cross", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check that every figure runs; the values are meaningless")
    chosen = parser.parse_args(words)
    messages, rounds = (200, 1) if chosen.quick else (5000, 7)
    with broker_gc_settings():
        run(measures(messages, rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
