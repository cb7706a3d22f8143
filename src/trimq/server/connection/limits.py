"""Limits of one connection: pending replies and unsent bytes, its budget of a turn of the loop, and the idle timeout.
Knows no socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimq.clock import Timeline, Timer
from trimq.metrics import Counter

TURN_EVENTS = 64
TURN_MS = 10

# An event with so many requests ends a turn: their replies are sent before the next requests are handled, so that a
# client with many requests in flight can continue meanwhile.
MANY_REQUESTS = 32

# Number of checks within the idle limit: a connection is closed between 1 and 1.25 times the limit after its last
# activity.
_IDLE_CHECKS = 4


@dataclass(frozen=True, slots=True)
class SessionLimits:
    pending_replies: int
    held_replies: int
    unsent_bytes: int
    idle_ms: int
    first_request_ms: Callable[[], int | None] = lambda: None
    """Returns the time in which a new connection must send its first request; None without such a limit."""


class ConnectionsByAddress:
    """Counts the open connections of each client address to one listener, against their limit."""

    def __init__(self, limit: int, refused: Counter) -> None:
        self._limit = limit
        self._refused = refused
        self._counts: dict[str, int] = {}

    def enter(self, source: str) -> bool:
        """Counts one more connection. Returns False, and counts it as refused, if that exceeds the limit."""
        count = self._counts.get(source, 0)
        if count >= self._limit:
            self._refused.value += 1
            return False
        self._counts[source] = count + 1
        return True

    def leave(self, source: str) -> None:
        count = self._counts[source] - 1
        if count:
            self._counts[source] = count
        else:
            del self._counts[source]


class TurnBudget:
    """Events and time that a connection may use in one turn of the loop before it is the turn of the others. The clock
    is read from the second event of a turn on, since most turns have one. After a turn that used up its time, the next
    is timed from its start."""

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
        """Returns whether the turn must end. Must be called once after each event, with the number of its requests."""
        self._taken += 1
        if self._until_ms is None:
            if self._taken > 1:
                self._until_ms = self._timeline.now_ms() + TURN_MS
            return requests >= MANY_REQUESTS
        self._is_over_budget = self._timeline.now_ms() >= self._until_ms
        return self._is_over_budget or self._taken >= TURN_EVENTS or requests >= MANY_REQUESTS


class IdleTimeout:
    """Calls `expired` when a connection was idle for too long. The owner increases `activity_count` whenever the
    connection does something; the timer compares counts, so that a message costs one addition and no reading of the
    clock."""

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
