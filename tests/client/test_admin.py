"""Creating topics and finding messages."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta

import pytest

from trimq.client import AsyncClient, Client, NoRoute, Refused, Sent
from trimq.client.admin import Admin
from trimq.client.sync import BlockingAdmin
from trimq.testing import Broker


def test_a_created_topic_has_its_queues_and_its_permission(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.admin.create_topic("orders", 8, read=8, write=3)
            queues = {(await send(mq)).queue.id for _ in range(30)}
            assert queues == {0, 1, 2}
            await mq.admin.create_topic("orders", 8, write=5)  # growth is seen at once
            assert {(await send(mq)).queue.id for _ in range(30)} == {0, 1, 2, 3, 4}
            await mq.admin.create_topic("orders", 8, perm=4)
            with pytest.raises(Refused, match="no writable queue"):
                await mq.send("orders", b"x", timeout=1)

    async def send(mq: AsyncClient) -> Sent:
        sent = await mq.send("orders", b"x")
        assert isinstance(sent, Sent)
        return sent

    asyncio.run(main())


def test_an_illegal_topic_is_refused(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq, pytest.raises(Refused):
        mq.admin.create_topic("a b")


def test_messages_are_found_by_key_id_and_time_also_more_than_a_page(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            first = await mq.send("orders", b"first", keys=["k", "other"])
            began = broker.now()
            await asyncio.to_thread(broker.advance, "1m")
            for number in range(150):
                if number % 40 == 0:
                    await asyncio.to_thread(broker.advance, "1s")
                await mq.send("orders", b"%d" % number, keys=["k"])
                await mq.send("orders", b"not this", keys=["K"])
            assert isinstance(first, Sent)
            assert [found.body async for found in mq.admin.find("orders", id=first.id)] == [b"first"]
            found = [found.body async for found in mq.admin.find("orders", key="k")]
            assert found == [*(b"%d" % number for number in reversed(range(150))), b"first"]
            early = mq.admin.find("orders", key="k", between=(None, began + timedelta(seconds=30)))
            assert [found.body async for found in early] == [b"first"]
            assert [found async for found in mq.admin.find("orders", key="none")] == []

    asyncio.run(main())


def test_what_cannot_be_found_says_so(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq:
        sent = mq.send("orders", b"x", keys=["k"])
        assert isinstance(sent, Sent)
        assert [found.id for found in mq.admin.find("orders", key="k")] == [sent.id]
        with pytest.raises(NoRoute):
            list(mq.admin.find("nothing", key="k"))
        for asked in ({}, {"key": "k", "id": "i"}, {"key": ""}):
            with pytest.raises(ValueError, match="either key or id"):
                list(mq.admin.find("orders", **asked))


def test_both_forms_have_the_same_arguments() -> None:
    for name in ("create_topic", "find", "lag"):
        forms = [inspect.signature(getattr(kind, name)).parameters for kind in (Admin, BlockingAdmin)]
        assert list(map(str, forms[0].values())) == list(map(str, forms[1].values()))
