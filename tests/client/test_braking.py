"""The brake of producers, and the lag of a group."""

from __future__ import annotations

import asyncio

import pytest

from trimq.client import AsyncClient, BacklogBrake, Client, Dropped, NoRoute, Sent, Start
from trimq.testing import Broker


def test_messages_of_low_priority_are_dropped_while_the_group_is_behind(broker: Broker) -> None:
    async def main() -> None:
        brake = BacklogBrake("billing", lag=10, below=5, every=0.01)

        async with AsyncClient(broker.rocketmq, brake=brake) as mq:

            async def until(kind: type) -> None:
                async with asyncio.timeout(20):
                    while not isinstance(await mq.send("orders", b"probe", priority=4), kind):
                        await asyncio.sleep(0.01)

            for _ in range(20):
                await mq.send("orders", b"x", priority=5)
            await until(Dropped)
            assert isinstance(await mq.send("orders", b"important", priority=5), Sent)
            assert isinstance(await mq.send("other", b"x"), Sent)
            assert mq.dropped >= 1
            assert await mq.send("orders", b"x") is Dropped.BUSY
            async with mq.consumer("billing", "orders", start=Start.FIRST, commit=0.05) as consumer:
                async with asyncio.timeout(20):
                    while sum((await mq.admin.lag("billing", "orders")).values()) > 0:
                        for message in await consumer.receive(1):
                            await message.ack()
                await until(Sent)

    asyncio.run(main())


def test_the_lag_of_a_group_counts_what_it_has_not_committed(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq:
        for _ in range(5):
            mq.send("orders", b"x", key="k")
        assert sorted(mq.admin.lag("billing", "orders").values()) == [0, 0, 0, 5]
        with mq.consumer("billing", "orders", start=Start.FIRST) as consumer:
            left = 5
            while left:
                found = consumer.receive(20)
                left -= len(found)
                for message in found:
                    message.ack()
            consumer.commit()
        assert set(mq.admin.lag("billing", "orders").values()) == {0}
        with pytest.raises(NoRoute):
            mq.admin.lag("billing", "nothing")
