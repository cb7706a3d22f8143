"""Outbox on SQLite: example E17 with scripted faults of the broker, and the embedded broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from client.scripted import ROUTE, SEND, SILENT, Answer, Server, route_of, serving, stored

from trimq.client import AsyncClient, BadMessage, Message, Start
from trimq.client.outbox import Cursor, Database, Outbox, OutboxRow, Relay
from trimq.clock import ManualTime
from trimq.testing import Broker
from trimq.wire.remoting import Command


class Time(ManualTime):
    def advance(self, milliseconds: int) -> None:
        self.step(self.now_ms() + milliseconds)


@pytest.fixture
def clock() -> Time:
    return Time(1_000_000)


@pytest.fixture
def outbox(tmp_path: Path, clock: Time) -> Outbox:
    found = Outbox(Database.sqlite(str(tmp_path / "shop.db")), timeline=clock)
    found.prepare()
    return found


def add(outbox: Outbox, body: bytes, key: str | None = None) -> str:
    with outbox.database.transaction() as cursor:
        return outbox.add(cursor, "orders", Message(body, key=key, tag="paid", keys=["a"], headers={"x": "1"}))


def fail_to_pay(outbox: Outbox) -> None:
    with outbox.database.transaction() as cursor:
        outbox.add(cursor, "orders", Message(b"rolled back"))
        raise ValueError("no money")


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def test_a_message_is_sent_after_the_commit_and_only_then(broker: Broker, outbox: Outbox) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            relay = Relay(outbox, mq)
            with pytest.raises(ValueError, match="no money"):
                fail_to_pay(outbox)
            assert await relay.run_once() == 0
            id = add(outbox, b"paid", key="42")
            assert await relay.run_once() == 1
            assert outbox.counts() == {"waiting": 0, "given up": 0}
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                (message,) = await consumer.receive(20)
            assert (message.id, message.body, message.key, message.tag) == (id, b"paid", "42", "paid")
            assert (message.keys, message.headers) == (["a"], {"x": "1"})

    run(main)


class Faulty:
    """Broker whose first send has a fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.stored: Counter[bytes] = Counter()
        self.is_faulty = True

    def __call__(self, server: Server, command: Command) -> Answer | None:
        if command.code == ROUTE:
            return route_of({"a": server.address})
        if command.code != SEND:
            return Answer()
        fault, self.is_faulty = self.fault if self.is_faulty else "", False
        if fault == "refused":
            return Answer(13, remark="illegal")
        if fault == "silent":
            return SILENT
        if fault == "cut":
            server.cut()
            return SILENT
        self.stored[bytes(command.body)] += 1
        if fault == "answer lost":
            server.cut()
            return SILENT
        return stored(command, code=10 if fault == "not on disk" else 0)


@pytest.mark.parametrize("fault", ["refused", "silent", "cut", "answer lost", "not on disk"])
def test_a_message_is_sent_again_after_a_fault(fault: str, outbox: Outbox, clock: Time) -> None:
    async def main() -> None:
        broker = Faulty(fault)
        add(outbox, b"paid")
        async with serving(broker) as server, AsyncClient(server.address, retries=0, timeout=0.3) as mq:
            relay = Relay(outbox, mq, back_off=5)
            assert await relay.run_once() == 0
            assert outbox.counts() == {"waiting": 1, "given up": 0}
            clock.advance(4_999)
            assert await relay.run_once() == 0
            assert len(server.asked(SEND)) == 1
            clock.advance(1)
            assert await relay.run_once() == 1
            assert outbox.counts() == {"waiting": 0, "given up": 0}
            ids = {
                command.fields["i"].partition("UNIQ_KEY\x01")[2].partition("\x02")[0] for command in server.asked(SEND)
            }
            assert len(ids) == 1
        # What was stored before the fault is stored twice, with one id.
        assert broker.stored[b"paid"] == (2 if fault in ("answer lost", "not on disk") else 1)
        assert (relay.stats.sent, relay.stats.failed) == (1, 1)

    run(main)


