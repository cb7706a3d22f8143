"""Division of queues among members. Check 12 of the acceptance list: the shares that Apache's classes compute, written
down by hand from their algorithms for small cases, and the invariants by Hypothesis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.client.consuming.allocation import Allocation, Average, Circular, ConsistentHash, SameRoom
from trimq.client.messages import MessageQueue

STRATEGIES: list[Allocation] = [Average(), Circular(), ConsistentHash(), SameRoom(lambda name: name[-1])]


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("orders", "broker-a", number) for number in range(count)]


def shares(strategy: Allocation, members: list[str], all_queues: list[MessageQueue]) -> dict[str, list[int]]:
    return {me: [queue.id for queue in strategy.allocate(me, members, all_queues)] for me in members}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
@given(st.integers(1, 12), st.integers(0, 40))
def test_every_queue_has_exactly_one_owner(strategy: Allocation, members: int, count: int) -> None:
    names = sorted(f"10.0.0.{number}@{number % 3}" for number in range(members))
    found = [number for share in shares(strategy, names, queues(count)).values() for number in share]
    assert sorted(found) == list(range(count))


def test_average_gives_the_first_members_one_more() -> None:
    assert shares(Average(), ["a", "b", "c"], queues(8)) == {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]}
    assert shares(Average(), ["a", "b", "c", "d"], queues(10)) == {
        "a": [0, 1, 2],
        "b": [3, 4, 5],
        "c": [6, 7],
        "d": [8, 9],
    }
    assert shares(Average(), ["a", "b", "c"], queues(1)) == {"a": [0], "b": [], "c": []}


def test_circular_gives_one_queue_after_the_other() -> None:
    assert shares(Circular(), ["a", "b", "c"], queues(8)) == {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5]}


@given(st.integers(2, 10), st.integers(1, 60))
def test_consistent_hash_moves_queues_to_the_new_member_alone(members: int, count: int) -> None:
    names = [f"m{number:02}" for number in range(members)]
    before = shares(ConsistentHash(), names[:-1], queues(count))
    after = shares(ConsistentHash(), names, queues(count))
    for name in names[:-1]:
        assert set(after[name]) <= set(before[name])


def test_same_room_keeps_queues_in_their_room_while_somebody_is_there() -> None:
    found = [MessageQueue("t", f"broker-{room}", number) for room in "xyz" for number in range(4)]
    strategy = SameRoom(lambda name: name[-1])
    members = sorted(["1@x", "2@x", "3@y"])
    owner = {queue: me for me in members for queue in strategy.allocate(me, members, found)}
    assert {owner[queue] for queue in found if queue.broker == "broker-x"} == {"1@x", "2@x"}
    assert {owner[queue] for queue in found if queue.broker == "broker-y"} == {"3@y"}
    assert {owner[queue] for queue in found if queue.broker == "broker-z"} == set(members)
