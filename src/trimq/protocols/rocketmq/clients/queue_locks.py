"""Exclusive locks of queues by clients of a group, for ordered consumption. A lock expires unless renewed, and is then
deleted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from trimq.clock import Timeline, Timer
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

LOCK_MS = 60_000

# Locks deleted in one turn of the loop, which takes 1 to 2 ms.
FORGOTTEN_AT_ONCE = 1000


class QueueName(NamedTuple):
    topic: str
    broker: str
    queue_id: int


class LockLimits(NamedTuple):
    """Maximum number of locked queues of one group, and of all groups together."""

    of_group: int
    of_all: int


class _Lock(NamedTuple):
    owner: str
    renewed_ms: int


class QueueLocks:
    def __init__(self, timeline: Timeline, limits: LockLimits) -> None:
        self._timeline = timeline
        self._limits = limits
        self._locks: dict[str, dict[QueueName, _Lock]] = {}
        self._renewed: dict[tuple[str, QueueName], None] = {}
        """All locks, the most recently renewed last."""
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._renewed)

    def lock(self, group: str, owner: str, queues: Sequence[QueueName]) -> list[QueueName]:
        """Returns those of the queues that the owner has locked now. Raises RemotingRefusal, and locks none, if there
        would be too many locks."""
        self._check_room(group, queues)
        return [queue for queue in queues if self._lock(group, owner, queue)]

    def _check_room(self, group: str, queues: Sequence[QueueName]) -> None:
        held = self._locks.get(group, {})
        fresh = sum(queue not in held for queue in set(queues))
        if len(held) + fresh > self._limits.of_group:
            reason = f"one group may lock {self._limits.of_group} queues, see rocketmq.group_locks"
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)
        if len(self._renewed) + fresh > self._limits.of_all:
            reason = f"all groups together may lock {self._limits.of_all} queues, see rocketmq.queue_locks"
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)

    def _lock(self, group: str, owner: str, queue: QueueName) -> bool:
        now_ms = self._timeline.now_ms()
        locks = self._locks.setdefault(group, {})
        held = locks.get(queue)
        if held is not None and held.owner != owner and now_ms - held.renewed_ms <= LOCK_MS:
            return False
        locks[queue] = _Lock(owner, now_ms)
        self._renewed.pop((group, queue), None)
        self._renewed[group, queue] = None
        if self._timer is None:
            self._timer = self._timeline.call_at(now_ms + LOCK_MS + 1, self._forget_expired)
        return True

    def has_any(self, group: str) -> bool:
        """Whether any member of the group holds a lock."""
        now_ms = self._timeline.now_ms()
        return any(now_ms - lock.renewed_ms <= LOCK_MS for lock in self._locks.get(group, {}).values())

    def unlock(self, group: str, owner: str, queue: QueueName) -> None:
        """Only the owner can unlock."""
        held = self._locks.get(group, {}).get(queue)
        if held is not None and held.owner == owner:
            self._forget(group, queue)

    def _forget(self, group: str, queue: QueueName) -> None:
        locks = self._locks[group]
        del locks[queue], self._renewed[group, queue]
        if not locks:
            del self._locks[group]

    def _forget_expired(self) -> None:
        self._timer = None
        now_ms = self._timeline.now_ms()
        for group, queue in list(islice(self._renewed, FORGOTTEN_AT_ONCE)):
            falls_ms = self._locks[group][queue].renewed_ms + LOCK_MS + 1
            if falls_ms > now_ms:
                self._timer = self._timeline.call_at(falls_ms, self._forget_expired)
                return
            self._forget(group, queue)
        if self._renewed:
            self._timer = self._timeline.call_at(now_ms, self._forget_expired)
