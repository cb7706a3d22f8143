"""A real broker process under AMQP load, killed with -9 at random moments: what was confirmed and not acknowledged is
there, in its queue or among the dead letters; after a clean stop nothing that was acknowledged comes back."""

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
    """A process that is started again and again on the same folder."""

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


class Book:
    """What a client knows for sure."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.rejected: set[bytes] = set()


class Client:
    """Publishes bursts on channel 1 and waits for their confirms; consumes on channel 2, acknowledges most, rejects
    some and keeps the rest."""

    most_confirmed = 1500  # before the broker is killed

    def __init__(self, address: tuple[str, int], book: Book) -> None:
        self._book = book
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
            body = b"%08d" % self._book.sent + bytes(random.randrange(500))
            self._book.sent += 1
            self._unconfirmed[self._tag] = body
            self._connection.publish(1, "", QUEUES[self._tag % 2], body, delivery_mode=2)
        while self._unconfirmed:
            self._hear()

    def _hear(self) -> None:
        queued, self._connection.q = self._connection.q, []
        for came in queued or [self._connection.recv()]:
            assert came is not None, "the broker hangs"
            if came.name == "basic.ack":
                confirmed = [
                    tag for tag in self._unconfirmed if tag == came.dtag or (came.multiple and tag < came.dtag)
                ]
                self._book.confirmed |= {self._unconfirmed.pop(tag) for tag in confirmed}
            elif came.name == "basic.deliver":
                self._settle(came.dtag, came.body)

    def _settle(self, tag: int, body: bytes) -> None:
        rng = random.random()
        if rng < 0.8:
            self._connection.send(2, "basic.ack", dtag=tag)
            self._book.acknowledged.add(body)
        elif rng < 0.9:
            self._connection.send(2, "basic.reject", dtag=tag, requeue=False)
            self._book.rejected.add(body)

    def end(self) -> None:
        self._connection.kill()


def drain(address: tuple[str, int]) -> dict[str, list[bytes]]:
    """All that is left, in the order of each queue."""
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

    most_confirmed = 500

    def consume(self) -> None:
        for queue in QUEUES:
            self._connection.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
        self._connection.call(2, "basic.consume", queue=QUEUES[0], tag=QUEUES[0])

    def _settle(self, tag: int, body: bytes) -> None:
        if random.random() < 0.9:
            self._connection.send(2, "basic.ack", dtag=tag)
            self._book.acknowledged.add(body)

    def publish_burst(self) -> None:
        for _ in range(BURST // 5):
            self._tag += 1
            body = b"%08d" % self._book.sent + bytes(random.randrange(3000, 6000))
            self._book.sent += 1
            self._unconfirmed[self._tag] = body
            self._connection.publish(1, "amq.fanout", "", body, delivery_mode=2)
        while self._unconfirmed:
            self._hear()


def drain_and_stop(broker: Broker) -> dict[str, list[bytes]]:
    broker.start()
    try:
        return drain(broker.address)
    finally:
        broker.stop()
        assert broker.wait() == 0


def run_until_killed(broker: Broker, book: Book, rounds: int, kind: type[Client] = Client) -> None:
    for _ in range(rounds):
        broker.start()
        client = kind(broker.address, book)
        # The moment of the kill is what varies: amid a burst, after some hundred confirms or none.
        wanted = len(book.confirmed) + random.randrange(kind.most_confirmed)
        timer = threading.Timer(random.uniform(0, 0.02), broker.kill)
        with suppress(Closed, OSError):
            client.consume()
            while len(book.confirmed) < wanted:
                client.publish_burst()
            timer.start()
            while True:
                client.publish_burst()
        assert timer.ident is not None, "the broker ended by itself"
        timer.join()
        client.end()
        broker.wait()


@pytest.mark.timeout(300)
def test_what_was_confirmed_survives_every_kill(tmp_path: Path) -> None:
    broker, book = Broker(tmp_path), Book()
    run_until_killed(broker, book, ROUNDS)
    left = drain_and_stop(broker)
    dead, alive = left[DEAD], [body for queue in QUEUES for body in left[queue]]
    assert len(book.confirmed) > ROUNDS, "hardly anything was confirmed: the test shows nothing"
    assert book.acknowledged
    assert book.confirmed - book.acknowledged - set(alive) - set(dead) == set()
    assert len(alive) == len(set(alive)), "a message is there twice"
    assert set(dead) <= book.rejected
    assert all(int(body[:8]) < book.sent for body in alive)
    for queue in QUEUES:
        assert left[queue] == sorted(left[queue]), "messages are out of order"


@pytest.mark.timeout(120)
def test_what_was_acknowledged_does_not_come_back_after_a_clean_stop(tmp_path: Path) -> None:
    broker, book = Broker(tmp_path), Book()
    broker.start()
    client = Client(broker.address, book)
    client.consume()
    deadline = time.monotonic() + PATIENCE_S
    while len(book.acknowledged) < 100 or not book.rejected:
        assert time.monotonic() < deadline
        client.publish_burst()
    client._connection.close()
    broker.stop()
    assert broker.wait() == 0
    left = drain_and_stop(broker)
    alive = [body for queue in QUEUES for body in left[queue]]
    assert sorted(alive) == sorted(book.confirmed - book.acknowledged - book.rejected)
    assert sorted(left[DEAD]) == sorted(book.rejected)


@pytest.mark.timeout(300)
def test_bodies_that_queues_share_survive_every_kill_and_go_with_the_last(tmp_path: Path) -> None:
    broker, book = Broker(tmp_path), Book()
    run_until_killed(broker, book, ROUNDS // 2, FanOutClient)
    shared = tmp_path / "data" / "queues" / "shared"
    before = sum(file.stat().st_size for file in shared.glob("*.contents"))
    broker.start()
    try:
        consumed, other = (drain_queue(broker.address, queue) for queue in QUEUES)
    finally:
        broker.stop()
        assert broker.wait() == 0
    assert len(book.confirmed) > ROUNDS, "hardly anything was confirmed: the test shows nothing"
    assert book.acknowledged
    assert book.confirmed - set(other) == set()
    assert book.confirmed - book.acknowledged - set(consumed) == set()
    after = sum(file.stat().st_size for file in shared.glob("*.contents"))
    assert before > 100_000
    assert after < before / 5, "nobody has the bodies any more"
