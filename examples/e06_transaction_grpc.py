"""E6, RocketMQ 5 over gRPC: transactions of the client: committed, rolled back, unknown, producer killed after its
commit.

Like e06_transaction_listener, with RocketMQ's Python client: `begin_transaction`, and a checker that looks up the order
when the broker checks back. The broker runs in this process, so that its clock can be advanced."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import rocketmq
from rocketmq.v5.client import ClientConfiguration, Credentials

# Two packages share this name; the wrong one may be imported.
rocketmq.ClientConfiguration = ClientConfiguration

from rocketmq.grpc_protocol import TransactionResolution  # noqa: E402
from rocketmq.v5.model import Message  # noqa: E402
from rocketmq.v5.producer import Producer, TransactionChecker  # noqa: E402

from tools.rocketmq_wire import Wire  # noqa: E402
from trimq.testing import Broker  # noqa: E402

TOPIC = "orders"
PATIENCE_S = 20
MAX_MINUTES = 6  # after fifteen checks the broker gives up


class Books(TransactionChecker):
    """The producer's own database: an order in it is a committed local transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[str] = []
        self.questions = threading.Semaphore(0)

    def enter(self, order: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{order}\n")

    def check(self, message: Any) -> Any:
        order = message.body.decode()
        self.asked.append(order)
        self.questions.release()
        is_known = order in self.path.read_text().splitlines()
        return TransactionResolution.COMMIT if is_known else TransactionResolution.ROLLBACK


def start(endpoints: str, books: Books) -> Producer:
    producer = Producer(ClientConfiguration(endpoints, Credentials(), request_timeout=10), (TOPIC,), books)
    producer.startup()
    return producer


def begin(producer: Producer, order: str) -> Any:
    """Begins a transaction and sends its half message."""
    transaction = producer.begin_transaction()
    message = Message()
    message.topic, message.body = TOPIC, order.encode()
    producer.send(message, transaction)
    return transaction


def sell_and_die(endpoints: str, path: str) -> None:
    """Runs in a process of its own, which ends between its local commit and the commit at the broker."""
    books = Books(Path(path))
    begin(start(endpoints, books), "order 5")
    books.enter("order 5")
    os._exit(9)


def show(wire: Wire, moment: str, expected: list[str]) -> None:
    seen = [body.decode() for body in wire.bodies(TOPIC)]
    print(f"{moment:<28} consumers see {seen}")
    assert sorted(seen) == expected, seen


def main() -> None:
    with (
        Broker(rocketmq_grpc_listen="127.0.0.1:0") as broker,
        tempfile.TemporaryDirectory() as folder,
        Wire(broker.addresses["rocketmq_broker"]) as wire,
    ):
        wire.create_topic(TOPIC, 1, message_type="TRANSACTION")
        endpoints, books = broker.rocketmq_grpc, Books(Path(folder) / "books")
        producer = start(endpoints, books)
        try:
            committed, rolled_back = begin(producer, "order 1"), begin(producer, "order 2")
            show(wire, "two half messages:", [])
            books.enter("order 1")
            committed.commit()
            rolled_back.rollback()
            show(wire, "1 committed, 2 rolled back:", ["order 1"])

            begin(producer, "order 3")  # unknown; its local transaction is committed later
            begin(producer, "order 4")  # unknown; its local transaction is never committed
            books.enter("order 3")
            words = [sys.executable, "-m", "examples.e06_transaction_grpc", endpoints, str(books.path)]
            assert subprocess.run(words, check=False).returncode == 9
            minutes = 0
            while len(set(books.asked)) < 3:  # checks sent to the dead producer are repeated
                minutes += 1
                assert minutes < MAX_MINUTES, books.asked
                broker.advance("1m")
                books.questions.acquire(timeout=4)  # the client may be slow on a busy machine
            print(f"within {minutes} minutes the broker checks back on {sorted(set(books.asked))}")
            assert set(books.asked) == {"order 3", "order 4", "order 5"}
            deadline = time.monotonic() + PATIENCE_S
            while len(wire.bodies(TOPIC)) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)  # until the responses are processed
            show(wire, "after the check-backs:", ["order 1", "order 3", "order 5"])
        finally:
            producer.shutdown()


if __name__ == "__main__":
    sell_and_die(*sys.argv[1:]) if len(sys.argv) > 1 else main()
