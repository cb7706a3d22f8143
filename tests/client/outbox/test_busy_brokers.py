"""The outbox when brokers are busy: nothing that was dropped counts as sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from client.scripted import ROUTE, SEND, Answer, Server, route_of, serving

from trimq.client import AsyncClient, Drop, Message
from trimq.client.outbox import Database, Outbox, Relay
from trimq.wire.remoting import Command


def busy(server: Server, command: Command) -> Answer | None:
    if command.code == ROUTE:
        return route_of({"a": server.address})
    return Answer(2, remark="busy") if command.code == SEND else Answer()


def test_a_row_that_a_busy_broker_dropped_is_sent_later(tmp_path: Path) -> None:
    outbox = Outbox(Database.sqlite(str(tmp_path / "shop.db")))
    outbox.prepare()
    with outbox.database.transaction() as cursor:
        outbox.add(cursor, "orders", Message(b"paid"))

    async def main() -> None:
        async with serving(busy) as server, AsyncClient(server.address, on_busy=Drop(below=1)) as mq:
            assert await Relay(outbox, mq).run_once() == 0

    asyncio.run(main())
    assert outbox.counts() == {"waiting": 1, "given up": 0}
