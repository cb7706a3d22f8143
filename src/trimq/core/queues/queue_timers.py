"""Timers of AMQP queues: head TTL, queue expiry, delivery timeout, delayed requeue, retries of dead letters. Knows
queues by their ids."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.scheduling.timers import PendingTimer, TimerEntry, TimerId, Timers
from trimq.model import StreamId

HEAD_EXPIRY, QUEUE_EXPIRY, DELIVERY_TIMEOUT, DELAYED_REQUEUE, HANDOFF_RETRY, DEAD_LETTER_RETRY = KINDS = (
    0,
    1,
    2,
    3,
    4,
    5,
)


class QueueTimers:
    """At most one timer of each kind for each queue."""

    def __init__(self, timeline: Timeline, on_due: Callable[[UUID, int], None]) -> None:
        self._timers = Timers(timeline, self._fire)
        self._on_due = on_due
        self._set: dict[tuple[UUID, int], tuple[TimerId, int]] = {}

    def set(self, queue: UUID, kind: int, due_ms: int | None) -> None:
        """Sets or moves the timer to `due_ms`; None cancels it."""
        known = self._set.get((queue, kind))
        if known is not None:
            if known[1] == due_ms:
                return
            if due_ms is None:
                self._timers.cancel(known[0])
                del self._set[queue, kind]
                return
            self._timers.reschedule(known[0], due_ms)
            self._set[queue, kind] = known[0], due_ms
        elif due_ms is not None:
            id = self._timers.schedule(due_ms, TimerEntry(StreamId(queue, kind), 0))
            self._set[queue, kind] = id, due_ms

    def forget(self, queue: UUID) -> None:
        for kind in KINDS:
            self.set(queue, kind, None)

    def _fire(self, pending: PendingTimer) -> None:
        queue, kind = pending.entry.stream
        if self._set.get((queue, kind), (0, 0))[0] == pending.id:
            del self._set[queue, kind]
        self._on_due(queue, kind)
