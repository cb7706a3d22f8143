"""A real broker process under AMQP load, killed with -9 at random moments: messages that were confirmed and not
acknowledged are in their queue or dead-lettered; after a clean stop no acknowledged message is delivered again."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from golden.amqp.wire import Closed, Conn
from no_rocketmq import NO_ROCKETMQ_FLAGS

from tools.broker import COMMAND, _await_ready

ROUNDS = 20
BURST = 50
PATIENCE_S = 30
QUEUES = ("classic", "quorum")
DEAD = "dead"


class Broker:
    """A process that is started repeatedly on the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes]
        self.address = ("", 0)

    def start(self) -> None:
        ready, log = self._folder / "ready.json", self._folder / "broker.log"
        ready.unlink(missing_ok=True)
        flags = ["--kafka-listen", "off", "--http-listen", "off", "--amqp-listen", "127.0.0.1:0", *NO_ROCKETMQ_FLAGS]
        flags += ["--storage-queue-segment-bytes", "20000", "--data-dir", str(self._folder / "data")]
        with log.open("ab") as output:
            command = [*COMMAND, "serve", *flags, "--ready-file", str(ready)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        host, _, port = _await_ready(self._process, ready, log)["amqp"].rpartition(":")
        self.address = host, int(port)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)


class ClientRecord:
    """Facts that a client knows from the broker's replies."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.rejected: set[bytes] = set()


class Client:
    """Publishes bursts on channel 1 and waits for their confirms; consumes on channel 2, acknowledges most messages,
    rejects some and leaves the rest unacked."""

    max_confirmed = 1500  # before the broker is killed

    def __init__(self, address: tuple[str, int], record: ClientRecord) -> None:
        self._record = record
        self._connection = Conn(*address, timeout=PATIENCE_S)
        self._unconfirmed: dict[int, bytes] = {}
        self._tag = 0
        for channel in (1, 2):
            self._connection.open(channel)
        self._connection.call(1, "queue.declare", queue=DEAD, durable=True)
        for queue in QUEUES:
            arguments = {"x-queue-type": queue, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
            self._connection.call(1, "queue.declare", queue=queue, durable=True, args=arguments)
        self._connection.call(1, "confirm.select")
        self._connection.call(2, "basic.qos", count=20)

    def consume(self) -> None:
        for queue in QUEUES:
            self._connection.call(2, "basic.consume", queue=queue, tag=queue)

    def publish_burst(self) -> None:
        for _ in range(BURST):
            self._tag += 1
            body = b"%08d" % self._record.sent + bytes(random.randrange(500))
            self._record.sent += 1
            self._unconfirmed[self._tag] = body
            self._connection.publish(1, "", QUEUES[self._tag % 2], body, delivery_mode=2)
        while self._unconfirmed:
            self._receive()

    def _receive(self) -> None:
        queued, self._connection.q = self._connection.q, []
        for method in queued or [self._connection.recv()]:
            assert method is not None, "the broker did not reply in time"
            if method.name == "basic.ack":
                confirmed = [
                    tag for tag in self._unconfirmed if tag == method.dtag or (method.multiple and tag < method.dtag)
                ]
                self._record.confirmed |= {self._unconfirmed.pop(tag) for tag in confirmed}
            elif method.name == "basic.deliver":
                self._settle(method.dtag, method.body)

    def _settle(self, tag: int, body: bytes) -> None:
        rng = random.random()
        if rng < 0.8:
            self._connection.send(2, "basic.ack", dtag=tag)
            self._record.acknowledged.add(body)
        elif rng < 0.9:
            self._connection.send(2, "basic.reject", dtag=tag, requeue=False)
            self._record.rejected.add(body)

    def end(self) -> None:
        self._connection.kill()


def drain(address: tuple[str, int]) -> dict[str, list[bytes]]:
    """Returns all remaining messages, in the order of each queue."""
    return {queue: drain_queue(address, queue) for queue in (*QUEUES, DEAD)}


def drain_queue(address: tuple[str, int], queue: str) -> list[bytes]:
    connection = Conn(*address, timeout=PATIENCE_S)
    connection.open(1)
    bodies = []
    while True:
        connection.send(1, "basic.get", queue=queue, no_ack=True)
        got = connection.expect("basic.get_ok", "basic.get_empty")
        if got.name == "basic.get_empty":
            break
        bodies.append(got.body)
    connection.close()
    return bodies


class FanOutClient(Client):
    """Publishes large messages to both queues, and consumes one of them."""

    max_confirmed = 500

    def consume(self) -> None:
        for queue in QUEUES:
            self._connection.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
        self._connection.call(2, "basic.consume", queue=QUEUES[0], tag=QUEUES[0])

    def _settle(self, tag: int, body: bytes) -> None:
        if random.random() < 0.9:
            self._connection.send(2, "basic.ack", dtag=tag)
            self._record.acknowledged.add(body)

    def publish_burst(self) -> None:
        for _ in range(BURST // 5):
            self._tag += 1
            body = b"%08d" % self._record.sent + bytes(random.randrange(3000, 6000))
            self._record.sent += 1
            self._unconfirmed[self._tag] = body
            self._connection.publish(1, "amq.fanout", "", body, delivery_mode=2)
        while self._unconfirmed:
            self._receive()


def drain_and_stop(broker: Broker) -> dict[str, list[bytes]]:
    broker.start()
    try:
        return drain(broker.address)
    finally:
        broker.stop()
        assert broker.wait() == 0


def run_until_killed(broker: Broker, record: ClientRecord, rounds: int, kind: type[Client] = Client) -> None:
    for _ in range(rounds):
        broker.start()
        client = kind(broker.address, record)
        # The kill comes at a random moment: during a burst, or after any number of confirms.
        wanted = len(record.confirmed) + random.randrange(kind.max_confirmed)
        timer = threading.Timer(random.uniform(0, 0.02), broker.kill)
        with suppress(Closed, OSError):
            client.consume()
            while len(record.confirmed) < wanted:
                client.publish_burst()
            timer.start()
            while True:
                client.publish_burst()
        assert timer.ident is not None, "the broker ended by itself"
        timer.join()
        client.end()
        broker.wait()


@pytest.mark.timeout(300)
def test_confirmed_messages_survive_every_kill(tmp_path: Path) -> None:
    broker, record = Broker(tmp_path), ClientRecord()
    run_until_killed(broker, record, ROUNDS)
    left = drain_and_stop(broker)
    dead, alive = left[DEAD], [body for queue in QUEUES for body in left[queue]]
    assert len(record.confirmed) > ROUNDS, "too few messages were confirmed for this test"
    assert record.acknowledged
    assert record.confirmed - record.acknowledged - set(alive) - set(dead) == set()
    assert len(alive) == len(set(alive)), "a message was stored twice"
    assert set(dead) <= record.rejected
    assert all(int(body[:8]) < record.sent for body in alive)
    for queue in QUEUES:
        assert left[queue] == sorted(left[queue]), "messages are out of order"


@pytest.mark.timeout(120)
def test_acknowledged_messages_are_not_delivered_again_after_a_clean_stop(tmp_path: Path) -> None:
    broker, record = Broker(tmp_path), ClientRecord()
    broker.start()
    client = Client(broker.address, record)
    client.consume()
    deadline = time.monotonic() + PATIENCE_S
    while len(record.acknowledged) < 100 or not record.rejected:
        assert time.monotonic() < deadline
        client.publish_burst()
    client._connection.close()
    broker.stop()
    assert broker.wait() == 0
    left = drain_and_stop(broker)
    alive = [body for queue in QUEUES for body in left[queue]]
    assert sorted(alive) == sorted(record.confirmed - record.acknowledged - record.rejected)
    assert sorted(left[DEAD]) == sorted(record.rejected)


@pytest.mark.timeout(300)
def test_shared_bodies_survive_every_kill_and_are_removed_with_their_last_reference(tmp_path: Path) -> None:
    broker, record = Broker(tmp_path), ClientRecord()
    run_until_killed(broker, record, ROUNDS // 2, FanOutClient)
    shared = tmp_path / "data" / "queues" / "shared"
    before = sum(file.stat().st_size for file in shared.glob("*.contents"))
    broker.start()
    try:
        consumed, other = (drain_queue(broker.address, queue) for queue in QUEUES)
    finally:
        broker.stop()
        assert broker.wait() == 0
    assert len(record.confirmed) > ROUNDS, "too few messages were confirmed for this test"
    assert record.acknowledged
    assert record.confirmed - set(other) == set()
    assert record.confirmed - record.acknowledged - set(consumed) == set()
    after = sum(file.stat().st_size for file in shared.glob("*.contents"))
    assert before > 100_000
    assert after < before / 5, "unreferenced bodies are still stored"
