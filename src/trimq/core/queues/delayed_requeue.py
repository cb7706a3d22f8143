"""Delayed requeue: messages of one queue that are requeued after a delay (`x-delayed-retry-…`). Does not know
consumers."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from trimq.core.queues.arguments import RETRY_ALL, RETRY_FAILED, RETRY_RETURNED, QueueSettings
from trimq.core.queues.backlog import Backlog, DeliveryCounts
from trimq.core.queues.contents import QueueContents
from trimq.formats.amqp_content.content import StoredContent


class DelayedMessage(NamedTuple):
    due_ms: int
    number: int
    backlog: Backlog
    stored: StoredContent
    delivery_counts: DeliveryCounts


def requeue_delay_ms(settings: QueueSettings, failed: int, has_failed: bool) -> int:
    """Returns the delay of a requeued message, which grows with each of its `failed` deliveries up to a maximum; 0 for
    none."""
    wanted = (RETRY_ALL, RETRY_FAILED if has_failed else RETRY_RETURNED)
    if settings.retry_type not in wanted or settings.retry_min_ms is None:
        return 0
    max_ms = settings.retry_min_ms if settings.retry_max_ms is None else settings.retry_max_ms
    return min(settings.retry_min_ms * max(failed, 1), max_ms)


class DelayedRequeue:
    """`wake_at(ms)` makes the owner call `resume` at that time. After a restart all delayed messages are ready."""

    def __init__(
        self, contents: QueueContents, now_ms: Callable[[], int], wake_at: Callable[[int | None], None]
    ) -> None:
        self._contents = contents
        self._now_ms = now_ms
        self._wake_at = wake_at
        self._waiting: list[DelayedMessage] = []
        self._number = 0

    def schedule(self, wait_ms: int, backlog: Backlog, stored: StoredContent, delivery_counts: DeliveryCounts) -> None:
        backlog.withheld.add(stored.offset)
        self._number += 1
        heapq.heappush(
            self._waiting, DelayedMessage(self._now_ms() + wait_ms, self._number, backlog, stored, delivery_counts)
        )
        self._wake_at(self._waiting[0].due_ms)

    def resume(self) -> None:
        """Requeues messages whose delay is over, in the order of their due times."""
        now_ms = self._now_ms()
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            _, _, backlog, stored, delivery_counts = heapq.heappop(self._waiting)
            backlog.withheld.discard(stored.offset)
            self._contents.requeue(backlog, stored, delivery_counts)
        self._wake_at(self._waiting[0].due_ms if self._waiting else None)
