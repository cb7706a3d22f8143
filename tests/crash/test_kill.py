"""A real broker process under load, killed with -9 at random moments: nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from no_rocketmq import NO_ROCKETMQ_FLAGS

from tools.broker import COMMAND

ROUNDS = 20
PARTITIONS = 3
PATIENCE_S = 30


class Broker:
    """A process that is started repeatedly on the same folder and port."""

    def __init__(self, folder: Path, flush: str) -> None:
        self._folder = folder
        self._flush = flush
        self._process: subprocess.Popen[bytes] | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> None:
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        flags = ["--kafka-listen", self.address, "--amqp-listen", "off", "--http-listen", "off", "--flush", self._flush]
        flags += NO_ROCKETMQ_FLAGS
        flags += ["--kafka-num-partitions", str(PARTITIONS), "--storage-segment-bytes", "200000"]
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


class Load:
    """Producers that send numbered messages, and record the acknowledged ones with their offsets."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "linger.ms": 2,
                "acks": "all",
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[KafkaError] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            body = b"%08d" % self.sent + os.urandom(random.randrange(2000))
            try:
                self._producer.produce(self._topic, body, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
                self.sent += 1
            except BufferError:
                pass
            self._producer.poll(0.001 if self.sent % 50 == 0 else 0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value()

    def wait_for_more(self, count: int) -> None:
        """Waits until `count` more messages are acknowledged, however long that takes on this machine."""
        wanted, deadline = len(self.acknowledged) + count, time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {wanted} acknowledged"
            time.sleep(0.001)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0, "some messages were never answered"


def read_all(address: str, topic: str, ends: dict[int, int]) -> dict[tuple[int, int], bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
    found: dict[tuple[int, int], bytes] = {}
    reached: dict[int, int] = defaultdict(lambda: -1)
    try:
        while any(reached[partition] < end - 1 for partition, end in ends.items()):
            messages = consumer.consume(5000, PATIENCE_S)
            assert messages, f"the consumer stopped at {dict(reached)} before {ends}"
            for message in messages:
                assert message.error() is None, message.error()
                assert message.offset() == reached[message.partition()] + 1, "offsets are not dense"
                reached[message.partition()] = message.offset()
                found[message.partition(), message.offset()] = message.value()
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path, flush: str) -> None:
    """With async too: a kill keeps the page cache; only a power cut would lose it."""
    rounds = ROUNDS if flush == "sync" else ROUNDS // 4
    broker = Broker(tmp_path, flush)
    broker.start()
    try:
        with Load(broker.address, "orders") as load:
            for _ in range(rounds):
                load.wait_for_more(random.randrange(5000))  # a random moment for the kill
                time.sleep(random.uniform(0, 0.02))
                broker.kill()
                broker.start()
        assert load.failed == []
        assert len(load.acknowledged) > 100 * rounds
        ends = {
            partition: 1 + max(offset for at, offset in load.acknowledged if at == partition)
            for partition in range(PARTITIONS)
        }
        found = read_all(broker.address, "orders", ends)
        lost = {place for place, body in load.acknowledged.items() if found.get(place) != body}
        assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged messages are lost or changed"
    finally:
        broker.kill()
