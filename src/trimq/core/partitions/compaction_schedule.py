"""Schedule of compaction: considers the streams that were appended to, at short intervals. Knows when a stream is worth
considering, never how it is compacted. No timer runs while there is no such stream."""

from __future__ import annotations

from trimq.clock import Timeline, Timer
from trimq.core.partitions.compactor import Compactor
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topics

_STREAMS_PER_TURN = 200


class CompactionSchedule:
    def __init__(self, topics: Topics, compactor: Compactor, timeline: Timeline, interval_ms: int) -> None:
        self._topics = topics
        self._compactor = compactor
        self._timeline = timeline
        self.interval_ms = interval_ms
        self._dirty: dict[Stream, None] = {}
        self._round: list[Stream] = []
        self._timer: Timer | None = None
        self._is_running = False

    def start(self) -> None:
        """Considers all compacted streams once: what was left at the last stop is not known."""
        self._is_running = True
        for topic in self._topics:
            for stream in topic.streams:
                if stream.log.settings.is_compacted:
                    self.note(stream)

    def stop(self) -> None:
        self._is_running = False
        self._dirty.clear()
        self._round.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._compactor.stop()

    def note(self, stream: Stream) -> None:
        """The stream may need compaction after the next interval."""
        self._dirty[stream] = None
        if self._timer is None and self._is_running:
            self._timer = self._timeline.call_at(self._timeline.now_ms() + self.interval_ms, self._begin_round)

    def consider(self, stream: Stream) -> None:
        """Starts the compaction of the stream if it is due; otherwise tries again later if time alone can make it
        due."""
        if stream.log.is_removed:
            return
        if self._compactor.consider(stream) or self._compactor.may_become_due(stream):
            self.note(stream)

    def _begin_round(self) -> None:
        self._round = list(self._dirty)
        self._dirty.clear()
        self._turn()

    def _turn(self) -> None:
        """Handles a limited number of streams, so that requests do not wait."""
        self._timer = None
        portion, self._round = self._round[:_STREAMS_PER_TURN], self._round[_STREAMS_PER_TURN:]
        if self._round:
            self._timer = self._timeline.call_at(self._timeline.now_ms(), self._turn)
        for stream in portion:
            self.consider(stream)
        if not self._round and self._timer is None and self._dirty:
            self.note(next(iter(self._dirty)))
