"""E17, Python client: an outbox in an SQL database: rollback, a relay that died, no broker, and all messages arrive

An order and the message about it are committed together. Five faults of a broker (refusal, silence, cut, lost answer,
not on disk) are in tests/client/outbox/test_outbox.py.
Needs TRIMQ_ROCKETMQ, the name server's address.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
from pathlib import Path

from trimq.client import AsyncClient, Message, Received, Start
from trimq.client.outbox import Database, Outbox, Relay

NAME_SERVER = os.environ["TRIMQ_ROCKETMQ"]
TOPIC = f"e17-{uuid.uuid4().hex[:8]}"
PATIENCE_S = 30


def buy(outbox: Outbox, order: str, is_paid: bool = True) -> None:
    """Stores an order and its message in one transaction."""
    with outbox.database.transaction() as cursor:
        cursor.execute("insert into orders (id) values (?)", order)
        outbox.add(cursor, TOPIC, Message(b"bought", key=order, tag="paid"))
        if not is_paid:
            raise ValueError("no money")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        outbox = Outbox(Database.sqlite(str(Path(folder, "shop.db"))))
        outbox.prepare()
        with outbox.database.transaction() as cursor:
            cursor.execute("create table orders (id text primary key)")

        try:
            buy(outbox, "order-0", is_paid=False)
        except ValueError as error:
            print(f"order-0: {error}, nothing is stored: {outbox.counts()}")
        for number in range(1, 4):
            buy(outbox, f"order-{number}")
        print(f"committed, not sent: {outbox.counts()}")

        # A relay that dies has claimed rows; another one takes them over when the claim is over.
        dead = outbox.claim("a relay that died", 1, 200)
        print(f"claimed by a relay that died: {[row.message.key for row in dead]}")

        async with AsyncClient("127.0.0.1:9", retries=0, timeout=0.5) as nowhere:  # nobody listens there
            print(f"no broker: {await Relay(outbox, nowhere, back_off=0.1).run_once()} sent, {outbox.counts()}")

        async with AsyncClient(NAME_SERVER) as mq:
            work = asyncio.create_task(Relay(outbox, mq, every=0.05).run())
            async with asyncio.timeout(PATIENCE_S):
                while outbox.counts()["waiting"]:
                    await asyncio.sleep(0.01)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            async with mq.consumer("e17", TOPIC, start=Start.FIRST) as consumer:
                found: list[Received] = []
                while len(found) < 3:
                    found += await consumer.receive(PATIENCE_S)
        outbox.database.close()
    keys = sorted(message.key or "" for message in found)
    assert keys == ["order-1", "order-2", "order-3"], keys
    assert len({message.id for message in found}) == 3
    print(f"arrived: {keys}")


asyncio.run(main())
