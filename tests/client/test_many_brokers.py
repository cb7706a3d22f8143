"""Clients of several brokers: connections, slow brokers, brokers that answer nothing. Checks 4, 6, 8 and 11 of the
acceptance list, with scripted brokers."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from client.scripted import HEARTBEAT, ROUTE, SEND, SEND_BATCH, Answer, Server, route_of, serving, stored

from trimq.client import AsyncClient, Dropped, LeastLatency, Message, RoundRobin, SendTimedOut
from trimq.wire.remoting import Command

SLOW_S = 0.6


class Brokers:
    """Brokers a, b, c …; each of them is a name server, too. `late_s`: response time of a send by name."""

    def __init__(self, names: str) -> None:
        self.servers: dict[str, Server] = {}
        self.names = names
        self.late_s: dict[str, float] = {}
        self.sends: list[str] = []

    async def open(self, stack: AsyncExitStack) -> str:
        for name in self.names:

            def script(server: Server, command: Command, name: str = name) -> Answer | None:
                if command.code == ROUTE:
                    return route_of({each: found.address for each, found in self.servers.items()})
                if command.code not in (SEND, SEND_BATCH):
                    return Answer()
                self.sends.append(name)
                return stored(command)._replace(after_s=self.late_s.get(name, 0.0))

            self.servers[name] = await stack.enter_async_context(serving(script))
        return self.servers[self.names[0]].address


def test_20_clients_of_3_brokers_have_3_connections_and_one_to_the_name_server() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            brokers = Brokers("abc")
            await brokers.open(stack)

            def names(server: Server, command: Command) -> Answer | None:
                return route_of({name: found.address for name, found in brokers.servers.items()})

            name_server = await stack.enter_async_context(serving(names))
            clients = [await stack.enter_async_context(AsyncClient(name_server.address)) for _ in range(20)]
            await asyncio.gather(*[mq.send("orders", b"x") for mq in clients for _ in range(20)])
            assert [server.connected for server in brokers.servers.values()] == [1, 1, 1]
            assert name_server.connected == 1

    asyncio.run(main())


@pytest.mark.parametrize("choice", [RoundRobin, LeastLatency])
def test_sends_leave_a_slow_broker_within_3_s_and_return_within_10_s_of_its_recovery(
    choice: type[RoundRobin],
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            brokers = Brokers("ab")
            address = await brokers.open(stack)
            mq = await stack.enter_async_context(AsyncClient(address, choose=choice()))
            await mq.send("orders", b"warm")
            brokers.late_s["a"] = SLOW_S

            async def shares(count: int) -> Counter[str]:
                begin = len(brokers.sends)
                for _ in range(count):
                    await mq.send("orders", b"x")
                return Counter(brokers.sends[begin:])

            began = time.monotonic()
            while time.monotonic() - began < 1.5 and brokers.sends[-1] != "a":
                await mq.send("orders", b"x")
            left = await shares(1000)
            assert left["b"] >= 950
            brokers.late_s.clear()
            recovered = time.monotonic()
            while (await shares(20))["a"] < 5:
                assert time.monotonic() - recovered < 10
                await asyncio.sleep(0.05)

    asyncio.run(main())


def test_a_dropped_message_is_never_on_the_wire() -> None:
    trace: list[str] = []

    def first(topic: str, message: Message) -> Message | None:
        trace.append("first")
        return message

    def second(topic: str, message: Message) -> Message | None:
        trace.append("second")
        return None if message.body == b"secret" else message

    async def main() -> None:
        async with AsyncExitStack() as stack:
            brokers = Brokers("a")
            address = await brokers.open(stack)
            mq = await stack.enter_async_context(AsyncClient(address, interceptors=[first, second]))
            assert await mq.send("orders", b"secret") is Dropped.DROPPED
            assert await mq.send_nowait("orders", b"secret") is Dropped.DROPPED
            mq.send_oneway("orders", b"secret")
            await mq.send_all("orders", [Message(b"secret"), Message(b"shown")])
            await mq.send("orders", b"shown")
            frames = [command.body for server in brokers.servers.values() for command in server.requests]
            assert not any(b"secret" in body for body in frames)
            assert sum(b"shown" in body for body in frames) == 2

    asyncio.run(main())
    assert trace == ["first", "second"] * 6


def test_a_broker_that_answers_heartbeats_alone_makes_no_client_spin() -> None:
    def script(server: Server, command: Command) -> Answer | None:
        if command.code == ROUTE:
            return route_of({"a": server.address})
        return Answer() if command.code == HEARTBEAT else None

    async def main() -> None:
        async with serving(script) as server, AsyncClient(server.address, timeout=2) as mq:
            sends = [asyncio.ensure_future(mq.send("orders", b"x")) for _ in range(50)]
            await asyncio.sleep(0.2)
            before, began = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.monotonic()
            found = await asyncio.gather(*sends, return_exceptions=True)
            spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
            assert all(isinstance(error, SendTimedOut) for error in found)
            assert spent < 0.05 * (time.monotonic() - began)
            assert len(server.asked(SEND)) == 150

    asyncio.run(main())
