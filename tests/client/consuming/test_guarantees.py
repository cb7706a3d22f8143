"""Guarantees of consuming: nothing is lost by `kill -9`, retries come at their times to the end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimq.client import AsyncClient, Received, Start
from trimq.client.consuming.offsets import BrokerOffsets
from trimq.client.consuming.returning import LEVELS_MS
from trimq.client.messages import MessageQueue
from trimq.testing import Broker

TESTS = Path(__file__).parents[2]
PATIENCE_S = 30
ROUNDS = 8
MESSAGES = 400


def handled(path: Path) -> set[tuple[int, int]]:
    """Returns queue and offset of the messages that were handled; a cut last line does not count."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return {(int(queue), int(offset)) for queue, offset, _ in map(bytes.split, lines)}


async def committed(mq: AsyncClient, sent: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
    instance = mq._opened().instance
    offsets = BrokerOffsets(instance, "g")
    return {queue: await offsets.read(queue) or 0 for queue in sent}


@pytest.mark.timeout(300)
def test_a_member_that_is_killed_amid_concurrent_work_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "handled"
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"}

    async def main() -> None:
        ends: dict[MessageQueue, int] = {}
        async with AsyncClient(broker.rocketmq) as mq:
            for number in range(MESSAGES):
                sent = await mq.send("orders", b"%d" % number)
                ends[sent.queue] = sent.offset + 1  # type: ignore[union-attr]
            for kill_after in [*range(1, ROUNDS), None]:
                process = subprocess.Popen(
                    [sys.executable, "-m", "client.consuming.killed", broker.rocketmq, str(path)], env=environment
                )
                deadline, before = time.monotonic() + PATIENCE_S, len(handled(path))
                enough = MESSAGES if kill_after is None else min(before + 5 * kill_after, MESSAGES)
                while len(handled(path)) < enough:
                    assert time.monotonic() < deadline, f"{len(handled(path))} of {enough} messages were handled"
                    assert process.poll() is None
                    await asyncio.sleep(0.01)
                process.kill()
                process.wait(PATIENCE_S)
                done = handled(path)
                for queue, offset in (await committed(mq, ends)).items():
                    unfinished = [each for each in range(offset) if (queue.id, each) not in done]
                    assert unfinished == [], f"{queue} is committed at {offset}"
            assert handled(path) == {(queue.id, offset) for queue, end in ends.items() for offset in range(end)}

    asyncio.run(main())


def test_a_failing_message_comes_15_times_again_at_the_times_of_levels_3_to_17_and_is_dead_lettered(
    broker: Broker,
) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"bad")
            attempts: list[int] = []
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:

                async def handle(message: Received) -> None:
                    attempts.append(message.attempt)
                    raise ValueError("always")

                work = asyncio.create_task(consumer.run(handle))
                async with asyncio.timeout(PATIENCE_S):
                    for number in range(1, 16):
                        while len(attempts) < number or sum(consumer.lag().values()):
                            await asyncio.sleep(0.005)
                        while len(broker.records("SCHEDULE_TOPIC_XXXX", number + 1)) < 1:
                            await asyncio.sleep(0.005)
                        level_ms = LEVELS_MS[number + 1]  # the first retry has level 3
                        await asyncio.to_thread(broker.advance, (level_ms - 1) / 1000)
                        assert len(attempts) == number
                        await asyncio.to_thread(broker.advance, 0.001)
                    while len(attempts) < 16 or consumer.stats.failed < 16:
                        await asyncio.sleep(0.005)
                consumer.stop()
                await work
            assert attempts == list(range(1, 17))
            assert [record.body for record in broker.records("%DLQ%g")] == [b"bad"]

    asyncio.run(main())


def test_every_one_of_a_thousand_queues_is_served_within_one_long_poll(broker: Broker) -> None:
    async def main() -> None:
        broker.create_topic("orders", 1000, home="commit-log")
        async with (
            AsyncClient(broker.rocketmq, timeout=PATIENCE_S) as mq,
            mq.consumer("g", "orders", start=Start.FIRST) as consumer,
        ):
            assert len(consumer.assignment) == 1000
            began = time.monotonic()
            sends = [
                mq.send("orders", b"x", choose=lambda queues, message, number=number: queues[number])  # type: ignore[misc]
                for number in range(1000)
            ]
            await asyncio.gather(*sends)
            served: set[MessageQueue] = set()
            while len(served) < 1000:
                messages = await consumer.receive(PATIENCE_S)
                assert messages, f"only {len(served)} queues were served"
                for message in messages:
                    served.add(message.queue)
                    await message.ack()
            assert time.monotonic() - began < 15
            assert sum(consumer.lag().values()) == 0

    asyncio.run(main())
