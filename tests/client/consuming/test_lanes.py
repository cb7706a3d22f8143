"""Priorities by lanes, and the dump of a backlog of low priority."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from client.scripted import ROUTE, SEND, Answer, Server, route_of, serving

from trimq.client import AsyncClient, BufferLimits, ClientError, Drop, Lanes, Received, Start
from trimq.client.consuming.inbox import Inbox
from trimq.client.dump import Dump
from trimq.testing import Broker
from trimq.wire.remoting import Command

PATIENCE_S = 30
LANES = Lanes("orders")


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def send(mq: AsyncClient, level: int, count: int) -> None:
    await asyncio.gather(*(mq.send(LANES.lane(level), b"%d" % level, key=f"k{number}") for number in range(count)))


class Waiting:
    """Source with messages of one level."""

    def __init__(self, level: int, count: int) -> None:
        self.level = level
        self.count = count

    @property
    def has_ready(self) -> bool:
        return self.count > 0

    def take(self, limit: int) -> list[int]:
        self.count -= 1
        return [self.level]


def test_levels_are_served_by_their_shares_and_urgent_ones_first() -> None:
    async def main() -> None:
        inbox: Inbox[int] = Inbox(LANES.shares)
        for level in (2, 1, 0):
            inbox.add(Waiting(level, 100))
        taken = [(await inbox.take())[0] for _ in range(42)]
        assert taken == ([0] * 16 + [1] * 4 + [2]) * 2
        taken = [(await inbox.take())[0] for _ in range(258)]
        assert [taken.count(level) for level in range(3)] == [68, 92, 98]

    run(main)


@pytest.mark.parametrize("mode", ["pull", "pop"])
def test_urgent_messages_overtake_those_that_wait(broker: Broker, mode: str) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for level in range(3):
                await send(mq, level, 1)
            seen: list[bytes] = []
            async with mq.consumer("g", LANES.subscriptions(), start=Start.FIRST, mode=mode, lanes=LANES) as consumer:

                async def handle(message: Received) -> None:
                    seen.append(message.body)
                    await asyncio.sleep(0)

                consumer.pause()
                await send(mq, 2, 30)
                await send(mq, 0, 15)
                await asyncio.sleep(0.2)  # all are read ahead
                consumer.resume()
                work = asyncio.create_task(consumer.run(handle, concurrency=1))
                await until(lambda: consumer.stats.handled == 48)
                consumer.stop()
                await work
            assert sorted(seen) == [b"0"] * 16 + [b"1"] + [b"2"] * 31
            if mode == "pull":
                assert seen[:16].count(b"0") == 16
            assert seen[-10:] == [b"2"] * 10

    run(main)


def test_a_backlog_of_low_priority_is_dumped_and_read_later(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await send(mq, 2, 100)
            await send(mq, 0, 5)
            await send(mq, 1, 5)
            dump = Dump(mq, LANES, lane=2, above=20, to="orders_dump")
            worked: list[Received] = []

            async def work(message: Received) -> None:
                worked.append(message)

            limits = BufferLimits(messages=200)
            async with mq.consumer(
                "g", LANES.subscriptions(), start=Start.FIRST, lanes=LANES, limits=limits
            ) as consumer:
                await until(lambda: sum(consumer.lag().values()) == 110)
                task = asyncio.create_task(consumer.run(dump.handler(consumer, work), concurrency=1))
                await until(lambda: consumer.stats.handled == 110)
                assert dump.dumped == 80
                assert len(worked) == 30
                consumer.stop()
                await task
            known = {message.id for message in worked}
            assert await dump.replay("undump", rate=5000, quiet=0.5) == 80
            assert await dump.replay("undump", rate=5000, quiet=0.5) == 0
            worked.clear()
            async with mq.consumer("g", LANES.subscriptions(), lanes=LANES) as consumer:
                task = asyncio.create_task(consumer.run(work))
                await until(lambda: len(worked) == 80)
                consumer.stop()
                await task
            assert len({message.id for message in worked} - known) == 80
            assert {message.topic for message in worked} == {"orders_p2"}
            assert all(message.key for message in worked)

    run(main)


def test_a_message_that_a_busy_broker_did_not_take_is_not_finished(broker: Broker) -> None:
    def busy(server: Server, command: Command) -> Answer | None:
        if command.code == ROUTE:
            return route_of({"a": server.address})
        return Answer(2 if command.code == SEND else 0, remark="busy")

    async def main() -> None:
        async with (
            AsyncClient(broker.rocketmq) as mq,
            serving(busy) as server,
            AsyncClient(server.address, on_busy=Drop(below=5)) as elsewhere,
        ):
            await send(mq, 2, 3)
            await send(mq, 1, 1)
            await send(mq, 0, 1)
            dump = Dump(elsewhere, LANES, lane=2, above=0, to="orders_dump")
            async with mq.consumer("g", LANES.subscriptions(), start=Start.FIRST, lanes=LANES) as consumer:
                handle = dump.handler(consumer, pytest.fail)  # type: ignore[arg-type]
                low = None
                while low is None:
                    messages = await consumer.receive(PATIENCE_S)
                    low = next((message for message in messages if message.topic == LANES.lane(2)), None)
                with pytest.raises(ClientError, match="busy"):
                    await handle(low)
                assert not low.is_settled
            assert dump.dumped == 0

    run(main)


def test_lanes_name_their_topics() -> None:
    assert LANES.topics == ("orders", "orders_p1", "orders_p2")
    assert LANES.shares == (16, 4, 1)
    assert LANES.level_of("%RETRY%g") == 0
    assert LANES.subscriptions("a || b") == dict.fromkeys(LANES.topics, "a || b")
    with pytest.raises(ValueError, match="levels 0 to 2"):
        LANES.lane(3)
    with pytest.raises(ValueError, match="2 to 8"):
        Lanes("orders", 1)
