"""Request and reply, recall, and messages that are stored once."""

from __future__ import annotations

import asyncio

import pytest
from client.scripted import ROUTE, Answer, Script, Server, route_of, serving, stored

from trimq.client import (
    AsyncClient,
    BadMessage,
    Client,
    Json,
    Message,
    Received,
    Refused,
    Sent,
    Start,
    TimedOut,
    Unsupported,
)
from trimq.testing import Broker
from trimq.wire.remoting import Command

HELLO = 210001


async def echo(message: Received) -> None:
    await message.reply(b"re:" + message.body)


def test_each_of_1000_concurrent_requests_gets_its_own_answer(broker: Broker) -> None:
    async def main() -> None:
        async with (
            AsyncClient(broker.rocketmq) as asker,
            AsyncClient(broker.rocketmq) as other,
            other.consumer("pricing", "prices", start=Start.FIRST) as consumer,
        ):
            running = asyncio.create_task(consumer.run(echo, concurrency=100))
            asked = [asker.request("prices", b"%d" % number, timeout=30) for number in range(1000)]
            answers = await asyncio.gather(*asked)
            consumer.stop()
            await running
        assert [answer.body for answer in answers] == [b"re:%d" % number for number in range(1000)]

    asyncio.run(main())


def test_an_answer_has_a_value(broker: Broker) -> None:
    async def main() -> None:
        async def double(message: Received) -> None:
            await message.reply({"twice": message.value * 2})

        async with (
            AsyncClient(broker.rocketmq, serializer=Json()) as mq,
            mq.consumer("pricing", "prices", start=Start.FIRST) as consumer,
        ):
            running = asyncio.create_task(consumer.run(double))
            answer = await mq.request("prices", 21, timeout=20)
            assert answer.value == {"twice": 42}
            assert answer.headers == {}
            consumer.stop()
            await running

    asyncio.run(main())


def test_a_request_that_nobody_answers_times_out_and_its_late_answer_is_dropped(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            with pytest.raises(TimedOut, match="nobody replied"):
                await mq.request("prices", b"EUR", timeout=0.3)
            async with mq.consumer("pricing", "prices", start=Start.FIRST) as consumer:
                (message,) = await consumer.receive(20)
                await message.reply(b"too late")  # accepted, and dropped by the client that asked

    asyncio.run(main())


def test_a_reply_to_a_client_that_is_gone_is_refused(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, group="a") as asker:
            with pytest.raises(TimedOut):
                await asker.request("prices", b"EUR", timeout=0.3)
        async with (
            AsyncClient(broker.rocketmq, group="b") as mq,
            mq.consumer("pricing", "prices", start=Start.FIRST) as consumer,
        ):
            (message,) = await consumer.receive(20)
            with pytest.raises(Refused, match="not found"):
                await message.reply(b"nobody is there")

    asyncio.run(main())


def test_a_message_that_is_no_request_cannot_be_answered(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("prices", b"x")
            async with mq.consumer("pricing", "prices", start=Start.FIRST) as consumer:
                (message,) = await consumer.receive(20)
                with pytest.raises(BadMessage, match="is no request"):
                    await message.reply(b"y")

    asyncio.run(main())


def test_the_blocking_client_asks_and_answers(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq, mq.consumer("pricing", "prices", start=Start.FIRST) as consumer:

        async def serve() -> bytes:
            return (await asyncio.to_thread(mq.request, "prices", b"EUR", timeout=20)).body

        async def main() -> bytes:
            asking = asyncio.create_task(serve())
            found = await asyncio.to_thread(consumer.receive, 20)
            await asyncio.to_thread(found[0].reply, b"1.1")
            return await asking

        assert asyncio.run(main()) == b"1.1"


# -- recall


def test_a_delayed_message_is_recalled_once_and_never_delivered(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq:
        sent = mq.send("orders", b"later", delay=600)
        assert isinstance(sent, Sent)
        assert mq.recall(sent.recall) == sent.id
        broker.advance("20m")
        assert [record for number in range(4) for record in broker.records("orders", number)] == []
        with pytest.raises(Refused):
            mq.recall(sent.recall)
        with pytest.raises(ValueError, match="no recall handle"):
            mq.recall("bm9uc2Vuc2U=")


# -- stored once


@pytest.mark.parametrize("in_between", ["nothing", "crash"])
def test_the_same_id_is_stored_once_also_over_a_restart(broker: Broker, in_between: str) -> None:
    with Client(broker.rocketmq) as mq:
        first = mq.send("orders", b"x", id="A" * 32, once=True, choose=lambda queues, message: queues[0])
        if in_between == "crash":
            broker.crash()
            broker.restart()
        again = mq.send("orders", b"x", id="A" * 32, once=True, choose=lambda queues, message: queues[1])
        assert first == again
        mq.send("orders", b"y", id="A" * 32)  # without once it is a message like others
        assert len([record for number in range(4) for record in broker.records("orders", number)]) == 2


def test_a_batch_with_repeats_stores_each_once(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq:
        mq.send("orders", b"1", id="1" * 32, once=True)
        batch = [Message(b"1", id="1" * 32, once=True), Message(b"2", id="2" * 32, once=True), Message(b"3")]
        mq.send_all("orders", batch)
        mq.send_all("orders", batch)
        found = [record.body for number in range(4) for record in broker.records("orders", number)]
        assert sorted(found, key=str) == [b"1", b"2", b"3", b"3"]


# -- brokers without the features


def of_version(version: int) -> tuple[list[Command], Script]:
    """Returns a script of an Apache broker of this version: HELLO is unknown to it."""
    sends: list[Command] = []

    def script(server: Server, command: Command) -> Answer | None:
        if command.code == ROUTE:
            return route_of({"a": server.address})
        if command.code == HELLO:
            return Answer(3, remark="not supported", version=version)
        if command.code == 310:
            sends.append(command)
            return stored(command)
        return Answer(version=version)

    return sends, script


@pytest.mark.parametrize("mode", ["send", "send_nowait"])
@pytest.mark.parametrize(
    ("version", "options", "needed"),
    [(513, {"once": True}, "needs TriMQ"), (411, {"delay": 5.0}, "RocketMQ 5"), (411, {"once": True}, "needs TriMQ")],
)
def test_a_broker_without_the_feature_is_sent_nothing(
    mode: str, version: int, options: dict[str, float], needed: str
) -> None:
    sends, script = of_version(version)

    async def main() -> None:
        async with serving(script) as server, AsyncClient(server.address) as mq:
            with pytest.raises(Unsupported, match=needed):
                await getattr(mq, mode)("orders", b"x", **options)
            with pytest.raises(Unsupported, match="recall"):
                await mq.recall("")

    asyncio.run(main())
    assert sends == []


def test_a_batch_that_is_to_be_stored_once_is_not_sent_to_apache() -> None:
    sends, script = of_version(513)

    async def main() -> None:
        async with serving(script) as server, AsyncClient(server.address) as mq:
            with pytest.raises(Unsupported, match="needs TriMQ"):
                await mq.send_all("orders", [Message(b"x"), Message(b"y", once=True)])
            assert not server.asked(310, 320)

    asyncio.run(main())
    assert sends == []


def test_a_broker_of_version_5_is_sent_delays() -> None:
    sends, script = of_version(513)

    async def main() -> None:
        async with serving(script) as server, AsyncClient(server.address) as mq:
            await mq.send("orders", b"x", delay=5)
            await mq.send("orders", b"y", delay=5)
            assert len(server.asked(HELLO)) == 1

    asyncio.run(main())
    assert len(sends) == 2
