"""Members of a group against an embedded broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from trimq.client import (
    AsyncClient,
    BufferLimits,
    GiveUp,
    LocalFile,
    Message,
    MessageQueue,
    Received,
    Refused,
    Retry,
    Sql,
    Start,
    SubscriptionConflict,
    Unsupported,
)
from trimq.client.consuming.consumer import Consumer
from trimq.errors import UnknownTopic
from trimq.testing import Broker

PATIENCE_S = 30


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def take(consumer: Consumer, count: int) -> list[Received]:
    """Receives and acknowledges so many messages."""
    found: list[Received] = []
    while len(found) < count:
        messages = await consumer.receive(PATIENCE_S)
        assert messages, f"only {len(found)} of {count} messages came"
        for message in messages:
            await message.ack()
        found += messages
    return found


async def send(mq: AsyncClient, count: int, topic: str = "orders", **more: str) -> None:
    await asyncio.gather(*(mq.send(topic, b"%d" % number, key=f"k{number}", **more) for number in range(count)))


def bodies(messages: list[Received]) -> list[bytes]:
    return sorted((message.body for message in messages), key=int)


def expected(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def has_dead_letter(broker: Broker) -> bool:
    try:
        return len(broker.records("%DLQ%g")) == 1
    except UnknownTopic:
        return False


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def test_messages_come_with_all_their_parts(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            sent = await mq.send("orders", b"body", key="42", tag="paid", keys=["a", "b"], headers={"x": "1"})
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                (message,) = await take(consumer, 1)
            assert (message.id, message.topic, message.offset) == (sent.id, "orders", 0)  # type: ignore[union-attr]
            assert message.queue == sent.queue  # type: ignore[union-attr]
            assert (message.body, message.key, message.tag, message.keys) == (b"body", "42", "paid", ["a", "b"])
            assert message.headers == {"x": "1"}
            assert message.attempt == 1
            assert abs((message.stored - message.born).total_seconds()) < 60
            assert "orders" in repr(message)

    run(main)


def test_what_was_committed_is_not_read_again(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await send(mq, 20)
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                assert bodies(await take(consumer, 20)) == expected(20)
                await consumer.commit()
                await consumer.commit()  # again, without effect
            await mq.send("orders", b"20", key="k")
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                assert bodies(await take(consumer, 1)) == [b"20"]
                assert sum(consumer.lag().values()) == 0

    run(main)


def test_an_unfinished_message_is_read_again_with_all_after_it(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(6):
                await mq.send("orders", b"%d" % number, key="same")
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                found: list[Received] = []
                while len(found) < 6:
                    found += await consumer.receive(PATIENCE_S)
                for message in found:
                    if message.body != b"2":
                        await message.ack()
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                assert bodies(await take(consumer, 4)) == [b"2", b"3", b"4", b"5"]

    run(main)


def test_groups_begin_at_the_end_the_start_or_a_time(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(3):
                await mq.send("orders", b"%d" % number, key="k")
                await asyncio.to_thread(broker.advance, "1h")
            between = broker.now() - timedelta(minutes=90)
            async with (
                mq.consumer("last", "orders") as last,
                mq.consumer("first", "orders", start=Start.FIRST) as first,
                mq.consumer("since", "orders", start=Start.at(between)) as since,
            ):
                await mq.send("orders", b"3", key="k")
                assert bodies(await take(last, 1)) == [b"3"]
                assert bodies(await take(first, 4)) == expected(4)
                assert bodies(await take(since, 2)) == [b"2", b"3"]

    run(main)


def test_a_handler_gets_each_message_once_and_concurrently(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await send(mq, 100)
            seen: Counter[bytes] = Counter()
            running = most = 0
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:

                async def handle(message: Received) -> None:
                    nonlocal running, most
                    running += 1
                    most = max(most, running)
                    await asyncio.sleep(0)
                    running -= 1
                    seen[message.body] += 1
                    if len(seen) == 100:
                        consumer.stop()

                await consumer.run(handle, concurrency=7)
            assert seen == Counter(expected(100))
            assert 1 < most <= 7
            assert consumer.stats.handled == 100

    run(main)


def test_batches_are_handled_together_and_one_of_ten_can_fail_alone(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(10):
                await mq.send("orders", b"%d" % number, key="same")
            seen: list[list[bytes]] = []
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:

                async def handle(messages: list[Received]) -> None:
                    seen.append([message.body for message in messages])
                    for message in messages:
                        if message.body == b"4" and message.attempt == 1:
                            await message.retry(1)
                        elif message.attempt == 2:
                            consumer.stop()

                work = asyncio.create_task(consumer.run(handle, batch=32))
                await until(lambda: sum(map(len, seen)) >= 10)
                await asyncio.to_thread(broker.advance, "1s")
                await work
            assert sorted(body for batch in seen for body in batch) == sorted([*expected(10), b"4"])
            assert max(map(len, seen)) > 1

    run(main)


def test_a_failing_message_comes_again_with_more_attempts_and_is_dead_lettered_at_last(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"bad", key="k", headers={"n": "1"})
            attempts: list[int] = []
            async with mq.consumer("g", "orders", start=Start.FIRST, max_attempts=4) as consumer:

                async def handle(message: Received) -> None:
                    assert message.topic == "orders"
                    attempts.append(message.attempt)
                    raise ValueError("always")

                work = asyncio.create_task(consumer.run(handle))
                async with asyncio.timeout(PATIENCE_S):
                    while consumer.stats.failed < 4:
                        await asyncio.to_thread(broker.advance, "10m")
                    await until(lambda: has_dead_letter(broker))
                consumer.stop()
                await work
            assert attempts == [1, 2, 3, 4]
            assert consumer.stats.failed == 4

    run(main)


def test_a_handler_chooses_the_time_of_the_retry_or_gives_up(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"later")
            await mq.send("orders", b"never")
            seen: list[bytes] = []
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:

                async def handle(message: Received) -> None:
                    seen.append(message.body)
                    if message.body == b"never":
                        raise GiveUp("unreadable")
                    if message.attempt == 1:
                        raise Retry(after=timedelta(seconds=30))

                work = asyncio.create_task(consumer.run(handle))
                await until(lambda: len(seen) == 2 and not any(consumer.lag().values()))
                await until(lambda: has_dead_letter(broker))
                await asyncio.to_thread(broker.advance, "29s")
                assert len(seen) == 2
                await asyncio.to_thread(broker.advance, "1s")
                await until(lambda: len(seen) == 3)
                consumer.stop()
                await work
            assert seen[2] == b"later"

    run(main)


def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves(broker: Broker) -> None:
    async def main() -> None:
        broker.create_topic("orders", 5, home="commit-log")
        async with AsyncClient(broker.rocketmq) as mq:
            moves: list[tuple[str, int]] = []

            async def assigned(queues: list[MessageQueue]) -> None:
                moves.append(("assigned", len(queues)))

            async def revoked(queues: list[MessageQueue]) -> None:
                moves.append(("revoked", len(queues)))

            async with mq.consumer("g", "orders", on_assigned=assigned, on_revoked=revoked) as one:  # type: ignore[arg-type]
                assert len(one.assignment) == 5
                async with mq.consumer("g", "orders") as two:
                    await until(lambda: (len(one.assignment), len(two.assignment)) in ((3, 2), (2, 3)))
                    assert not set(one.assignment) & set(two.assignment)
                    assert one.client_id != two.client_id
                await until(lambda: len(one.assignment) == 5)
            assert moves[0] == ("assigned", 5)
            assert [kind for kind, _ in moves] == ["assigned", "revoked", "assigned", "revoked"]

    run(main)


def test_a_handler_that_runs_when_its_queue_is_revoked_is_waited_for(broker: Broker) -> None:
    async def main() -> None:
        broker.create_topic("orders", 1, home="commit-log")
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"0")
            began, go_on = asyncio.Event(), asyncio.Event()

            async def handle(message: Received) -> None:
                began.set()
                await go_on.wait()

            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                work = asyncio.create_task(consumer.run(handle))
                await began.wait()
                closing = asyncio.create_task(consumer.close())
                await asyncio.sleep(0.05)
                assert not closing.done()
                go_on.set()
                await closing
                await work
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                assert await consumer.receive(0.3) == []

    run(main)


def test_a_cancelled_handler_leaves_its_message_unfinished(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"0")
            began = asyncio.Event()

            async def handle(message: Received) -> None:
                began.set()
                await asyncio.Event().wait()

            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                work = asyncio.create_task(consumer.run(handle))
                await began.wait()
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work
                assert bodies(await take(consumer, 1)) == [b"0"]

    run(main)


def test_ordered_messages_are_handled_one_by_one_and_failures_wait_in_place(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for step in range(20):
                for key in range(5):
                    await mq.send("orders", b"%d" % step, key=f"order-{key}", ordered=True)
            seen: dict[str, list[int]] = {}
            failed: set[tuple[str, int]] = set()
            running: Counter[MessageQueue] = Counter()
            async with mq.consumer("g", "orders", start=Start.FIRST, ordered=True, retry_pause=0.01) as consumer:

                async def handle(message: Received) -> None:
                    running[message.queue] += 1
                    assert running[message.queue] == 1
                    await asyncio.sleep(0)
                    running[message.queue] -= 1
                    key, step = message.key or "", int(message.body)
                    if step == 7 and (key, step) not in failed:
                        failed.add((key, step))
                        raise ValueError("once")
                    assert (message.attempt == 2) == ((key, step) in failed)
                    seen.setdefault(key, []).append(step)
                    if sum(map(len, seen.values())) == 100:
                        consumer.stop()

                await consumer.run(handle, concurrency=20)
            assert seen == {f"order-{key}": list(range(20)) for key in range(5)}

    run(main)


def test_an_ordered_message_is_dead_lettered_at_its_limit_and_the_next_one_follows(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(2):
                await mq.send("orders", b"%d" % number, key="k")
            attempts: list[tuple[bytes, int]] = []
            options = {"ordered": True, "max_attempts": 3, "retry_pause": 0.01}
            async with mq.consumer("g", "orders", start=Start.FIRST, **options) as consumer:  # type: ignore[arg-type]

                async def handle(message: Received) -> None:
                    attempts.append((message.body, message.attempt))
                    if message.body == b"0":
                        raise ValueError("always")
                    consumer.stop()

                await consumer.run(handle)
            assert attempts == [(b"0", 1), (b"0", 2), (b"0", 3), (b"1", 1)]
            assert [record.body for record in broker.records("%DLQ%g")] == [b"0"]

    run(main)


def test_a_second_ordered_member_waits_for_the_locks_of_the_first(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await send(mq, 8)
            async with mq.consumer("g", "orders", ordered=True) as one:
                assert len(one.assignment) == 4
                async with mq.consumer("g", "orders", ordered=True) as two:
                    await until(lambda: len(one.assignment) == len(two.assignment) == 2)
                await until(lambda: len(one.assignment) == 4)

    run(main)


def test_a_message_is_not_handed_out_after_its_lock_is_lost(broker: Broker) -> None:
    async def main() -> None:
        lost: list[MessageQueue] = []

        async def on_lost(queues: list[MessageQueue]) -> None:
            lost.extend(queues)

        broker.create_topic("orders", 1, home="commit-log")
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(3):
                await mq.send("orders", b"%d" % number)
            async with mq.consumer("g", "orders", start=Start.FIRST, ordered=True, on_lost=on_lost) as consumer:  # type: ignore[arg-type]
                (message,) = await consumer.receive(PATIENCE_S, limit=1)
                consumer.locks.forget(message.queue)  # as if it had not been renewed in time
                await message.ack()
                await until(lambda: len(lost) == 1)
                # The result of the handler was not counted: the queue is read again from there.
                assert bodies(await take(consumer, 3)) == expected(3)

    run(main)


def test_every_broadcast_member_gets_everything_and_goes_on_where_it_was(broker: Broker, tmp_path: Path) -> None:
    async def main() -> None:
        files = [LocalFile(tmp_path, f"member-{number}") for number in range(2)]
        async with AsyncClient(broker.rocketmq) as mq:
            await send(mq, 10)
            options = {"start": Start.FIRST, "broadcast": True}
            async with (
                mq.consumer("g", "orders", offsets=files[0], **options) as one,  # type: ignore[arg-type]
                mq.consumer("g", "orders", offsets=files[1], **options) as two,  # type: ignore[arg-type]
            ):
                assert bodies(await take(one, 10)) == bodies(await take(two, 10)) == expected(10)
            await mq.send("orders", b"10")
            async with mq.consumer("g", "orders", offsets=files[0], **options) as one:  # type: ignore[arg-type]
                (message,) = await one.receive(PATIENCE_S)
                assert message.body == b"10"
                await message.retry()  # a broadcast consumer has no retries
                assert sum(one.lag().values()) == 0

    run(main)


def test_tags_with_equal_hashes_do_not_reach_the_handler(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for tag in ("Aa", "BB", "Aa", "CC"):
                await mq.send("orders", tag.encode(), tag=tag)
            async with mq.consumer("g", {"orders": "Aa || CC"}, start=Start.FIRST) as consumer:
                assert sorted(message.body for message in await take(consumer, 3)) == [b"Aa", b"Aa", b"CC"]
                assert await consumer.receive(0.2) == []

    run(main)


def test_sql_filters_at_the_broker_and_a_bad_one_is_refused_at_subscribe(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(6):
                await mq.send("orders", b"%d" % number, headers={"n": str(number)})
            async with mq.consumer("g", {"orders": Sql("n > 3")}, start=Start.FIRST) as consumer:
                assert bodies(await take(consumer, 2)) == [b"4", b"5"]
            with pytest.raises(Refused):
                await mq.consumer("h", {"orders": Sql("n >")}).__aenter__()

    run(main)


def test_expired_messages_are_dropped_and_counted(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"old", ttl=timedelta(seconds=5))
            await mq.send("orders", b"new", ttl=timedelta(hours=5))
            await asyncio.to_thread(broker.advance, "10s")
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                assert [message.body for message in await take(consumer, 1)] == [b"new"]
                assert await consumer.receive(0.2) == []

    run(main)


def test_a_paused_topic_hands_out_nothing_until_it_is_resumed(broker: Broker) -> None:
    async def main() -> None:
        async with (
            AsyncClient(broker.rocketmq) as mq,
            mq.consumer("g", "orders", start=Start.FIRST) as consumer,
        ):
            consumer.pause("orders")
            await send(mq, 5)
            assert await consumer.receive(0.2) == []
            consumer.resume("orders")
            assert bodies(await take(consumer, 5)) == expected(5)

    run(main)


def test_a_seek_goes_back_or_ahead(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(5):
                sent = await mq.send("orders", b"%d" % number, key="k")
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                await take(consumer, 5)
                queue = sent.queue  # type: ignore[union-attr]
                await consumer.seek(queue, 3)
                assert bodies(await take(consumer, 2)) == [b"3", b"4"]
                await consumer.seek(queue, Start.FIRST)
                assert bodies(await take(consumer, 5)) == expected(5)
                assert consumer.position(queue) == 5
                with pytest.raises(ValueError, match="not assigned"):
                    await consumer.seek(MessageQueue("orders", "x", 0), 0)

    run(main)


def test_a_full_buffer_stops_pulling_and_a_finished_message_resumes_it(broker: Broker) -> None:
    async def main() -> None:
        broker.create_topic("orders", 1, home="commit-log")
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send_all("orders", [Message(b"%d" % number) for number in range(200)])
            limits = BufferLimits(messages=64)
            async with mq.consumer("g", "orders", start=Start.FIRST, limits=limits) as consumer:
                assigned = consumer._assigned[consumer.assignment[0]]
                await until(lambda: len(assigned.messages) >= 64)
                await asyncio.sleep(0.05)
                assert len(assigned.messages) == 64
                assert bodies(await take(consumer, 200)) == expected(200)

    run(main)


def test_messages_are_settled_once_and_pulled_ones_cannot_be_extended(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"0")
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                (message,) = await consumer.receive(PATIENCE_S)
                await message.ack()
                await message.ack()
                await message.retry()
                await message.give_up()
                assert consumer.stats.handled == 1
                with pytest.raises(Unsupported, match="pop"):
                    await message.extend(5)
            assert [record for record in broker.records("%RETRY%g") if record] == []

    run(main)


def test_at_most_once_commits_before_the_handler(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"0")
            async with mq.consumer("g", "orders", start=Start.FIRST, delivery="at-most-once") as consumer:

                async def handle(message: Received) -> None:
                    consumer.stop()
                    raise ValueError("lost")

                await consumer.run(handle)
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                assert await consumer.receive(0.3) == []

    run(main)


def test_a_member_with_another_subscription_is_named(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"0")
            async with mq.consumer("g", {"orders": "a"}) as one:
                with pytest.raises(SubscriptionConflict, match=one.client_id):
                    await mq.consumer("g", {"orders": "b"}, strict=True).__aenter__()

    run(main)


def test_a_member_that_comes_later_with_another_subscription_is_named_and_ends_a_strict_one(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"0")
            async with (
                mq.consumer("g", {"orders": "a"}) as tolerant,
                mq.consumer("h", {"orders": "a"}, strict=True) as strict,
            ):
                work = asyncio.create_task(strict.run(print))
                async with mq.consumer("g", {"orders": "b"}), mq.consumer("h", {"orders": "b"}) as other:
                    with pytest.raises(SubscriptionConflict, match=other.client_id):
                        await asyncio.wait_for(work, PATIENCE_S)
                    named = [
                        record for record in caplog.records if "all members of a group must agree" in record.message
                    ]
                    assert any("group g" in record.message for record in named)
                    assert tolerant.assignment

    run(main)


def test_a_handler_that_takes_too_long_does_not_keep_its_message(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"0")
            attempts: list[int] = []
            async with mq.consumer("g", "orders", start=Start.FIRST, work_timeout=0.1) as consumer:

                async def handle(message: Received) -> None:
                    attempts.append(message.attempt)
                    if message.attempt == 1:
                        await asyncio.Event().wait()
                    consumer.stop()

                work = asyncio.create_task(consumer.run(handle))
                await until(lambda: consumer.stats.overdue == 1 and not any(consumer.lag().values()))  # sent back
                await asyncio.to_thread(broker.advance, "10s")
                await until(lambda: len(attempts) == 2)
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            assert attempts == [1, 2]

    run(main)


def test_a_consumer_goes_on_after_a_restart_of_the_broker(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, timeout=PATIENCE_S, retries=50) as mq:
            await send(mq, 5)
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                assert bodies(await take(consumer, 5)) == expected(5)
                await asyncio.to_thread(broker.restart)
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        try:
                            await mq.send("orders", b"5")
                            break
                        except Exception:
                            await asyncio.sleep(0.05)
                assert b"5" in bodies(await take(consumer, 1))

    run(main)
