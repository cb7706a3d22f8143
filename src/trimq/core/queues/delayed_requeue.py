"""Messages that came back to a queue and wait a while before they are tried again. Knows when each is due; not who has
it then."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from trimq.core.queues.arguments import RETRY_ALL, RETRY_FAILED, RETRY_RETURNED, QueueSettings
from trimq.core.queues.backlog import Backlog, DeliveryCounts
from trimq.formats.amqp_content.content import StoredContent


class DelayedMessage(NamedTuple):
    due_ms: int
    number: int
    backlog: Backlog
    stored: StoredContent
    delivery_counts: DeliveryCounts


def requeue_delay_ms(settings: QueueSettings, delivery_counts: DeliveryCounts, has_failed: bool) -> int:
    """How long a message that just came back has to wait: longer with each failure, as far as that is allowed. 0: not
    at all."""
    wanted = (RETRY_ALL, RETRY_FAILED if has_failed else RETRY_RETURNED)
    if settings.retry_type not in wanted or settings.retry_min_ms is None:
        return 0
    most_ms = settings.retry_min_ms if settings.retry_max_ms is None else settings.retry_max_ms
    return min(settings.retry_min_ms * max(delivery_counts.failed, 1), most_ms)


class DelayedRequeue:
    """`requeue` makes a message ready again; `wake_at(ms)` has `resume` called at that time. A restart does not wait:
    whatever was held back is ready after it."""

    def __init__(
        self,
        requeue: Callable[[Backlog, StoredContent, DeliveryCounts], None],
        now_ms: Callable[[], int],
        wake_at: Callable[[int | None], None],
    ) -> None:
        self._requeue = requeue
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
        """Those whose time has come are ready again, in that order."""
        now_ms = self._now_ms()
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            _, _, backlog, stored, delivery_counts = heapq.heappop(self._waiting)
            backlog.withheld.discard(stored.offset)
            self._requeue(backlog, stored, delivery_counts)
        self._wake_at(self._waiting[0].due_ms if self._waiting else None)
