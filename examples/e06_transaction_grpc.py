"""E6, RocketMQ 5 over gRPC: the client's own transactions: committed, rolled back, unknown, killed after its commit.

As the example beside it, with RocketMQ's Python client: `begin_transaction`, and a checker that looks into the books
when the broker asks. The broker is in this process, so that minutes pass at once.
"""

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

# Two packages share this name, and the other's file may be the one that is there.
rocketmq.ClientConfiguration = ClientConfiguration

from rocketmq.grpc_protocol import TransactionResolution  # noqa: E402
from rocketmq.v5.model import Message  # noqa: E402
from rocketmq.v5.producer import Producer, TransactionChecker  # noqa: E402

from tools.rocketmq_wire import Wire  # noqa: E402
from trimq.testing import Broker  # noqa: E402

TOPIC = "orders"
PATIENCE_S = 20
MOST_MINUTES = 6  # after fifteen questions nobody would be asked any more


class Books(TransactionChecker):
    """The producer's own database: an order that is in it is a local transaction that was committed."""

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
    """A transaction with its half message."""
    transaction = producer.begin_transaction()
    message = Message()
    message.topic, message.body = TOPIC, order.encode()
    producer.send(message, transaction)
    return transaction


def sell_and_die(endpoints: str, path: str) -> None:
    """In a process of its own: killed between its local commit and the word to the broker."""
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

            begin(producer, "order 3")  # unknown, and its local transaction is committed later
            begin(producer, "order 4")  # unknown, and it never is
            books.enter("order 3")
            words = [sys.executable, "-m", "examples.e06_transaction_grpc", endpoints, str(books.path)]
            assert subprocess.run(words, check=False).returncode == 9
            minutes = 0
            while len(set(books.asked)) < 3:  # what was asked of the one that is dead is asked again
                minutes += 1
                assert minutes < MOST_MINUTES, books.asked
                broker.advance("1m")
                books.questions.acquire(timeout=4)  # its client may be slow where others have the machine too
            print(f"within {minutes} minutes the broker asks about {sorted(set(books.asked))}")
            assert set(books.asked) == {"order 3", "order 4", "order 5"}
            deadline = time.monotonic() + PATIENCE_S
            while len(wire.bodies(TOPIC)) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)  # the answers are on their way
            show(wire, "answered from the books:", ["order 1", "order 3", "order 5"])
        finally:
            producer.shutdown()


if __name__ == "__main__":
    sell_and_die(*sys.argv[1:]) if len(sys.argv) > 1 else main()
