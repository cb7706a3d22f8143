"""Which client of a group has a queue for itself, so that its messages are consumed in order. A lock that is not
renewed falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

LOCK_MS = 60_000


class QueueName(NamedTuple):
    topic: str
    broker: str
    queue_id: int


class _Lock(NamedTuple):
    owner: str
    renewed_ms: int


class QueueLocks:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._locks: dict[str, dict[QueueName, _Lock]] = {}

    def lock(self, group: str, owner: str, queue: QueueName) -> bool:
        """Whether the queue is the owner's now."""
        now_ms = self._now_ms()
        locks = self._locks.setdefault(group, {})
        held = locks.get(queue)
        if held is not None and held.owner != owner and now_ms - held.renewed_ms <= LOCK_MS:
            return False
        locks[queue] = _Lock(owner, now_ms)
        return True

    def has_any(self, group: str) -> bool:
        """Whether any member of the group has a queue for itself."""
        now_ms = self._now_ms()
        return any(now_ms - lock.renewed_ms <= LOCK_MS for lock in self._locks.get(group, {}).values())

    def unlock(self, group: str, owner: str, queue: QueueName) -> None:
        """Only who has it can give it back."""
        locks = self._locks.get(group, {})
        held = locks.get(queue)
        if held is not None and held.owner == owner:
            del locks[queue]
            if not locks:
                del self._locks[group]
