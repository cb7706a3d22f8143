"""How much of one loop pass a connection may take, in events and in time, before the others have their turn."""

from __future__ import annotations

from trimq.clock import Timeline

EVENTS = 64
MILLISECONDS = 10

# An event that was so many requests ends a turn: what they are answered leaves while the next are worked on, so that a
# client that has many under way goes on meanwhile.
MANY_REQUESTS = 32


class TurnBudget:
    """Time counts from the second event on: most turns have one, and those do not read the clock. After a turn that
    took its whole time it counts from the beginning of the next."""

    __slots__ = ("_is_over_budget", "_taken", "_timeline", "_until_ms")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._taken = 0
        self._until_ms: int | None = None
        self._is_over_budget = False

    def begin(self) -> None:
        self._taken = 0
        self._until_ms = self._timeline.now_ms() + MILLISECONDS if self._is_over_budget else None
        self._is_over_budget = False

    def is_used_up(self, requests: int) -> bool:
        """Ask once after each event, which was so many requests."""
        self._taken += 1
        if self._until_ms is None:
            if self._taken > 1:
                self._until_ms = self._timeline.now_ms() + MILLISECONDS
            return requests >= MANY_REQUESTS
        self._is_over_budget = self._timeline.now_ms() >= self._until_ms
        return self._is_over_budget or self._taken >= EVENTS or requests >= MANY_REQUESTS
