"""The segments of one queue log in order, and where a message is among them. Knows offsets; bytes are read, written
and removed by others."""

from __future__ import annotations

from trimq.errors import OffsetOutOfRange
from trimq.storage.queue_log.reader import count_live_bytes
from trimq.storage.queue_log.segment import QueueSegment


class QueueSegments:
    """There may be gaps between the offsets of one and those of the next."""

    def __init__(self) -> None:
        self.segments: list[QueueSegment] = []
        self.live = 0
        self.end = 0
        self.readable_end = 0
        self._tail: QueueSegment
        self._last_used: QueueSegment

    def _add_tail(self, segment: QueueSegment) -> None:
        self.segments.append(segment)
        self._tail = self._last_used = segment

    def _take_from_list(self, segment: QueueSegment) -> None:
        self.segments.remove(segment)
        if self._last_used is segment:
            self._last_used = self._tail

    def next_live(self, offset: int) -> int | None:
        """The first live message from `offset` on that is readable."""
        segment = self._last_used
        if not segment.base <= offset < segment.end:
            if offset >= self.readable_end:
                return None
            segment = self._last_used = self._segment_from(offset)
            offset = max(offset, segment.base)
        while True:
            found = segment.next_live(offset)
            if found < segment.end:
                return found if found < self.readable_end else None
            if segment is self._tail:
                return None
            segment = self._last_used = self._segment_from(segment.end)
            offset = segment.base

    def _segment_from(self, offset: int) -> QueueSegment:
        """The first segment that ends behind `offset`."""
        segments = self.segments
        low, high = 0, len(segments) - 1
        while low < high:
            middle = (low + high) // 2
            if segments[middle].end > offset:
                high = middle
            else:
                low = middle + 1
        return segments[low]

    def _segment_of(self, offset: int) -> QueueSegment:
        segment = self._segment_from(offset)
        if not segment.base <= offset < segment.end:
            raise OffsetOutOfRange(offset, self.segments[0].base, self.end)
        return segment

    def is_live(self, offset: int) -> bool:
        segment = self._segment_from(offset)
        return segment.base <= offset < segment.end and segment.is_live(offset)

    def attempts(self, offset: int) -> int:
        segment = self._segment_from(offset)
        return segment.attempts.get(offset - segment.base, 0)

    def live_bytes(self) -> int:
        """How long the bodies of all live messages are together. Reads segments of which some are settled."""
        return sum(
            segment.body_bytes if segment.live == segment.records else count_live_bytes(segment)
            for segment in self.segments
        )
