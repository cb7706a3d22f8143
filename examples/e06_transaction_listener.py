"""E6, RocketMQ: a message is delivered if and only if the local transaction of its producer is committed.

The producer sends a half message, which no consumer sees, then commits its local transaction, then commits at the
broker. Without that commit, because the outcome is unknown or the producer was killed, the broker checks back with any
producer of the group, which looks up the order in its database. The broker runs in this process, so that its clock can
be advanced."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.rocketmq_wire import COMMIT, ROLLBACK, Wire
from trimq.formats.rocketmq_unit.unit import iterate_units
from trimq.testing import Broker

TOPIC = "orders"
CHECK = 39  # request code of the broker's check-back


class Books:
    """The producer's own database: an order in it is a committed local transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def enter(self, order: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{order}\n")

    def knows(self, order: str) -> bool:
        return self.path.exists() and order in self.path.read_text().splitlines()


def answer(wire: Wire, books: Books) -> list[str]:
    """Answers the check-backs received so far and returns their orders."""
    wire.heartbeat("e06", TOPIC)  # the check-backs arrive before this response
    asked = []
    for header, body in wire.asked:
        if header["code"] == CHECK:
            (unit,) = iterate_units(body)
            order = bytes(unit.body).decode()
            asked.append(order)
            fields: dict[str, Any] = {
                name: header["extFields"][name] for name in ("tranStateTableOffset", "commitLogOffset")
            }
            verdict = COMMIT if books.knows(order) else ROLLBACK
            names = {
                "msgId": header["extFields"]["transactionId"],
                "transactionId": header["extFields"]["transactionId"],
            }
            wire.done(
                37,
                {**fields, **names, "producerGroup": "pg", "commitOrRollback": verdict, "fromTransactionCheck": True},
            )
    wire.asked.clear()
    return sorted(asked)


def sell_and_die(broker: str, path: str) -> None:
    """Runs in a process of its own, which ends between its local commit and the commit at the broker."""
    with Wire(broker) as wire:
        wire.prepare(TOPIC, b"order 5")
        Books(Path(path)).enter("order 5")
        sys.exit(9)


def show(wire: Wire, moment: str, expected: list[str]) -> None:
    seen = [body.decode() for body in wire.bodies(TOPIC)]
    print(f"{moment:<34} consumers see {seen}")
    assert seen == expected, seen


def main() -> None:
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        address = broker.addresses["rocketmq_broker"]
        books = Books(Path(folder) / "books")
        with Wire(address) as wire:
            wire.create_topic(TOPIC, 1)
            committed, rolled_back = wire.prepare(TOPIC, b"order 1"), wire.prepare(TOPIC, b"order 2")
            show(wire, "two half messages:", [])
            books.enter("order 1")
            wire.decide(committed, COMMIT)
            wire.decide(rolled_back, ROLLBACK)
            show(wire, "1 committed, 2 rolled back:", ["order 1"])

            wire.prepare(TOPIC, b"order 3")  # unknown; its local transaction is committed later
            wire.prepare(TOPIC, b"order 4")  # unknown; its local transaction is never committed
            books.enter("order 3")
            words = [sys.executable, "-m", "examples.e06_transaction_listener", address, str(books.path)]
            assert subprocess.run(words, check=False).returncode == 9
            show(wire, "3, 4 unknown, 5 killed:", ["order 1"])

            wire.heartbeat("e06", TOPIC)  # the broker checks back only with known clients
            broker.advance("36s")
            asked = answer(wire, books)
            print(f"half a minute later the broker checks back on {asked}")
            assert asked == ["order 3", "order 4", "order 5"], asked
            show(wire, "after the check-backs:", ["order 1", "order 3", "order 5"])


if __name__ == "__main__":
    sell_and_die(*sys.argv[1:]) if len(sys.argv) > 1 else main()
