"""E7, Python client: an order that is paid twice is paid once, by four ways of idempotent consumption on SQLite

The order is sent twice, delivered again after its handler failed, and read again from the beginning by another member
of the group. Each way is tried in pull and in POP mode. The same ways on PostgreSQL, MariaDB and Redis are in
tests/compat/test_client_once.py. Needs TRIMQ_ROCKETMQ, the name server's address.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
from pathlib import Path

from trimq.client import AsyncClient, Received, Retry, Start
from trimq.client.once import Cursor, Database, GlobalId, Guard, States, UniqueTable, Versioned

NAME_SERVER = os.environ["TRIMQ_ROCKETMQ"]
RUN = uuid.uuid4().hex[:8]
PATIENCE_S = 30


def order_of(message: Received) -> str:
    return message.key or ""


def make_database(path: Path) -> Database:
    database = Database.sqlite(str(path))
    with database.transaction() as cursor:
        cursor.execute("create table payments (ord text)")
        cursor.execute("create table orders (id text primary key, version integer, state text)")
        cursor.execute("insert into orders values ('42', 0, 'new')")
    return database


def make_guard(way: str, database: Database) -> Guard:
    if way == "unique table":
        return UniqueTable(database, id=order_of)
    if way == "version":
        return Versioned(database, "orders", lambda message: (order_of(message), int(message.headers["version"])))
    if way == "state machine":
        return States(database, "orders", {"new": "paid"}, lambda message: (order_of(message), "paid"))
    return GlobalId(database, id=order_of)


async def receive(mq: AsyncClient, topic: str, group: str, mode: str, guard: Guard, wanted: int) -> int:
    """Handles messages until `wanted` are done. Returns how many of them the guard knew."""
    failed = False

    async with mq.consumer(group, topic, start=Start.FIRST, mode=mode, delivery="once", once=guard) as consumer:

        def pay(message: Received, cursor: Cursor) -> None:
            nonlocal failed
            cursor.execute("insert into payments (ord) values (?)", message.key)
            if not failed:
                failed = True
                raise Retry("the bank is closed", after=0.1)  # what was written is rolled back

        work = asyncio.create_task(consumer.run(pay))
        async with asyncio.timeout(PATIENCE_S):
            while consumer.stats.handled < wanted:
                await asyncio.sleep(0.01)
        consumer.stop()
        await work
        return consumer.stats.known


async def main() -> None:
    async with AsyncClient(NAME_SERVER) as mq:
        for way in ("unique table", "version", "state machine", "global id"):
            for mode in ("pull", "pop"):
                topic = f"e07-{way.replace(' ', '-')}-{mode}-{RUN}"
                with tempfile.TemporaryDirectory() as folder:
                    database = make_database(Path(folder, "shop.db"))
                    guard = make_guard(way, database)
                    for _ in range(2):  # resent
                        await mq.send(topic, b"paid", key="42", headers={"version": "0"})
                    known = await receive(mq, topic, "billing", mode, guard, 2)
                    known += await receive(mq, topic, "billing-again", mode, guard, 2)  # all of it once more
                    with database.transaction() as cursor:
                        paid = cursor.rows("select ord from payments")
                    guard.close()
                assert paid == [("42",)], paid
                print(f"{way}, {mode}: 4 deliveries of order 42, paid once, {known} repeats recognised")


asyncio.run(main())
