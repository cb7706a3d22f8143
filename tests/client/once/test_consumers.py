"""Consumers with a guard, against an embedded broker: example E7 on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trimq.client import AsyncClient, Client, Received, Start
from trimq.client.databases import Cursor, Database
from trimq.client.once import UniqueTable
from trimq.client.sync import BlockingReceived
from trimq.testing import Broker

PATIENCE_S = 30


def order_of(message: Received) -> str:
    return message.key or ""


def paid_orders(path: Path) -> list[str]:
    database = Database.sqlite(str(path))
    with database.transaction() as cursor:
        found = [str(row[0]) for row in cursor.rows("select ord from payments order by ord")]
    database.close()
    return found


def make_guard(path: Path) -> UniqueTable:
    database = Database.sqlite(str(path))
    with database.transaction() as cursor:
        cursor.execute("create table if not exists payments (ord text)")
    return UniqueTable(database, id=order_of)


def pay(message: Received, cursor: Cursor) -> None:
    cursor.execute("insert into payments (ord) values (?)", message.key)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ["pull", "pop"])
def test_an_order_that_is_paid_twice_is_paid_once(broker: Broker, tmp_path: Path, mode: str) -> None:
    async def main() -> None:
        guard = make_guard(tmp_path / "shop.db")
        async with AsyncClient(broker.rocketmq) as mq:
            for number in (1, 2, 1, 3, 1):
                await mq.send("orders", b"paid", key=f"order-{number}")
            async with mq.consumer(
                "billing", "orders", start=Start.FIRST, mode=mode, delivery="once", once=guard
            ) as consumer:
                work = asyncio.create_task(consumer.run(pay))
                await until(lambda: consumer.stats.handled == 5)
                consumer.stop()
                await work
                assert consumer.stats.known == 2
        guard.close()
        assert paid_orders(tmp_path / "shop.db") == ["order-1", "order-2", "order-3"]

    asyncio.run(main())


def test_a_message_that_is_delivered_again_is_not_handled_again(broker: Broker, tmp_path: Path) -> None:
    async def main() -> None:
        broker.create_topic("orders", 1, home="commit-log")
        guard = make_guard(tmp_path / "shop.db")
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"paid", key="order-1")
            async with mq.consumer("billing", "orders", start=Start.FIRST, delivery="once", once=guard) as consumer:

                async def handle(message: Received, cursor: Cursor) -> None:
                    pay(message, cursor)

                work = asyncio.create_task(consumer.run(handle))
                for handled in (1, 2, 3):
                    await until(lambda: consumer.stats.handled == handled)  # noqa: B023
                    await consumer.seek(consumer.assignment[0], 0)
                consumer.stop()
                await work
        guard.close()
        assert paid_orders(tmp_path / "shop.db") == ["order-1"]

    asyncio.run(main())


def test_a_blocking_client_hands_the_cursor_to_its_handler(broker: Broker, tmp_path: Path) -> None:
    guard = make_guard(tmp_path / "shop.db")
    with Client(broker.rocketmq) as mq:
        mq.send("orders", b"paid", key="order-1")
        with mq.consumer("billing", "orders", start=Start.FIRST, delivery="once", once=guard) as consumer:

            def handle(message: BlockingReceived, cursor: Cursor) -> None:
                pay(message, cursor)  # type: ignore[arg-type]
                consumer.stop()

            consumer.run(handle)
    guard.close()
    assert paid_orders(tmp_path / "shop.db") == ["order-1"]


def test_once_needs_a_guard_and_single_messages(broker: Broker, tmp_path: Path) -> None:
    async def main() -> None:
        guard = make_guard(tmp_path / "shop.db")
        async with AsyncClient(broker.rocketmq) as mq:
            with pytest.raises(ValueError, match="needs a guard"):
                mq.consumer("billing", "orders", delivery="once")
            with pytest.raises(ValueError, match="needs a guard"):
                mq.consumer("billing", "orders", once=guard)
            async with mq.consumer("billing", "orders", delivery="once", once=guard) as consumer:
                with pytest.raises(ValueError, match="batch=1"):
                    await consumer.run(pay, batch=2)
        guard.close()

    asyncio.run(main())
