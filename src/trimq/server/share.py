"""How much of one loop pass a connection may take, in events and in time, before the others have their turn."""

from __future__ import annotations

from trimq.clock import Timeline

EVENTS = 64
MILLISECONDS = 10


class Share:
    """Time counts from the second event on: most turns have one, and those do not read the clock."""

    __slots__ = ("_taken", "_timeline", "_until_ms")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._taken = 0
        self._until_ms = 0

    def begin(self) -> None:
        self._taken = 0

    def is_used_up(self) -> bool:
        """Ask once after each event."""
        self._taken += 1
        if self._taken == 1:
            return False
        now_ms = self._timeline.now_ms()
        if self._taken == 2:
            self._until_ms = now_ms + MILLISECONDS
        return self._taken >= EVENTS or now_ms >= self._until_ms
