"""A real broker process with AMQP clients, killed with -9 at random moments: nothing that was confirmed is lost, and
what was acknowledged before an orderly stop does not come back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tools.broker import COMMAND

ROUNDS = 20
PATIENCE_S = 30
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Broker:
    """A process that is started again and again on the same folder and port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> None:
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        flags = ["--kafka-listen", "off", "--http-listen", "off", "--amqp-listen", self.address]
        flags += ["--storage-queue-segment-bytes", "20000", "--data-dir", str(self._folder / "data")]
        with (self._folder / "broker.log").open("ab") as log:
            command = [*COMMAND, "serve", *flags, "--ready-file", str(ready)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while not ready.exists():
            assert self._process.poll() is None, (self._folder / "broker.log").read_text()[-3000:]
            assert time.monotonic() < deadline, "the broker was not ready in time"
            time.sleep(0.02)
        self.address = json.loads(ready.read_text())["amqp"]

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        os.kill(self._process.pid, how)
        self._process.wait(PATIENCE_S)

    def connect(self) -> pika.BlockingConnection:
        host, _, port = self.address.rpartition(":")
        return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), socket_timeout=5))


class Client:
    """Does one thing over and over, and connects again when the broker was killed under it."""

    def __init__(self, broker: Broker, step: Callable[[BlockingChannel], None]) -> None:
        self._broker = broker
        self._step = step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                connection = self._broker.connect()
                channel = connection.channel()
                channel.queue_declare("orders", durable=True)
                channel.confirm_delivery()
                while not self._stop.is_set():
                    self._step(channel)
                connection.close()
            except (AMQPError, OSError):
                time.sleep(0.01)  # it is away for a moment

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "somebody hangs"


class Load:
    def __init__(self) -> None:
        self.sent = 0
        self.confirmed: list[bytes] = []
        self.consumed: set[bytes] = set()

    def publish(self, channel: BlockingChannel) -> None:
        body = b"%08d " % self.sent + os.urandom(random.randrange(500))
        self.sent += 1
        channel.basic_publish("", "orders", body, PERSISTENT)
        self.confirmed.append(body)

    def consume(self, channel: BlockingChannel) -> None:
        method, _, body = channel.basic_get("orders")
        if method is None:
            time.sleep(0.005)
        elif random.random() < 0.5:
            self.consumed.add(body)
            channel.basic_ack(method.delivery_tag)


def drain(channel: BlockingChannel) -> list[bytes]:
    found = []
    while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


@pytest.mark.timeout(180)
def test_nothing_confirmed_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    broker, load = Broker(tmp_path), Load()
    broker.start()
    try:
        with Client(broker, load.publish), Client(broker, load.consume):
            for _ in range(ROUNDS):
                time.sleep(random.uniform(0.05, 0.4))  # the moment of the kill is what varies
                broker.end()
                broker.start()
        connection = broker.connect()
        left = drain(connection.channel())
        connection.close()
        assert len(load.confirmed) > ROUNDS
        lost = set(load.confirmed) - load.consumed - set(left)
        assert not lost, f"{len(lost)} of {len(load.confirmed)} confirmed messages are lost"
    finally:
        broker.end()


@pytest.mark.timeout(120)
def test_after_an_orderly_stop_only_what_was_not_acknowledged_is_there(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    try:
        connection = broker.connect()
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.confirm_delivery()
        bodies = [b"%d" % number for number in range(200)]
        for body in bodies:
            channel.basic_publish("", "orders", body, PERSISTENT)
        for number in range(150):
            method, _, _ = channel.basic_get("orders")
            assert method is not None
            if number % 3:
                channel.basic_ack(method.delivery_tag)
        channel.queue_declare("orders", passive=True)  # answered after the acknowledgements
        broker.end(signal.SIGTERM)
        with suppress(AMQPError):
            connection.close()
        broker.start()
        connection = broker.connect()
        expected = [body for number, body in enumerate(bodies) if number >= 150 or number % 3 == 0]
        assert drain(connection.channel()) == expected
        connection.close()
    finally:
        broker.end()
