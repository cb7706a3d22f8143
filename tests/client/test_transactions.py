"""Transactional messages with check-back."""

from __future__ import annotations

import asyncio

import pytest
from client.scripted import ROUTE, SEND, Answer, Server, route_of, serving, stored

from trimq.client import AsyncClient, BadMessage, Client, ClientError, Message, Refused, Start, UndecidedHalf, Verdict
from trimq.testing import Broker
from trimq.wire.remoting import Command

END = 37


def bodies(broker: Broker, topic: str = "orders") -> set[bytes | None]:
    return {record.body for number in range(4) for record in broker.records(topic, number)}


async def wait_until_asked(asked: asyncio.Event, broker: Broker, duration: str = "2m") -> None:
    await asyncio.to_thread(broker.advance, duration)
    async with asyncio.timeout(20):
        await asked.wait()


def test_leaving_a_transaction_commits_and_an_exception_rolls_back(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, group="shop") as mq:
            async with mq.transaction("orders", b"kept", key="7", keys=["order-7"]) as half:
                assert bodies(broker) == set()
            with pytest.raises(ZeroDivisionError):
                async with mq.transaction("orders", b"failed"):
                    raise ZeroDivisionError
            async with mq.transaction("orders", b"taken back") as other:
                other.roll_back()
            assert bodies(broker) == {b"kept"}
            assert len(half.id) == 32

    asyncio.run(main())


def test_the_broker_asks_about_a_half_that_was_left_undecided(broker: Broker) -> None:
    async def main() -> None:
        asked = asyncio.Event()
        seen: list[UndecidedHalf] = []
        async with AsyncClient(broker.rocketmq, group="shop") as mq:

            @mq.check
            async def decided(half: UndecidedHalf) -> Verdict:
                seen.append(half)
                asked.set()
                return Verdict.COMMIT

            async with mq.transaction("orders", b"1", keys=["order-1"], headers={"a": "b"}) as half:
                half.leave_undecided()
            await wait_until_asked(asked, broker)
            async with asyncio.timeout(20):
                while bodies(broker) != {b"1"}:
                    await asyncio.sleep(0)
            found = seen[0]
            assert (found.topic, found.id, found.body, found.keys) == ("orders", half.id, b"1", ["order-1"])
            assert found.headers == {"a": "b"}

    asyncio.run(main())


def test_another_process_of_the_group_answers_for_one_that_died(broker: Broker) -> None:
    async def main() -> None:
        asked = asyncio.Event()
        async with AsyncClient(broker.rocketmq, group="shop") as died, died.transaction("orders", b"1") as half:
            half.leave_undecided()
        async with AsyncClient(broker.rocketmq, group="shop") as mq:

            def decided(half: UndecidedHalf) -> Verdict:
                asked.set()
                return Verdict.COMMIT

            mq.check(decided)
            await mq.send("other", b"x")  # tells the broker that this client is of the group
            await wait_until_asked(asked, broker)
            async with asyncio.timeout(20):
                while bodies(broker) != {b"1"}:
                    await asyncio.sleep(0)

    asyncio.run(main())


def test_a_check_that_fails_or_does_not_know_is_asked_15_times_then_the_half_is_set_aside(broker: Broker) -> None:
    async def main() -> int:
        count = 0
        async with AsyncClient(broker.rocketmq, group="shop") as mq:

            @mq.check
            def decided(half: UndecidedHalf) -> Verdict:
                nonlocal count
                count += 1
                if count % 2:
                    raise ValueError("database down")
                return Verdict.UNKNOWN

            async with mq.transaction("orders", b"1") as half:
                half.leave_undecided()
            for _ in range(40):
                await asyncio.to_thread(broker.advance, "1m")
                await mq.send("other", b"x")
        return count

    assert asyncio.run(main()) == 15
    assert bodies(broker) == set()
    assert [record.body for record in broker.records("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"1"]


def test_the_first_question_waits_for_check_after(broker: Broker) -> None:
    async def main() -> None:
        asked = asyncio.Event()
        async with AsyncClient(broker.rocketmq, group="shop") as mq:

            @mq.check
            def decided(half: UndecidedHalf) -> Verdict:
                asked.set()
                return Verdict.ROLLBACK

            async with mq.transaction("orders", b"1", check_after=600) as half:
                half.leave_undecided()
            await asyncio.to_thread(broker.advance, "8m")
            await mq.send("other", b"x")
            assert not asked.is_set()
            await wait_until_asked(asked, broker, "5m")

    asyncio.run(main())


def test_a_half_that_is_delayed_or_dropped_is_refused(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, interceptors=[lambda topic, message: None]) as mq:
            with pytest.raises(BadMessage, match="dropped"):
                async with mq.transaction("orders", b"1"):
                    pass

        def delay(topic: str, message: Message) -> Message:
            return Message(message.body, delay=5)

        async with AsyncClient(broker.rocketmq, interceptors=[delay]) as mq:
            with pytest.raises(BadMessage, match="delayed"):
                async with mq.transaction("orders", b"1"):
                    pass

    asyncio.run(main())


@pytest.mark.parametrize("end", [Answer(1, remark="unknown half message"), Answer()])
def test_a_refused_commit_is_raised(end: Answer) -> None:
    def script(server: Server, command: Command) -> Answer | None:
        if command.code == ROUTE:
            return route_of({"a": server.address})
        if command.code == END:
            return end
        return stored(command) if command.code == SEND else Answer()

    async def main() -> Server:
        async with serving(script) as server, AsyncClient(server.address) as mq:
            if end.code:
                with pytest.raises(Refused, match="unknown half message"):
                    async with mq.transaction("orders", b"1"):
                        pass
            else:
                async with mq.transaction("orders", b"1"):
                    pass
        return server

    server = asyncio.run(main())
    (ended,) = server.asked(END)
    assert (ended.fields["commitOrRollback"], ended.fields["fromTransactionCheck"]) == ("8", "false")


def test_a_half_that_is_not_safely_stored_is_rolled_back() -> None:
    def script(server: Server, command: Command) -> Answer | None:
        if command.code == ROUTE:
            return route_of({"a": server.address})
        return stored(command, code=10) if command.code == SEND else Answer()

    async def main() -> Server:
        async with serving(script) as server, AsyncClient(server.address) as mq:
            with pytest.raises(ClientError, match="FLUSH_DISK_TIMEOUT"):
                async with mq.transaction("orders", b"1"):
                    raise AssertionError("not reached")
        return server

    (ended,) = asyncio.run(main()).asked(END)
    assert ended.fields["commitOrRollback"] == "12"


def test_the_blocking_client_does_the_same(broker: Broker) -> None:
    with Client(broker.rocketmq, group="shop") as mq:
        with mq.transaction("orders", b"1"):
            pass
        with pytest.raises(ZeroDivisionError), mq.transaction("orders", b"2"):
            raise ZeroDivisionError

        @mq.check
        def decided(half: UndecidedHalf) -> Verdict:
            return Verdict.COMMIT

        with mq.transaction("orders", b"3") as half:
            half.leave_undecided()
        broker.advance("2m")
        with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
            found: set[bytes] = set()
            while found != {b"1", b"3"}:
                found |= {message.body for message in consumer.receive(20)}
