"""Queue locks of group members: their limit and their expiry."""

from __future__ import annotations

import pytest

from trimq.clock import ManualTime
from trimq.protocols.rocketmq.clients.queue_locks import FORGOTTEN_AT_ONCE, LOCK_MS, LockLimits, QueueLocks, QueueName
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal


def queues(count: int, first: int = 0) -> list[QueueName]:
    return [QueueName("t", "b", number) for number in range(first, first + count)]


def test_locks_that_fell_are_forgotten_some_in_each_turn() -> None:
    time = ManualTime(1000)
    locks = QueueLocks(time, LockLimits(10_000, 10_000))
    locks.lock("g", "a", queues(2 * FORGOTTEN_AT_ONCE + 1))
    time.step(1000 + LOCK_MS)
    assert len(locks) == 2 * FORGOTTEN_AT_ONCE + 1
    left = []
    while time.step(1001 + LOCK_MS):
        left.append(len(locks))
    assert left == [FORGOTTEN_AT_ONCE + 1, 1, 0]
    assert (locks.has_any("g"), time.next_due_ms()) == (False, None)


def test_a_lock_that_is_renewed_stays() -> None:
    time = ManualTime(0)
    locks = QueueLocks(time, LockLimits(10, 10))
    locks.lock("g", "a", queues(3))
    time.step(LOCK_MS // 2)
    locks.lock("g", "a", queues(1, 1))
    while time.step(LOCK_MS + 1):
        pass
    assert len(locks) == 1
    assert locks.lock("g", "b", queues(3)) == [QueueName("t", "b", 0), QueueName("t", "b", 2)]
    while time.step(4 * LOCK_MS):
        pass
    assert len(locks) == 0


def test_a_lock_that_is_given_back_is_forgotten_at_once() -> None:
    locks = QueueLocks(ManualTime(0), LockLimits(10, 10))
    locks.lock("g", "a", queues(2))
    locks.unlock("g", "b", queues(1)[0])
    locks.unlock("g", "a", queues(1)[0])
    assert len(locks) == 1


def test_too_many_locks_are_refused_and_none_of_them_is_made() -> None:
    locks = QueueLocks(ManualTime(0), LockLimits(3, 5))
    assert locks.lock("g", "a", queues(3)) == queues(3)
    assert locks.lock("g", "a", queues(3)) == queues(3)
    with pytest.raises(RemotingRefusal, match=r"one group may lock 3 queues, see rocketmq\.group_locks"):
        locks.lock("g", "a", queues(4))
    with pytest.raises(RemotingRefusal, match=r"all groups together may lock 5 queues, see rocketmq\.queue_locks"):
        locks.lock("h", "a", queues(3))
    assert len(locks) == 3
    assert locks.lock("h", "a", queues(2)) == queues(2)
