"""Reasons to keep commit-log files past their retention: dead letters, pending delayed and half messages, and the
`deleteWhen` hours. On a nearly full disk files are deleted anyway, and the holders are notified first. Knows positions,
not messages."""

from __future__ import annotations

from typing import Protocol

from trimq.core.commit_log.retry_topics import oldest_dead_letter
from trimq.core.commit_log.topics import CommitLogTopics
from trimq.storage.commit_log.settings import HOUR_MS

_ALL_HOURS = frozenset(range(24))


class RetentionHolder(Protocol):
    """Owner of pending messages in the log, such as delayed or half messages."""

    def oldest_position(self) -> int | None:
        """Position of the oldest pending message. None: none is pending."""

    def release(self, start: int) -> None:
        """Called before all messages in front of this position are deleted. They can still be read."""


class CommitLogRetention:
    """`retention_ms` and the hours may change while the broker runs. The hours have the format of
    `rocketmq.delete_when`."""

    def __init__(self, topics: CommitLogTopics, retention_ms: int, dead_retention_ms: int, hours: str) -> None:
        self._topics = topics
        self.retention_ms = retention_ms
        self._dead_retention_ms = dead_retention_ms
        self._holders: list[RetentionHolder] = []
        self.set_hours(hours)

    def set_hours(self, hours: str) -> None:
        self._hours = frozenset(int(hour) for hour in hours.split(";")) if hours else _ALL_HOURS

    def is_hour(self, now_ms: int) -> bool:
        """Whether files past their retention may be deleted in this hour of the day (UTC)."""
        return now_ms // HOUR_MS % 24 in self._hours

    def add(self, holder: RetentionHolder) -> None:
        self._holders.append(holder)

    def oldest_held_position(self, now_ms: int) -> int | None:
        """Position from which on the log must be kept. None: nothing holds it."""
        positions = [holder.oldest_position() for holder in self._holders]
        if self._dead_retention_ms > self.retention_ms:  # otherwise normal retention keeps dead letters long enough
            positions.append(oldest_dead_letter(self._topics, now_ms - self._dead_retention_ms))
        return min((position for position in positions if position is not None), default=None)

    def release(self, start: int) -> None:
        for holder in self._holders:
            holder.release(start)
