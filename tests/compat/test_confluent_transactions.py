"""confluent-kafka (librdkafka) with transactions, against a broker process: commit, abort, fencing, and exactly-once
consume-transform-produce while the broker is killed with -9."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from no_rocketmq import NO_ROCKETMQ_FLAGS

from tools.broker import COMMAND, running

PATIENCE_S = 20
KILLS = 20
MOVED_BETWEEN_KILLS = 50
MESSAGES = 1_500

# librdkafka 2.16 forgets its brokers when all are down, but not the group's coordinator, and would wait for it for
# ever. Its reconnect delay grows up to ten seconds.
REMEMBERING = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


def transactional(address: str, name: str, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0, **settings})
    producer.init_transactions(PATIENCE_S)
    return producer


def reader(address: str, isolation: str, group: str = "readers", **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
            **settings,
        }
    )


def read_all(address: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All records up to the end that is visible to this isolation level."""
    consumer = reader(address, isolation)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    bodies: list[bytes] = []
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "the reader hangs"
            if message.error() is None:
                bodies.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return bodies
            else:
                raise KafkaException(message.error())
    finally:
        consumer.close()


def send(producer: Producer, topic: str, *bodies: bytes) -> None:
    for body in bodies:
        producer.produce(topic, body, partition=0)


def test_committed_records_are_read_and_aborted_ones_are_not(broker: str) -> None:
    producer = transactional(broker, "both-ways")
    for number in range(10):
        producer.begin_transaction()
        send(producer, "both-ways", b"%d a" % number, b"%d b" % number)
        if number % 3 == 0:
            assert producer.flush(PATIENCE_S) == 0
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    kept = [b"%d %s" % (number, letter) for number in range(10) if number % 3 for letter in (b"a", b"b")]
    assert read_all(broker, "both-ways") == kept
    everything = [b"%d %s" % (number, letter) for number in range(10) for letter in (b"a", b"b")]
    assert read_all(broker, "both-ways", "read_uncommitted") == everything


def test_an_open_transaction_is_not_read_and_its_commit_wakes_a_reader(broker: str) -> None:
    producer = transactional(broker, "open")
    producer.begin_transaction()
    send(producer, "open", b"one")
    assert producer.flush(PATIENCE_S) == 0
    assert read_all(broker, "open") == []
    consumer = reader(broker, "read_committed")
    consumer.assign([TopicPartition("open", 0, OFFSET_BEGINNING)])
    try:
        first = consumer.poll(PATIENCE_S)
        assert first is not None
        assert first.error().code() == KafkaError._PARTITION_EOF
        producer.commit_transaction(PATIENCE_S)
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"one"
    finally:
        consumer.close()


def test_a_fenced_producer_cannot_commit(broker: str) -> None:
    old = transactional(broker, "fenced")
    old.begin_transaction()
    send(old, "fenced", b"lost")
    assert old.flush(PATIENCE_S) == 0
    new = transactional(broker, "fenced")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    new.begin_transaction()
    send(new, "fenced", b"kept")
    new.commit_transaction(PATIENCE_S)
    assert read_all(broker, "fenced") == [b"kept"]


def test_offsets_are_committed_with_the_transaction_or_not_at_all(broker: str) -> None:
    producer = transactional(broker, "offsets")
    consumer = reader(broker, "read_committed", "offsets")
    try:
        for is_commit, offset in ((False, 5), (True, 7)):
            producer.begin_transaction()
            send(producer, "offsets", b"x")
            places = [TopicPartition("offsets", 0, offset)]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE_S)
            if is_commit:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
            (found,) = consumer.committed([TopicPartition("offsets", 0)], PATIENCE_S)
            assert found.offset == (7 if is_commit else -1001)
    finally:
        consumer.close()


# -- exactly once


class KilledBroker:
    """Broker process that is killed and restarted on the same folder and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> None:
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        flags = ["--kafka-listen", self.address, "--amqp-listen", "off", "--http-listen", "off", *NO_ROCKETMQ_FLAGS]
        flags += ["--data-dir", str(self._folder / "data"), "--ready-file", str(ready)]
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, "serve", *flags], stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while not ready.exists():
            assert self._process.poll() is None, (self._folder / "broker.log").read_text()[-3000:]
            assert time.monotonic() < deadline, "the broker was not ready in time"
            time.sleep(0.02)
        self.address = json.loads(ready.read_text())["kafka"]

    def kill(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Mover(threading.Thread):
    """Consume, transform, produce: offsets and output are committed together."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.moved = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while self.moved < MESSAGES:
                self._move()
        except BaseException as failure:
            self.failure = failure

    def _move(self) -> None:
        """Runs until everything is moved, or until an error: then it restarts from the committed offsets."""
        consumer = reader(self._address, "read_committed", "movers", **REMEMBERING)
        try:
            producer = transactional(self._address, "mover", **REMEMBERING)
            (place,) = consumer.committed([TopicPartition("source", 0)], PATIENCE_S)
            self.moved = max(place.offset, 0)
            consumer.assign([TopicPartition("source", 0, self.moved)])
            while self.moved < MESSAGES:
                messages = [found for found in consumer.consume(4, 1) if found.error() is None]
                if messages:
                    self._move_together(producer, consumer, messages)
        except KafkaException:
            pass
        finally:
            consumer.close()

    def _move_together(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        producer.begin_transaction()
        for message in messages:
            producer.produce("target", b"moved " + message.value(), partition=0)
        next_offset = messages[-1].offset() + 1
        places = [TopicPartition("source", 0, next_offset)]
        metadata = consumer.consumer_group_metadata()
        persist(lambda: producer.send_offsets_to_transaction(places, metadata, PATIENCE_S))
        persist(lambda: producer.commit_transaction(PATIENCE_S))
        self.moved = next_offset


def persist(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def await_progress(mover: Mover, count: int) -> None:
    """Waits until the mover has made progress, so that the kill interrupts it."""
    goal = mover.moved + count
    assert goal < MESSAGES, "everything is moved before the last kill"
    deadline = time.monotonic() + 2 * PATIENCE_S
    while mover.moved < goal:
        assert mover.is_alive(), mover.failure
        assert time.monotonic() < deadline, f"the mover hangs at {mover.moved}"
        time.sleep(0.001)


@pytest.mark.timeout(300)
def test_records_are_moved_exactly_once_while_the_broker_is_killed(tmp_path: Path) -> None:
    broker = KilledBroker(tmp_path)
    broker.start()
    try:
        source = Producer({"bootstrap.servers": broker.address, "log_level": 0})
        send(source, "source", *(b"%d" % number for number in range(MESSAGES)))
        assert source.flush(PATIENCE_S) == 0
        mover = Mover(broker.address)
        mover.start()
        for _ in range(KILLS):
            await_progress(mover, random.randint(1, MOVED_BETWEEN_KILLS))
            time.sleep(random.uniform(0, 0.01))  # the exact moment of the kill varies
            broker.kill()
            broker.start()
        mover.join(3 * PATIENCE_S)
        assert not mover.is_alive(), f"the mover hangs at {mover.moved}"
        assert mover.failure is None, mover.failure
        moved = read_all(broker.address, "target")
        assert Counter(moved) == Counter(b"moved %d" % number for number in range(MESSAGES))
        assert moved == [b"moved %d" % number for number in range(MESSAGES)]
    finally:
        broker.kill()
