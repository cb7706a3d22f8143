"""Members of a group that pop, against an embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from client.scripted import Answer, Server, serving, storing

from trimq.client import AsyncClient, GiveUp, Received, Refused, Retry, Start, Unsupported
from trimq.client.consuming.consumer import Consumer
from trimq.client.consuming.receipts import read_receipt, read_starts
from trimq.errors import UnknownTopic
from trimq.testing import Broker
from trimq.wire.remoting import Command

PATIENCE_S = 30


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def send(mq: AsyncClient, count: int) -> None:
    await asyncio.gather(*(mq.send("orders", b"%d" % number) for number in range(count)))


def popper(mq: AsyncClient, lease: float = 60.0, attempts: int | None = None) -> Consumer:
    return mq.consumer("g", "orders", mode="pop", start=Start.FIRST, lease=lease, max_attempts=attempts)


async def receive(consumer: Consumer, count: int) -> list[Received]:
    found: list[Received] = []
    while len(found) < count:
        messages = await consumer.receive(PATIENCE_S)
        assert messages, f"only {len(found)} of {count} messages came"
        found += messages
    return found


async def receive_soon(broker: Broker, consumer: Consumer, count: int) -> set[bytes]:
    """Returns the bodies of so many messages that arrive long before a lease is over."""
    found: set[bytes] = set()
    for _ in range(40):
        await asyncio.to_thread(broker.advance, "1s")
        found |= {message.body for message in await consumer.receive(0.1)}
        if len(found) >= count:
            return found
    raise AssertionError(f"only {sorted(found)} came within 40 s")


def dead_letters(broker: Broker) -> list[bytes | None]:
    try:
        return [record.body for record in broker.records("%DLQ%g")]
    except UnknownTopic:
        return []


def test_two_members_share_the_messages_of_every_queue_and_acknowledge_each(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq, popper(mq) as one, popper(mq) as two:
            seen: list[bytes] = []

            async def handle(message: Received) -> None:
                seen.append(message.body)
                await asyncio.sleep(0)

            works = [asyncio.create_task(consumer.run(handle)) for consumer in (one, two)]
            await send(mq, 200)
            await until(lambda: one.stats.handled + two.stats.handled == 200)
            await asyncio.to_thread(broker.advance, "10m")
            for consumer in (one, two):
                consumer.stop()
            await asyncio.gather(*works)
            assert sorted(seen, key=int) == [b"%d" % number for number in range(200)]
            assert one.assignment == ()

    run(main)


def test_a_message_that_is_not_acknowledged_comes_again_after_its_lease(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq, popper(mq, lease=30) as consumer:
            await mq.send("orders", b"0", key="k")
            (first,) = await receive(consumer, 1)
            await asyncio.to_thread(broker.advance, "29s")
            assert await consumer.receive(0.1) == []
            await asyncio.to_thread(broker.advance, "2s")
            (second,) = await receive(consumer, 1)
            assert (first.attempt, second.attempt) == (1, 2)
            assert (second.id, second.topic, second.key) == (first.id, "orders", "k")
            await first.ack()  # too late, without effect and without harm
            await second.ack()
            await second.ack()
            await asyncio.to_thread(broker.advance, "10m")
            assert await consumer.receive(0.1) == []

    run(main)


def test_the_lease_is_renewed_while_a_handler_works(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq, popper(mq, lease=0.4) as consumer:
            await mq.send("orders", b"0")
            (message,) = await receive(consumer, 1)
            for _ in range(3):
                before = message.receipt
                await asyncio.to_thread(broker.advance, 0.3)
                await until(lambda: message.receipt != before)  # noqa: B023
            await message.ack()
            await asyncio.to_thread(broker.advance, "10m")
            assert await consumer.receive(0.1) == []
            assert consumer.stats.handled == 1

    run(main)


def test_an_extended_lease_ends_later(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq, popper(mq, lease=30) as consumer:
            await mq.send("orders", b"0")
            (message,) = await receive(consumer, 1)
            await message.extend(600)
            await asyncio.to_thread(broker.advance, "595s")
            assert await consumer.receive(0.1) == []
            await asyncio.to_thread(broker.advance, "10s")
            (again,) = await receive(consumer, 1)
            assert again.attempt == 2
            with pytest.raises(Refused):
                await message.extend(600)
            await again.ack()

    run(main)


def test_a_handler_chooses_the_time_of_the_retry_gives_up_or_fails_to_the_end(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq, popper(mq, attempts=3) as consumer:
            attempts: dict[bytes, list[int]] = {}

            async def handle(message: Received) -> None:
                attempts.setdefault(message.body, []).append(message.attempt)
                if message.body == b"never":
                    raise GiveUp("unreadable")
                if message.body == b"fails":
                    raise ValueError("always")
                if message.attempt == 1:
                    raise Retry(after=30)

            work = asyncio.create_task(consumer.run(handle))
            for body in (b"later", b"never", b"fails"):
                await mq.send("orders", body)
            await until(lambda: len(attempts) == 3 and consumer.stats.given_up == 1)
            await asyncio.to_thread(broker.advance, "29s")
            await until(lambda: len(attempts[b"fails"]) == 2)
            assert attempts[b"later"] == [1]
            await asyncio.to_thread(broker.advance, "2s")
            await until(lambda: len(attempts[b"later"]) == 2)
            await asyncio.to_thread(broker.advance, "1m")
            await until(lambda: len(dead_letters(broker)) == 2)
            consumer.stop()
            await work
            assert attempts == {b"later": [1, 2], b"never": [1], b"fails": [1, 2, 3]}
            assert sorted(map(bytes, filter(None, dead_letters(broker)))) == [b"fails", b"never"]

    run(main)


def test_messages_that_no_handler_took_are_given_back_when_the_consumer_closes(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await send(mq, 5)
            async with popper(mq) as one:
                await until(lambda: sum(len(source.waiting) for source in one._popping._sources.values()) == 5)  # type: ignore[union-attr]
            async with popper(mq) as two:
                assert len(await receive_soon(broker, two, 5)) == 5

    run(main)


def test_a_message_that_arrives_after_the_consumer_closed_is_given_back(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await send(mq, 1)
            async with popper(mq) as one:
                for message in await receive(one, 1):
                    await message.ack()
            await mq.send("orders", b"late")  # the request of the closed consumer may still wait at the broker
            async with popper(mq) as two:
                assert await receive_soon(broker, two, 1) == {b"late"}

    run(main)


def test_a_handler_that_takes_longer_than_the_work_timeout_loses_its_message(broker: Broker) -> None:
    async def main() -> None:
        async with (
            AsyncClient(broker.rocketmq) as mq,
            mq.consumer("g", "orders", mode="pop", start=Start.FIRST, lease=1, work_timeout=0.2) as consumer,
        ):
            await mq.send("orders", b"0")
            (message,) = await receive(consumer, 1)
            await until(lambda: consumer.stats.overdue == 1)
            await message.ack()
            assert consumer.stats.handled == 0
            await asyncio.to_thread(broker.advance, "2s")
            assert (await receive(consumer, 1))[0].attempt == 2

    run(main)


def test_a_popping_consumer_gets_only_the_tags_that_it_wants_and_pauses(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for tag in ("Aa", "BB", "Aa"):
                await mq.send("orders", tag.encode(), tag=tag)
            async with mq.consumer("g", {"orders": "Aa"}, mode="pop", start=Start.FIRST) as consumer:
                for message in await receive(consumer, 2):
                    assert message.body == b"Aa"
                    await message.ack()
                consumer.pause("orders")
                await mq.send("orders", b"Aa", tag="Aa")
                assert await consumer.receive(0.1) == []
                consumer.resume("orders")
                for message in await receive(consumer, 1):
                    await message.ack()
                await asyncio.to_thread(broker.advance, "10m")
                assert await consumer.receive(0.1) == []

    run(main)


def test_what_needs_offsets_is_refused_in_pop_mode(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq, popper(mq) as consumer:
            with pytest.raises(Unsupported, match="lag"):
                consumer.lag()
            with pytest.raises(Unsupported, match="commit"):
                await consumer.commit()

    run(main)


def test_a_broker_without_pop_is_found_out_before_anything_is_popped() -> None:
    def of_4_9(server: Server, command: Command) -> Answer | None:
        return Answer(3, remark="not supported") if command.code >= 200050 else storing(server, command)

    async def main() -> None:
        async with serving(of_4_9) as server, AsyncClient(server.address) as mq:
            with pytest.raises(Unsupported, match="RocketMQ 5"):
                await popper(mq).__aenter__()
            assert not server.asked(200050)

    run(main)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ordered": True}, "neither ordered"),
        ({"broadcast": True}, "neither ordered"),
        ({"delivery": "at-most-once"}, "at least once"),
        ({"start": Start.at("20210701080000")}, "begins at"),
        ({"lease": 0.05}, "at least 100 ms"),
        ({"mode": "push"}, "'pull' or 'pop'"),
    ],
)
def test_options_that_do_not_go_with_pop_are_refused(options: dict[str, object], complaint: str) -> None:
    from trimq.client.consuming.options import ConsumerOptions

    with pytest.raises(ValueError, match=complaint):
        ConsumerOptions(**{"mode": "pop", **options})  # type: ignore[arg-type]


def test_receipts_are_read_and_renewed() -> None:
    receipt = read_receipt("5 1000 60000 0 1 broker-a 3 7 extra")
    assert receipt.stored_topic("orders", "g") == "%RETRY%g_orders"
    assert receipt._replace(mark="2").stored_topic("orders", "g") == "%RETRY%g+orders"
    assert receipt._replace(mark="0").stored_topic("orders", "g") == "orders"
    changed = receipt.renewed({"popTime": "2000", "invisibleTime": "30000", "reviveQid": "4"})
    assert changed.text == "7 2000 30000 4 1 broker-a 3 7"
    assert read_starts("0 3 5;1 3 9;0 1 0") == {"3": "5", "1": "0"}
    with pytest.raises(ValueError, match="not a receipt"):
        read_receipt("1 2 3")
