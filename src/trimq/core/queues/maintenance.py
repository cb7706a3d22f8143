"""Periodic maintenance of queues: retention of streams and of the failure ledger, and compaction of segments with few
live messages, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trimq.clock import Timeline, Timer
from trimq.core.failures.ledger_log import LedgerLog
from trimq.core.queues.registry import QueueRegistry
from trimq.core.queues.stream_queue import StreamQueue
from trimq.storage.queue_log.compaction import SegmentCompaction, is_worth_compacting
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.segment import QueueSegment


class QueueMaintenance:
    def __init__(
        self,
        compact: Callable[[QueueLog, QueueSegment], SegmentCompaction],
        queues: QueueRegistry,
        others: Callable[[], Iterable[QueueLog]],
        ledger: LedgerLog,
        timeline: Timeline,
        interval_ms: int,
    ) -> None:
        self._compact = compact
        self._queues = queues
        self._others = others
        self._ledger = ledger
        self._timeline = timeline
        self._interval_ms = interval_ms
        self._timer: Timer | None = None
        self._seen: set[tuple[str, int]] = set()
        self._work: SegmentCompaction | None = None

    def start(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.start()
        for queue in self._queues:
            if isinstance(queue, StreamQueue):
                queue.trim()
        self._ledger.trim()
        if self._work is None or self._work.is_finished:
            self._compact_one()

    def _compact_one(self) -> None:
        """Starts the compaction of one segment that was worth it at the last look already: most others lose their last
        live messages soon, and are removed without it."""
        pinned: set[tuple[str, int]] = set()
        chosen: tuple[QueueLog, int] | None = None
        for log in [*self._queues.logs(), *self._others()]:
            for place, segment in enumerate(log.segments):
                if is_worth_compacting(segment):
                    pinned.add((log.folder, segment.base))
                    if chosen is None and (log.folder, segment.base) in self._seen:
                        chosen = log, place
        self._seen = pinned
        if chosen is not None:
            log, place = chosen
            self._work = self._compact(log, log.segments[place])
            self._work.start()
