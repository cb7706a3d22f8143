"""Messages gathered into batches."""

from __future__ import annotations

import asyncio

import pytest
from client.scripted import ROUTE, SEND, SEND_BATCH, Answer, Server, route_of, serving, storing

from trimq.client import Accumulator, AsyncClient, BadMessage, BufferFull, Closed, Message, NoRoute, SendFailed, Sent
from trimq.client.messages import MessageQueue
from trimq.formats.rocketmq_unit.batch_body import read_batch
from trimq.testing import Broker
from trimq.wire.remoting import Command

EAGER = Accumulator(linger=0.002)


def sent_bodies(command: Command) -> list[bytes]:
    if command.code == SEND:
        return [command.body]
    return [bytes(entry.body) for entry in read_batch(command.body)]


def test_messages_of_a_moment_share_a_request_and_each_gets_its_own_result(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, accumulator=EAGER) as mq:
            found = await asyncio.gather(*[mq.send("orders", b"%d" % number) for number in range(200)])
            assert len({sent.id for sent in found if isinstance(sent, Sent)}) == 200
            for number, sent in enumerate(found):
                assert isinstance(sent, Sent)
                record = broker.records("orders", sent.queue.id)[sent.offset]
                assert record.body == b"%d" % number
                assert dict(record.headers)["UNIQ_KEY"] == sent.id.encode()

    asyncio.run(main())


def test_few_requests_carry_many_messages_and_bytes_close_a_batch() -> None:
    async def main() -> Server:
        async with serving(storing) as server:
            async with AsyncClient(server.address, accumulator=Accumulator(bytes=4000, linger=5)) as mq:
                for _ in range(100):
                    mq.send_nowait("orders", b"x" * 100)
                await mq.flush()  # does not wait for the linger
            return server

    server = asyncio.run(main())
    sizes = [len(sent_bodies(command)) for command in server.asked(SEND, SEND_BATCH)]
    assert sum(sizes) == 100
    assert len(sizes) <= 6


def test_a_message_above_the_size_of_a_batch_is_sent_alone_behind_the_others() -> None:
    async def main() -> Server:
        async with serving(storing) as server:
            async with AsyncClient(server.address, accumulator=Accumulator(bytes=500, linger=50, in_flight=1)) as mq:
                bodies = (b"1", b"2", b"x" * 5000, b"3")
                futures = [mq.send_nowait("orders", body, key="k", timeout=20) for body in bodies]
                await mq.flush()
                assert all(future.done() and isinstance(future.result(), Sent) for future in futures)
            return server

    server = asyncio.run(main())
    assert [sent_bodies(command) for command in server.asked(SEND, SEND_BATCH)] == [
        [b"1", b"2"],
        [b"x" * 5000],
        [b"3"],
    ]


def test_messages_of_one_key_stay_in_order_with_one_batch_in_flight(broker: Broker) -> None:
    async def main() -> None:
        settings = Accumulator(bytes=700, linger=0.001, in_flight=1)
        async with AsyncClient(broker.rocketmq, accumulator=settings) as mq:
            for number in range(500):
                mq.send_nowait("orders", b"%d" % number, key=f"key-{number % 5}")
            await mq.flush()

    asyncio.run(main())
    for key in range(5):
        name = f"key-{key}".encode()
        mine = [
            record
            for queue in range(4)
            for record in broker.records("orders", queue)
            if dict(record.headers).get("__SHARDINGKEY") == name
        ]
        assert [int(record.body or b"") for record in mine] == list(range(key, 500, 5))


