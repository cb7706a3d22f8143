"""Limits of one connection: what it may hold, how much of a turn of the loop it may take, and how long it may be
idle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimq.clock import Timeline, Timer

TURN_EVENTS = 64
TURN_MS = 10

# An event with so many requests ends a turn: their replies are sent while the next are handled, so that a client with
# many requests in flight goes on meanwhile.
MANY_REQUESTS = 32

# An idle connection is looked at so many times per limit: it ends between one limit and a quarter more after its last
# activity.
_IDLE_CHECKS = 4


@dataclass(frozen=True, slots=True)
class SessionLimits:
    pending_replies: int
    held_replies: int
    unsent_bytes: int
    idle_ms: int


class TurnBudget:
    """Share of one turn of the loop that a connection may take before the others have theirs, in events and in time.
    Time counts from the second event on: most turns have one, and those do not read the clock. After a turn that took
    its whole time it counts from the beginning of the next."""

    __slots__ = ("_is_over_budget", "_taken", "_timeline", "_until_ms")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._taken = 0
        self._until_ms: int | None = None
        self._is_over_budget = False

    def begin(self) -> None:
        self._taken = 0
        self._until_ms = self._timeline.now_ms() + TURN_MS if self._is_over_budget else None
        self._is_over_budget = False

    def is_used_up(self, requests: int) -> bool:
        """To be called once after each event, with the number of its requests."""
        self._taken += 1
        if self._until_ms is None:
            if self._taken > 1:
                self._until_ms = self._timeline.now_ms() + TURN_MS
            return requests >= MANY_REQUESTS
        self._is_over_budget = self._timeline.now_ms() >= self._until_ms
        return self._is_over_budget or self._taken >= TURN_EVENTS or requests >= MANY_REQUESTS


class IdleTimeout:
    """Calls `expired` when a connection was idle for too long. Its one timer compares counts instead of reading the
    clock: the path of a message has nothing but an addition. `activity_count` is increased by the owner whenever the
    connection does something."""

    __slots__ = ("_expired", "_interval_ms", "_quiet_checks", "_seen", "_timeline", "_timer", "activity_count")

    def __init__(self, timeline: Timeline, limit_ms: int, expired: Callable[[], None]) -> None:
        self._timeline = timeline
        self._interval_ms = -(-limit_ms // _IDLE_CHECKS)
        self._expired = expired
        self._timer: Timer | None = None
        self._seen = 0
        self._quiet_checks = 0
        self.activity_count = 0

    def start(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self.start()
        if self.activity_count != self._seen:
            self._seen = self.activity_count
            self._quiet_checks = 0
            return
        self._quiet_checks += 1
        if self._quiet_checks >= _IDLE_CHECKS:
            self._quiet_checks = 0
            self._expired()
