"""aiokafka in groups, against a broker process: every assignor, static members, and commits that survive a restart. It
uses the oldest versions of the group APIs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tools.broker import running

PATIENCE_S = 30
PARTITIONS = 4
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
ARGUMENTS = ["--kafka-num-partitions", str(PARTITIONS)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ARGUMENTS) as addresses:
        yield addresses["kafka"]


async def send(broker: str, topic: str, bodies: range) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker, acks="all") as producer:
        for number in bodies:
            await producer.send_and_wait(topic, b"%d" % number, partition=number % PARTITIONS)


class Member:
    """One consumer and the records that it has read."""

    def __init__(self, broker: str, group: str, topic: str, **settings: object) -> None:
        own = {"enable_auto_commit": False, "session_timeout_ms": 6000, "heartbeat_interval_ms": 300, **settings}
        self.consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest", **own
        )
        self.read: list[bytes] = []

    async def poll(self) -> None:
        for records in (await self.consumer.getmany(timeout_ms=50)).values():
            self.read += [record.value for record in records]

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    async def __aenter__(self) -> Member:
        await self.consumer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.consumer.stop()


async def poll_until(members: list[Member], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, [(each.owned, len(each.read)) for each in members]
        await asyncio.gather(*(member.poll() for member in members))


def is_divided(members: list[Member], sizes: list[int]) -> bool:
    """Tells whether each partition has exactly one owner, with assignments of these sizes."""
    shares = [member.owned for member in members]
    return sorted(map(len, shares)) == sizes and set.union(*shares) == set(range(PARTITIONS))


def has_read(members: list[Member], bodies: range) -> bool:
    return {body for member in members for body in member.read} == {b"%d" % number for number in bodies}


async def share_and_take_over(broker: str, assignor: type) -> None:
    topic = f"shared-{assignor.name}"
    await send(broker, topic, range(40))
    async with AsyncExitStack() as stack:
        groups = [
            [Member(broker, f"{topic}-{name}", topic, partition_assignment_strategy=[assignor]) for _ in range(2)]
            for name in ("one", "two")
        ]
        everybody = groups[0] + groups[1]
        await asyncio.gather(*(stack.enter_async_context(member) for member in everybody))
        await poll_until(everybody, lambda: all(is_divided(group, [2, 2]) for group in groups))
        await poll_until(everybody, lambda: all(has_read(group, range(40)) for group in groups))
        for member in everybody:
            await member.consumer.commit()
        await groups[0].pop().consumer.stop()
        survivor = groups[0][0]
        others = [member for member in everybody if member in groups[0] + groups[1]]
        await poll_until(others, lambda: is_divided(groups[0], [PARTITIONS]))
        assert is_divided(groups[1], [2, 2])
        survivor.read.clear()
        await send(broker, topic, range(40, 60))
        await poll_until(others, lambda: has_read([survivor], range(40, 60)))


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: str(each.name))
def test_two_groups_of_two_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    broker: str, assignor: type
) -> None:
    asyncio.run(share_and_take_over(broker, assignor))


async def read_and_commit(broker: str, sent: range) -> list[bytes]:
    await send(broker, "kept", sent)
    async with Member(broker, "keepers", "kept") as member:
        await poll_until([member], lambda: len(member.read) >= len(sent))
        await member.consumer.commit()
        return sorted(member.read, key=int)


def test_reading_resumes_at_the_committed_offset_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, ARGUMENTS) as addresses:
        asyncio.run(read_and_commit(addresses["kafka"], range(20)))
    (tmp_path / "ready.json").unlink()
    with running(tmp_path, ARGUMENTS) as addresses:
        read = asyncio.run(read_and_commit(addresses["kafka"], range(20, 30)))
    assert read == [b"%d" % number for number in range(20, 30)]


async def come_back(broker: str) -> None:
    await send(broker, "static", range(4))
    async with Member(broker, "static", "static", group_instance_id="first") as first:
        async with Member(broker, "static", "static", group_instance_id="second") as second:
            await poll_until([first, second], lambda: is_divided([first, second], [2, 2]))
            owned, generation = second.owned, first.consumer._coordinator.generation
        async with Member(broker, "static", "static", group_instance_id="second") as again:
            await poll_until([first, again], lambda: len(again.owned) == 2)
            assert again.owned == owned
            assert first.consumer._coordinator.generation == generation


def test_a_static_member_gets_its_partitions_back_without_a_rebalance(broker: str) -> None:
    asyncio.run(come_back(broker))