def test_at_most_so_many_batches_of_a_queue_are_in_flight() -> None:
    held: list[Command] = []

    def script(server: Server, command: Command) -> Answer | None:
        if command.code in (SEND, SEND_BATCH):
            held.append(command)
            return None
        return storing(server, command)

    async def main() -> None:
        async with (
            serving(script) as server,
            AsyncClient(server.address, accumulator=Accumulator(bytes=300, linger=0.001, in_flight=2)) as mq,
        ):
            futures = [mq.send_nowait("orders", b"x" * 200, key="k", timeout=0.4) for _ in range(10)]
            found = await asyncio.gather(*futures, return_exceptions=True)
            assert all(isinstance(error, SendFailed) for error in found)

    asyncio.run(main())
    assert len(held) >= 2


def test_delayed_messages_and_those_with_a_choice_of_their_own_are_sent_alone(broker: Broker) -> None:
    def last(queues: object, message: Message) -> MessageQueue:
        return queues[-1]  # type: ignore[index,no-any-return]

    async def main() -> None:
        async with AsyncClient(broker.rocketmq, accumulator=Accumulator(linger=60)) as mq:
            await mq.send("orders", b"delayed", delay=5)
            sent = await mq.send("orders", b"chosen", choose=last)
            assert isinstance(sent, Sent)
            assert sent.queue.id == 3
            await mq.send("orders", b"ordered", key="k", ordered=True)

    asyncio.run(main())


def test_memory_is_bounded_a_full_buffer_blocks_and_then_raises() -> None:
    def silent(server: Server, command: Command) -> Answer | None:
        return route_of({"a": server.address}) if command.code == ROUTE else None

    async def main() -> None:
        limit = 32 * 1024 * 1024
        async with (
            serving(silent) as server,
            AsyncClient(server.address, accumulator=EAGER, max_bytes=limit, timeout=60) as mq,
        ):
            futures = [mq.send_nowait("orders", b"x" * 8192) for _ in range(limit // 8192)]
            with pytest.raises(BufferFull, match="under way"):
                mq.send_nowait("orders", b"x" * 8192)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            with pytest.raises(BufferFull):
                await mq.send("orders", b"x" * 8192, timeout=0.2)
            assert 0.15 < loop.time() - begun < 5
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(error, Closed) for error in found)

    asyncio.run(main())


def test_a_message_does_not_linger_until_its_time_is_over() -> None:
    async def main() -> None:
        async with (
            serving(storing) as server,
            AsyncClient(server.address, accumulator=Accumulator(linger=60)) as mq,
        ):
            assert isinstance(await mq.send("orders", b"x", timeout=0.4), Sent)

    asyncio.run(main())


def test_without_a_route_all_waiting_messages_fail() -> None:
    def unknown(server: Server, command: Command) -> Answer | None:
        return Answer(17)

    async def main() -> None:
        async with serving(unknown) as server, AsyncClient(server.address, accumulator=EAGER) as mq:
            for key in ("k", None):
                found = await asyncio.gather(
                    *[mq.send("orders", b"x", key=key, timeout=2) for _ in range(3)], return_exceptions=True
                )
                assert all(isinstance(error, NoRoute) for error in found)

    asyncio.run(main())


def test_closing_fails_what_waits() -> None:
    async def main() -> None:
        async with serving(storing) as server:
            async with AsyncClient(server.address, accumulator=Accumulator(linger=60)) as mq:
                futures = [mq.send_nowait("orders", b"x"), mq.send_nowait("orders", b"x", key="k")]
            for future in futures:
                with pytest.raises(Closed):
                    await future

    asyncio.run(main())


def test_a_message_that_breaks_a_rule_is_refused_at_once() -> None:
    async def main() -> None:
        async with serving(storing) as server, AsyncClient(server.address, accumulator=EAGER) as mq:
            with pytest.raises(BadMessage):
                mq.send_nowait("orders", b"")
            with pytest.raises(BadMessage):
                mq.send_nowait("orders", b"x", headers={"a": "\x01"})

    asyncio.run(main())


@pytest.mark.parametrize("settings", [{"bytes": 0}, {"in_flight": 0}, {"linger": -1}])
def test_senseless_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must"):
        Accumulator(**settings)
