"""Numbers of producers: planted losses and repeats are all found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trimq.client import AsyncClient, BadMessage, Message, MessageQueue, Received, Start
from trimq.client.numbering import Numbering, SequenceCheck
from trimq.formats.sequences import Fault
from trimq.testing import Broker


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


async def receive(mq: AsyncClient, count: int) -> list[Received]:
    found: list[Received] = []
    async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
        while len(found) < count:
            messages = await consumer.receive(20)
            assert messages
            found += messages
    return sorted(found, key=lambda message: (message.queue, message.offset))


def test_what_is_sent_without_faults_has_none(broker: Broker) -> None:
    async def main() -> None:
        numbering = Numbering(pin=[0, 2])
        async with AsyncClient(broker.rocketmq, interceptors=[numbering], choose=numbering.choose) as mq:
            for number in range(20):
                await mq.send("orders", b"%d" % number, headers={"x": "1"})
            messages = await receive(mq, 20)
            assert {message.queue.id for message in messages} == {0, 2}
            assert messages[0].headers == {"x": "1"}
            check = SequenceCheck(from_start=True)
            for message in messages:
                assert check.note(message) == []
            assert check.faults() == []
            assert check.unstamped == 0
            assert numbering.counts == {("orders", 0): 10, ("orders", 2): 10}

    run(main)


def test_planted_losses_repeats_and_late_messages_are_all_found(broker: Broker) -> None:
    async def main() -> None:
        numbering = Numbering(producer=7)
        async with AsyncClient(broker.rocketmq, interceptors=[numbering], choose=numbering.choose) as mq:
            for number in range(10):
                await mq.send("orders", b"%d" % number)
            messages = await receive(mq, 10)
        seen: list[Fault] = []
        check = SequenceCheck(seen.append, from_start=True)
        for number in (1, 2, 5, 4, 6, 6, 9):  # 0, 3, 7 and 8 are lost, 4 is late, 6 is repeated
            check.note(messages[number])
        # A check of another process goes on with what this one has seen.
        check = SequenceCheck(seen.append, kept=check.as_json(), from_start=True)
        check.note(messages[2])
        assert [(fault.kind, fault.sequence) for fault in seen] == [
            ("reordered", 4),
            ("duplicate", 6),
            ("duplicate", 2),
        ]
        gaps = [(fault.sequence, fault.records) for fault in check.faults() if fault.kind == "gap"]
        assert sorted(gaps) == [(0, 1), (3, 1), (7, 2)]

    run(main)


def test_messages_without_numbers_are_counted(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"plain")
            (message,) = await receive(mq, 1)
        check = SequenceCheck()
        assert check.note(message) == []
        assert check.unstamped == 1

    run(main)


def test_a_producer_sends_to_its_places_alone() -> None:
    numbering = Numbering(pin=[3])
    queues = [MessageQueue("orders", "a", number) for number in range(4)]
    message = numbering("orders", Message(b"x"))
    assert numbering.choose(queues, message) == queues[3]
    with pytest.raises(BadMessage, match="pinned to place 3"):
        numbering.choose(queues[:2], message)
    with pytest.raises(BadMessage, match="no number"):
        numbering.choose(queues, Message(b"x"))
    with pytest.raises(ValueError, match="each once"):
        Numbering(pin=[1, 1])
