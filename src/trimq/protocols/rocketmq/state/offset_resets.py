"""Offset resets by an administrator that consumers do not know yet. The next pull of a queue returns the new offset;
until then, commits for the queue are ignored."""

from __future__ import annotations

from uuid import UUID


class OffsetResets:
    def __init__(self) -> None:
        self._moved: dict[tuple[str, UUID, int], int] = {}

    def move(self, group: str, topic: UUID, number: int, offset: int) -> None:
        self._moved[group, topic, number] = offset

    def is_pending(self, group: str, topic: UUID, number: int) -> bool:
        return bool(self._moved) and (group, topic, number) in self._moved

    def take(self, group: str, topic: UUID, number: int) -> int | None:
        """Returns the new offset, once."""
        return self._moved.pop((group, topic, number), None) if self._moved else None

    def forget_group(self, group: str) -> None:
        for key in [key for key in self._moved if key[0] == group]:
            del self._moved[key]

    def forget_topic(self, topic: UUID) -> None:
        for key in [key for key in self._moved if key[1] == topic]:
            del self._moved[key]
