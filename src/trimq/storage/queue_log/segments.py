"""The segments of one queue log in the order of their offsets: lookup of a message, the tail, roll-back of a pass. Does
not read, write or remove files."""

from __future__ import annotations

from trimq.errors import OffsetOutOfRange
from trimq.storage.queue_log.reader import count_live_bytes
from trimq.storage.queue_log.segment import QueueSegment, SegmentRollbackPoint


class SegmentList(list[QueueSegment]):
    """There may be gaps between the offsets of one segment and those of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        """Messages that are not acknowledged."""
        self.tail: QueueSegment
        """The segment to which messages are appended."""
        self.last_used: QueueSegment
        """The segment of the last lookup: the next one is likely to need it again."""
        self.pass_tail: QueueSegment | None = None
        """The tail when the current pass began, set by the log; None: the pass appended nothing."""

    def add_tail(self, segment: QueueSegment) -> None:
        self.append(segment)
        self.tail = self.last_used = segment

    def take_out(self, segment: QueueSegment) -> None:
        self.remove(segment)
        if self.last_used is segment:
            self.last_used = self.tail

    def put_back(self, segment: QueueSegment) -> None:
        self.insert(self.index(self.segment_from(segment.end)), segment)

    def roll_back(self, end: int, point: SegmentRollbackPoint) -> list[int]:
        """Removes the messages that the current pass appended, from offset `end` on; `point` is that of `pass_tail`.
        Returns the blobs of their bodies."""
        tail = self.pass_tail
        assert tail is not None, "only a pass that began is undone"
        self.pass_tail = None
        undone = self[self.index(tail) :]
        blobs = [blob for segment in undone for offset, blob in segment.live_blobs() if offset >= end]
        self.live -= sum(segment.records for segment in undone) - point[1]
        del self[-len(undone) + 1 or len(self) :]
        self.tail = self.last_used = tail
        tail.roll_back_to(point)
        return blobs

    # -- lookup

    def next_live(self, offset: int, end: int) -> int | None:
        """Returns the first live message from `offset` on and before `end`, and makes its segment `last_used`."""
        segment = self.last_used
        if not segment.segment.base <= offset < segment.end:
            if offset >= end:
                return None
            segment = self.last_used = self.segment_from(offset)
            offset = max(offset, segment.base)
        while True:
            found = segment.next_live(offset)
            if found < segment.end:
                return found if found < end else None
            if segment is self.tail:
                return None
            segment = self.last_used = self.segment_from(segment.end)
            offset = segment.base

    def segment_from(self, offset: int) -> QueueSegment:
        """Returns the first segment with an end greater than `offset`; the last segment if there is none."""
        low, high = 0, len(self) - 1
        while low < high:
            middle = (low + high) // 2
            if self[middle].end > offset:
                high = middle
            else:
                low = middle + 1
        return self[low]

    def segment_of(self, offset: int) -> QueueSegment:
        """Returns the segment of a message. OffsetOutOfRange: no segment contains this offset."""
        segment = self.segment_from(offset)
        if not segment.base <= offset < segment.end:
            raise OffsetOutOfRange(offset, self[0].base, self.tail.end)
        return segment

    def is_live(self, offset: int) -> bool:
        segment = self.segment_from(offset)
        return segment.base <= offset < segment.end and segment.is_live(offset)

    def attempts(self, offset: int) -> int:
        """Returns the stored number of failed deliveries of a message."""
        segment = self.segment_from(offset)
        return segment.attempts.get(offset - segment.base, 0)

    def live_bytes(self, with_properties: bool = False) -> int:
        """Returns the body bytes of all live messages. Reads the segments in which some messages are acknowledged, or
        all `with_properties`."""
        return sum(
            segment.body_bytes
            if segment.live == segment.records and not with_properties
            else count_live_bytes(segment, with_properties)
            for segment in self
        )
