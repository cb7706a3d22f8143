"""The Python client consumes from Apache RocketMQ 5.5: groups, POP, order, broadcast, offsets."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from compat.rocketmq_peer import GenuineBroker, GenuineNameServer
from compat.rocketmq_wire import Wire

from trimq.client import AsyncClient, GiveUp, LocalFile, Received, Refused, Retry, Sql, Start, SubscriptionConflict
from trimq.client.consuming.consumer import Consumer
from trimq.client.numbering import Numbering, SequenceCheck

pytestmark = [pytest.mark.external, pytest.mark.timeout(180)]

PATIENCE_S = 60


class Apache:
    def __init__(self, names: str, wire: Wire) -> None:
        self.names = names
        self._wire = wire

    def topic(self, queues: int = 4) -> str:
        name = f"orders-{uuid.uuid4().hex[:8]}"
        self._wire.create_topic(name, queues)
        return name


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    folder = tmp_path_factory.mktemp("apache")
    names = GenuineNameServer(folder / "names")
    names.start()
    broker = GenuineBroker(folder / "broker", namesrvAddr=names.address, enablePropertyFilter="true")
    try:
        broker.start()
        with Wire(broker.address) as wire:
            yield Apache(names.address, wire)
    finally:
        broker.kill()
        names.kill()


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def send(mq: AsyncClient, topic: str, count: int, **more: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:  # until the name server knows the topic
        try:
            await mq.send(topic, b"0", key="k0", **more)
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
    await asyncio.gather(*(mq.send(topic, b"%d" % number, key=f"k{number}", **more) for number in range(1, count)))


async def take(consumer: Consumer, count: int) -> list[Received]:
    found: list[Received] = []
    while len(found) < count:
        messages = await consumer.receive(PATIENCE_S)
        assert messages, f"only {len(found)} of {count} messages came"
        for message in messages:
            await message.ack()
        found += messages
    return found


def bodies(messages: list[Received]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_a_group_reads_everything_commits_seeks_and_goes_on(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 40)
            async with mq.consumer(group, topic, start=Start.FIRST) as consumer:
                assert bodies(await take(consumer, 40)) == list(range(40))
                queue = max(consumer.assignment, key=consumer.position)
                count = consumer.position(queue)
                await consumer.seek(queue, 0)
                assert len(await take(consumer, count)) == count
                assert sum(consumer.lag().values()) == 0
            await mq.send(topic, b"40")
            async with mq.consumer(group, topic, start=Start.FIRST) as consumer:
                assert bodies(await take(consumer, 1)) == [40]

    run(main)


def test_members_share_and_a_conflict_of_subscriptions_is_named(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 1)
            async with mq.consumer(group, topic) as one:
                async with mq.consumer(group, topic) as two:
                    await until(lambda: len(one.assignment) == len(two.assignment) == 2)
                    assert not set(one.assignment) & set(two.assignment)
                await until(lambda: len(one.assignment) == 4)
                with pytest.raises(SubscriptionConflict):
                    await mq.consumer(group, {topic: "other"}, strict=True).__aenter__()

    run(main)


def test_retries_come_again_and_what_is_given_up_is_dead_lettered(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        attempts: dict[bytes, list[int]] = {}

        async def handle(message: Received) -> None:
            attempts.setdefault(message.body, []).append(message.attempt)
            if message.body == b"1":
                raise GiveUp("unreadable")
            if message.attempt == 1:
                raise Retry(after=1)

        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 2)
            async with mq.consumer(group, topic, start=Start.FIRST) as consumer:
                work = asyncio.create_task(consumer.run(handle))
                await until(lambda: attempts.get(b"0") == [1, 2] and consumer.stats.given_up == 1)
                consumer.stop()
                await work
            assert attempts[b"1"] == [1]
            assert await dead_letters(mq, group) == [b"1"]

    run(main)


async def dead_letters(mq: AsyncClient, group: str) -> list[bytes]:
    async with mq.consumer(f"{group}-undertaker", f"%DLQ%{group}", start=Start.FIRST) as consumer:
        return [message.body for message in await take(consumer, 1)]


def test_ordered_messages_keep_their_order_and_fail_in_place(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        seen: dict[str, list[int]] = {}
        failed: set[str] = set()
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 1)
            for step in range(20):
                for key in ("a", "b", "c"):
                    await mq.send(topic, b"%d" % step, key=key, ordered=True)
            async with mq.consumer(group, topic, start=Start.FIRST, ordered=True, retry_pause=0.05) as consumer:

                async def handle(message: Received) -> None:
                    key, step = message.key or "", int(message.body)
                    if key == "k0":
                        return
                    if step == 7 and key not in failed:
                        failed.add(key)
                        raise ValueError("once")
                    seen.setdefault(key, []).append(step)
                    if sum(map(len, seen.values())) == 60:
                        consumer.stop()

                await asyncio.wait_for(consumer.run(handle), PATIENCE_S)
        assert seen == {key: list(range(20)) for key in ("a", "b", "c")}

    run(main)


def test_broadcast_members_get_everything_and_go_on_from_their_files(apache: Apache, tmp_path: Path) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        files = [LocalFile(tmp_path, f"member-{number}") for number in range(2)]
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 10)
            async with (
                mq.consumer(group, topic, start=Start.FIRST, broadcast=True, offsets=files[0]) as one,
                mq.consumer(group, topic, start=Start.FIRST, broadcast=True, offsets=files[1]) as two,
            ):
                assert bodies(await take(one, 10)) == bodies(await take(two, 10)) == list(range(10))
            await mq.send(topic, b"10")
            async with mq.consumer(group, topic, start=Start.FIRST, broadcast=True, offsets=files[0]) as one:
                assert bodies(await take(one, 1)) == [10]

    run(main)


def test_tags_and_sql_filter_and_bad_sql_is_refused_at_subscribe(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 1, tag="none")
            for tag in ("Aa", "BB"):
                await mq.send(topic, tag.encode(), tag=tag, headers={"n": str(len(tag))})
            async with mq.consumer(group, {topic: "Aa"}, start=Start.FIRST) as consumer:
                (message,) = await take(consumer, 1)
                assert message.body == b"Aa"
                assert await consumer.receive(0.5) == []
            async with mq.consumer(
                f"{group}-sql", {topic: Sql("n = 2 and TAGS = 'BB'")}, start=Start.FIRST
            ) as consumer:
                (message,) = await take(consumer, 1)
                assert message.body == b"BB"
            with pytest.raises(Refused):
                await mq.consumer(f"{group}-bad", {topic: Sql("n >")}).__aenter__()

    run(main)


def test_popped_messages_are_shared_acknowledged_and_delivered_again(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 30)
            seen: dict[bytes, list[int]] = {}

            async def handle(message: Received) -> None:
                seen.setdefault(message.body, []).append(message.attempt)
                if message.body == b"7" and message.attempt == 1:
                    raise Retry(after=1)
                if message.body == b"8" and message.attempt == 1:
                    await asyncio.sleep(3)  # longer than the lease, which is renewed
                if message.body == b"9":
                    raise GiveUp("unreadable")

            async with (
                mq.consumer(group, topic, start=Start.FIRST, mode="pop", lease=2) as one,
                mq.consumer(group, topic, start=Start.FIRST, mode="pop", lease=2) as two,
            ):
                works = [asyncio.create_task(consumer.run(handle)) for consumer in (one, two)]
                await until(lambda: one.stats.handled + two.stats.handled == 29 and len(seen[b"7"]) == 2)
                await asyncio.sleep(4)  # a message that was not acknowledged would come again
                for consumer in (one, two):
                    consumer.stop()
                await asyncio.gather(*works)
            assert seen == {b"%d" % number: [1, 2] if number == 7 else [1] for number in range(30)}
            assert await dead_letters(mq, group) == [b"9"]

    run(main)


def test_a_lease_that_ends_is_an_attempt_and_a_popped_message_can_be_extended(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(1), f"g-{uuid.uuid4().hex[:8]}"
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 1)
            async with mq.consumer(
                group, topic, start=Start.FIRST, mode="pop", lease=2, work_timeout=1
            ) as consumer:  # no renewal after a second
                (first,) = await consumer.receive(PATIENCE_S)
                (second,) = await consumer.receive(PATIENCE_S)
                assert (first.attempt, second.attempt) == (1, 2)
                assert (first.id, first.topic) == (second.id, second.topic)
                await first.ack()
                await second.extend(30)
                await second.ack()
                await second.ack()
                assert await consumer.receive(4) == []

    run(main)


def test_numbered_messages_have_no_gap(apache: Apache) -> None:
    async def main() -> None:
        topic, group = apache.topic(), f"g-{uuid.uuid4().hex[:8]}"
        async with AsyncClient(apache.names, timeout=10) as mq:
            await send(mq, topic, 1)
        numbering = Numbering(pin=[0, 1])
        async with AsyncClient(apache.names, timeout=10, interceptors=[numbering], choose=numbering.choose) as mq:
            for number in range(20):
                await mq.send(topic, b"%d" % number, ordered=True)
            async with mq.consumer(group, topic, start=Start.FIRST) as consumer:
                messages = await take(consumer, 21)
        check = SequenceCheck(from_start=True)
        for message in sorted(messages, key=lambda each: (each.queue, each.offset)):
            check.note(message)
        assert (check.faults(), check.unstamped) == ([], 1)

    run(main)
