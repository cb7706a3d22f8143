"""Background maintenance of partition logs: expires segments by age, size and disk pressure, expires idle producers,
and starts compaction and the checksums of sealed segments. Works in small portions, on the clock; an idle broker does
nothing in between."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from trimq.clock import Timeline, Timer
from trimq.core.partitions.compaction_schedule import CompactionSchedule
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topics
from trimq.errors import Refusal
from trimq.storage.guards.disk_space import DiskSpaceGuard
from trimq.storage.partition_log.expiry import expire, expire_oldest
from trimq.storage.partition_log.segment_checksums import SegmentChecksums

log = logging.getLogger(__name__)

_PRODUCER_EXPIRY_MS = 86_400_000
_STREAMS_PER_TURN = 200


class PartitionMaintenance:
    def __init__(
        self,
        topics: Topics,
        guard: DiskSpaceGuard,
        compaction: CompactionSchedule,
        checksums: SegmentChecksums,
        timeline: Timeline,
        interval_ms: int,
    ) -> None:
        self._topics = topics
        self._guard = guard
        self._compaction = compaction
        self._checksums = checksums
        self._timeline = timeline
        self._interval_ms = interval_ms
        self._timer: Timer | None = None
        self._round: Iterator[Stream] = iter(())

    def start(self) -> None:
        self._compaction.start()
        self._schedule_round()

    def _schedule_round(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._begin_round)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._compaction.stop()
        self._checksums.stop()

    def _begin_round(self) -> None:
        self._round = iter([stream for topic in self._topics for stream in topic.streams])
        self._relieve_disk()
        self._turn()

    def _turn(self) -> None:
        """Handles a limited number of streams, so that requests do not wait."""
        for _ in range(_STREAMS_PER_TURN):
            stream = next(self._round, None)
            if stream is None:
                self._schedule_round()
                return
            self._tend(stream)
        self._timer = self._timeline.call_at(self._timeline.now_ms(), self._turn)

    def _tend(self, stream: Stream) -> None:
        if stream.log.is_removed:
            return  # deleted since the round began
        now_ms = self._timeline.now_ms()
        try:
            expire(stream.log, now_ms)
        except (Refusal, OSError) as error:
            log.warning("%s: expiry failed, will be retried (%s)", stream.log.folder, error)
        stream.log.producers.expire(now_ms, _PRODUCER_EXPIRY_MS)
        self._compaction.consider(stream)
        self._checksums.consider(stream.log)

    def _relieve_disk(self) -> None:
        excess_bytes = self._guard.pressure()
        if excess_bytes > 0:
            logs = [stream.log for topic in self._topics for stream in topic.streams]
            freed = expire_oldest(logs, excess_bytes)
            log.warning("disk nearly full: deleted %d bytes of the oldest records", freed)
