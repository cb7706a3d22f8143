"""E9, Python client: four allocation strategies, their shares, and how many queues move when a member joins

A group of three members shares eight queues; a fourth member joins. The shares are computed as every member does it,
and two real members show the same.
Needs TRIMQ_ROCKETMQ, the name server's address.
"""

from __future__ import annotations

import asyncio
import os
import uuid

from trimq.client import AsyncClient, Average, Circular, ConsistentHash, MessageQueue, SameRoom
from trimq.client.consuming.allocation import Allocation

NAME_SERVER = os.environ["TRIMQ_ROCKETMQ"]
TOPIC = f"e09-{uuid.uuid4().hex[:8]}"
QUEUES = [MessageQueue(TOPIC, broker, number) for broker in ("north-1", "south-1") for number in range(4)]
MEMBERS = ["north@1", "north@2", "south@1"]
PATIENCE_S = 30


def room(name: str) -> str:
    return name.partition("@")[0].partition("-")[0]


STRATEGIES: list[Allocation] = [Average(), Circular(), ConsistentHash(), SameRoom(room)]


def owners(strategy: Allocation, members: list[str]) -> dict[MessageQueue, str]:
    """Returns the member of each queue; every queue has exactly one."""
    found: dict[MessageQueue, str] = {}
    for member in members:
        for queue in strategy.allocate(member, members, QUEUES):
            assert queue not in found, f"{queue} has two owners"
            found[queue] = member
    assert len(found) == len(QUEUES), "a queue has no owner"
    return found


def compare() -> None:
    for strategy in STRATEGIES:
        before, after = owners(strategy, MEMBERS), owners(strategy, sorted([*MEMBERS, "south@2"]))
        counts = [list(before.values()).count(member) for member in MEMBERS]
        moves = sum(before[queue] != after[queue] for queue in QUEUES)
        print(f"{strategy.name}: shares {counts}, {moves} of {len(QUEUES)} queues move when a member joins")


async def share() -> None:
    """Two members of a real group: all queues are owned, none twice, also after one leaves."""
    async with AsyncClient(NAME_SERVER) as mq:
        await mq.send(TOPIC, b"creates the topic")
        async with mq.consumer("e09", TOPIC, allocate=Circular()) as one:
            everything = set(one.assignment)
            async with mq.consumer("e09", TOPIC, allocate=Circular()) as two, asyncio.timeout(PATIENCE_S):
                while len(one.assignment) != len(two.assignment):
                    await asyncio.sleep(0.01)
                assert not set(one.assignment) & set(two.assignment)
                assert {*one.assignment, *two.assignment} == everything
                print(f"two members: {len(one.assignment)} queues each")
            async with asyncio.timeout(PATIENCE_S):
                while set(one.assignment) != everything:
                    await asyncio.sleep(0.01)
            print(f"one left: the other has all {len(everything)}")


compare()
asyncio.run(share())
