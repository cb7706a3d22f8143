"""E17, RabbitMQ clients: an outbox in an SQL database: nothing is sent that was not committed, and nothing is lost.

An order and the message about it are written in one local transaction. A sender takes messages from the outbox and
marks each when its outcome is known: a *confirm* means that the broker has stored it, a *return* that it was not
routable, a *reply* that the other service has processed it. Unmarked messages are sent again by timer, so the receiver
removes duplicates. Needs TRIMQ_AMQP, the broker's address."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import AMQPError, UnroutableError

HOST, _, PORT = os.environ["TRIMQ_AMQP"].rpartition(":")
PATIENCE_S = 20
REPLY_TO = "amq.rabbitmq.reply-to"

TABLES = """
create table if not exists orders (id text primary key);
create table if not exists outbox (id text primary key, state text not null, tries integer not null default 0);
create table if not exists stock (order_id text primary key);
"""


def connect() -> Any:
    return pika.BlockingConnection(
        pika.ConnectionParameters(HOST, int(PORT), socket_timeout=PATIENCE_S, blocked_connection_timeout=PATIENCE_S)
    )


class Shop:
    """Writes orders, and sends the messages of its outbox."""

    def __init__(self, database: Path) -> None:
        self._database = sqlite3.connect(database)
        self._database.executescript(TABLES)
        self._connection: Any = None

    def order(self, id: str, fails: bool = False) -> None:
        """Writes both rows or none."""
        with self._database:
            self._database.execute("insert into orders values (?)", (id,))
            self._database.execute("insert into outbox (id, state) values (?, 'new')", (id,))
            if fails:
                raise KeyError("the customer has no money")

    def states(self) -> dict[str, tuple[str, int]]:
        return {id: (state, tries) for id, state, tries in self._database.execute("select * from outbox order by id")}

    def send_due(self) -> None:
        """Sends, as the timer does, every message with an unknown outcome."""
        due = [id for (id,) in self._database.execute("select id from outbox where state in ('new', 'returned')")]
        for id in due:
            self._note(id, self._send(id))

    def send_and_die(self, id: str) -> None:
        """Sends the message and ends before the confirm."""
        with closing(connect()) as connection:
            connection.channel().basic_publish("", "e17.orders", id.encode(), _message(id))

    def _send(self, id: str) -> str:
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = connect()
                self._channel = self._connection.channel()
                self._channel.confirm_delivery()
            self._channel.basic_publish("", "e17.orders", id.encode(), _message(id), mandatory=True)
        except UnroutableError:
            return "returned"  # not routable: no queue is bound
        except (AMQPError, OSError):
            self._connection = None
            return "new"  # it may have been stored or not
        return "stored"

    def ask(self, id: str, meanwhile: Callable[[], None]) -> str:
        """Sends a request and waits for the reply of the other service, which runs in `meanwhile`. Sends it again
        without a reply."""
        channel = self._connection.channel()
        answers: list[str] = []
        channel.basic_consume(REPLY_TO, lambda _c, _m, _p, body: answers.append(body.decode()), auto_ack=True)
        channel.basic_publish("", "e17.orders", id.encode(), _message(id, REPLY_TO))
        deadline = time.monotonic() + PATIENCE_S
        while not answers and time.monotonic() < deadline:
            meanwhile()
            channel.connection.process_data_events(0.01)
        channel.close()
        if answers:
            self._note(id, answers[0])
        return answers[0] if answers else "silence"

    def _note(self, id: str, state: str) -> None:
        with self._database:
            self._database.execute("update outbox set state = ?, tries = tries + 1 where id = ?", (state, id))

    def close(self) -> None:
        self._connection.close()
        self._database.close()


def _message(id: str, reply_to: str | None = None) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=2, message_id=id, correlation_id=id, reply_to=reply_to)


class Warehouse:
    """Processes an order once, however often it is delivered; its row and its acknowledgement are two steps."""

    def __init__(self, database: Path) -> None:
        self._database = sqlite3.connect(database)
        self._channel = connect().channel()
        self._channel.queue_declare("e17.orders", durable=True)
        self.repeats: list[str] = []

    def take_all(self) -> None:
        while True:
            method, properties, body = self._channel.basic_get("e17.orders")
            if method is None:
                return
            order = body.decode()
            with self._database:
                taken = self._database.execute("insert or ignore into stock values (?)", (order,)).rowcount
            if not taken:
                self.repeats.append(order)
            if properties.reply_to:
                answer = pika.BasicProperties(correlation_id=properties.correlation_id)
                self._channel.basic_publish("", properties.reply_to, b"done", answer)
            self._channel.basic_ack(method.delivery_tag)

    def stock(self) -> list[str]:
        return [order for (order,) in self._database.execute("select order_id from stock order by order_id")]

    def close(self) -> None:
        self._channel.connection.close()
        self._database.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "shop.sqlite"
        with closing(Shop(database)) as shop:
            show(shop, database)


def show(shop: Shop, database: Path) -> None:
    shop.order("a")
    with suppress(KeyError):
        shop.order("b", fails=True)
    shop.send_due()
    assert shop.states() == {"a": ("returned", 1)}, shop.states()
    print("return: there is no queue yet; a is kept. b was rolled back, and its message with it")

    warehouse = Warehouse(database)
    shop.send_due()
    assert shop.states() == {"a": ("stored", 2)}, shop.states()
    print("confirm: sent again, a is on the broker's disk and marked as stored")

    shop.order("c")
    shop.send_and_die("c")
    assert shop.states()["c"] == ("new", 0), shop.states()
    shop.send_due()
    assert shop.states()["c"] == ("stored", 1), shop.states()
    warehouse.take_all()
    assert warehouse.repeats == ["c"], warehouse.repeats
    assert warehouse.stock() == ["a", "c"], warehouse.stock()
    print("confirm lost: the sender died and sent c again; the warehouse received it twice and processed it once")

    assert shop.ask("a", warehouse.take_all) == "done"
    assert shop.states()["a"] == ("done", 3), shop.states()
    assert warehouse.stock() == ["a", "c"], warehouse.stock()
    print("reply: a was sent once more; the warehouse had processed it, and replied so")
    warehouse.close()


if __name__ == "__main__":
    main()
