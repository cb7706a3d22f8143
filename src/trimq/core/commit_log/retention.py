"""What keeps files of the shared log beyond their time: dead letters, for as long as they are kept, messages that wait
for something, and the hours in which nothing goes. A disk that is nearly full keeps nothing: then it is told what goes.
Knows positions, no message."""

from __future__ import annotations

from typing import Protocol

from trimq.core.commit_log.retry_topics import oldest_dead_letter
from trimq.core.commit_log.topics import CommitLogTopics
from trimq.storage.commit_log.settings import HOUR_MS

_ALL_HOURS = frozenset(range(24))


class RetentionHolder(Protocol):
    """Whoever has messages in the log that wait."""

    def oldest_position(self) -> int | None:
        """Where the first of them stands. None: none waits."""

    def let_go(self, start: int) -> None:
        """Those that stand before this position are about to go. They can still be read."""


class CommitLogRetention:
    """`retention_ms` and the hours may change while the broker runs. Hours are as in `rocketmq.delete_when`."""

    def __init__(self, topics: CommitLogTopics, retention_ms: int, dead_retention_ms: int, hours: str) -> None:
        self._topics = topics
        self.retention_ms = retention_ms
        self._dead_retention_ms = dead_retention_ms
        self._holders: list[RetentionHolder] = []
        self.set_hours(hours)

    def set_hours(self, hours: str) -> None:
        self._hours = frozenset(int(hour) for hour in hours.split(";")) if hours else _ALL_HOURS

    def is_hour(self, now_ms: int) -> bool:
        """Whether what was kept long enough may go now, by the hour of the day (UTC)."""
        return now_ms // HOUR_MS % 24 in self._hours

    def add(self, holder: RetentionHolder) -> None:
        self._holders.append(holder)

    def oldest_held_position(self, now_ms: int) -> int | None:
        """What stands there, or behind it, stays. None: nothing has to."""
        positions = [holder.oldest_position() for holder in self._holders]
        if self._dead_retention_ms > self.retention_ms:  # else each is younger than the end of its file
            positions.append(oldest_dead_letter(self._topics, now_ms - self._dead_retention_ms))
        return min((position for position in positions if position is not None), default=None)

    def let_go(self, start: int) -> None:
        for holder in self._holders:
            holder.let_go(start)