def test_a_message_waits_for_the_earlier_ones_of_its_key(outbox: Outbox, clock: Time) -> None:
    async def main() -> None:
        broker = Faulty("refused")
        for body, key in ((b"1", "a"), (b"2", "a"), (b"3", "b")):
            add(outbox, body, key)
        async with serving(broker) as server, AsyncClient(server.address, retries=0, timeout=1) as mq:
            relay = Relay(outbox, mq, back_off=5)
            assert [row.message.body for row in outbox.claim("x", 10, 0)] == [b"1", b"3"]
            assert await relay.run_once() == 1  # one of the two is refused
            waiting = [bytes(command.body) for command in server.asked(SEND)]
            assert sorted(waiting) == [b"1", b"3"]
            for _ in range(3):
                clock.advance(5_000)
                await relay.run_once()
            order = [bytes(command.body) for command in server.asked(SEND)]
            assert order.index(b"2") > order.index(b"1")
            assert broker.stored == Counter([b"1", b"2", b"3"])
            assert outbox.counts()["waiting"] == 0

    run(main)


def test_after_the_last_try_the_cause_is_compensated_once(outbox: Outbox, clock: Time) -> None:
    with outbox.database.transaction() as cursor:
        cursor.execute("create table refunds (id text)")
    undone: list[str] = []

    def refund(cursor: Cursor, row: OutboxRow) -> None:
        cursor.execute("insert into refunds (id) values (?)", row.id)
        undone.append(row.id)

    def refusing(server: Server, command: Command) -> Answer | None:
        return route_of({"a": server.address}) if command.code == ROUTE else Answer(13 if command.code == SEND else 0)

    async def main() -> None:
        id = add(outbox, b"paid")
        async with serving(refusing) as server, AsyncClient(server.address, retries=0, timeout=1) as mq:
            relay = Relay(outbox, mq, back_off=1, longest=2, max_tries=3, compensate=refund)
            for _ in range(6):
                await relay.run_once()
                clock.advance(2_000)
            assert len(server.asked(SEND)) == 3
        assert undone == [id]
        assert relay.stats.given_up == 1
        assert outbox.counts() == {"waiting": 0, "given up": 1}

    run(main)


def test_a_relay_that_died_leaves_its_messages_to_another_one(outbox: Outbox, clock: Time) -> None:
    add(outbox, b"paid")
    (row,) = outbox.claim("dead", 10, 60_000)
    assert outbox.claim("other", 10, 60_000) == []
    clock.advance(60_000)
    (again,) = outbox.claim("other", 10, 60_000)
    assert again == row
    outbox.sent("dead", row)  # too late: the message belongs to the other one
    assert outbox.counts()["waiting"] == 1
    outbox.sent("other", again)
    assert outbox.counts()["waiting"] == 0


def test_a_running_relay_sends_when_it_is_woken(broker: Broker, outbox: Outbox) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            relay = Relay(outbox, mq, every=3600)
            work = asyncio.create_task(relay.run())
            await asyncio.sleep(0.05)
            add(outbox, b"paid")
            relay.wake()
            async with asyncio.timeout(20):
                while outbox.counts()["waiting"]:
                    await asyncio.sleep(0.01)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            assert relay.stats.sent == 1

    run(main)


def test_a_message_that_an_outbox_cannot_keep_is_refused(outbox: Outbox) -> None:
    with outbox.database.transaction() as cursor:
        with pytest.raises(BadMessage, match="does not serialise"):
            outbox.add(cursor, "orders", Message({"a": 1}))
        with pytest.raises(BadMessage, match="delay"):
            outbox.add(cursor, "orders", Message(b"x", delay=5))
        outbox.add(cursor.raw, "orders", Message(b"by the cursor of the driver"))
    assert outbox.counts()["waiting"] == 1
