"""Messages that came back to a queue and wait a while before they are tried again. Knows when each is due; not who has
it then."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from trimq.core.queues.arguments import RETRY_ALL, RETRY_FAILED, RETRY_RETURNED, QueueSettings
from trimq.core.queues.backlog import Backlog, Tries
from trimq.formats.amqp_content.content import Stored


class Waiting(NamedTuple):
    due_ms: int
    number: int
    backlog: Backlog
    stored: Stored
    tries: Tries


def delay_ms(settings: QueueSettings, tries: Tries, has_failed: bool) -> int:
    """How long a message that just came back has to wait: longer with each failure, as far as that is allowed. 0: not
    at all."""
    wanted = (RETRY_ALL, RETRY_FAILED if has_failed else RETRY_RETURNED)
    if settings.retry_type not in wanted or settings.retry_min_ms is None:
        return 0
    most_ms = settings.retry_min_ms if settings.retry_max_ms is None else settings.retry_max_ms
    return min(settings.retry_min_ms * max(tries.failed, 1), most_ms)


class Retries:
    """`come_back` makes a message ready again; `ring_at(ms)` has `go_on` called at that time. A restart does not wait:
    whatever was held back is ready after it."""

    def __init__(
        self,
        come_back: Callable[[Backlog, Stored, Tries], None],
        now_ms: Callable[[], int],
        ring_at: Callable[[int | None], None],
    ) -> None:
        self._come_back = come_back
        self._now_ms = now_ms
        self._ring_at = ring_at
        self._waiting: list[Waiting] = []
        self._number = 0

    def wait(self, wait_ms: int, backlog: Backlog, stored: Stored, tries: Tries) -> None:
        backlog.leaving.add(stored.offset)
        self._number += 1
        heapq.heappush(self._waiting, Waiting(self._now_ms() + wait_ms, self._number, backlog, stored, tries))
        self._ring_at(self._waiting[0].due_ms)

    def go_on(self) -> None:
        """Those whose time has come are ready again, in that order."""
        now_ms = self._now_ms()
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            _, _, backlog, stored, tries = heapq.heappop(self._waiting)
            backlog.leaving.discard(stored.offset)
            self._come_back(backlog, stored, tries)
        self._ring_at(self._waiting[0].due_ms if self._waiting else None)
