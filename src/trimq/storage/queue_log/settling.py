"""What is done with in a queue log, and what goes with it: bodies that nobody refers to any more, segments with nothing
live. Knows which messages are settled; appending and reading them is done elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimq.formats.amqp_content.content import NO_BLOB
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.reader import RecentContents
from trimq.storage.queue_log.segment import ACKS, QueueSegment, SegmentRollbackPoint
from trimq.storage.queue_log.segments import QueueSegments
from trimq.storage.queue_log.shared import QueueLogServices

QueueRollbackPoint = tuple[int, QueueSegment, SegmentRollbackPoint]


class AckableSegments(QueueSegments):
    """What was settled is seen at once and written soon; a crash may undo it."""

    folder: str
    is_volatile: bool
    is_removed: bool
    journal: Journal
    _parts: QueueLogServices
    _recent: RecentContents
    _mark: QueueRollbackPoint | None

    def ack(self, offset: int) -> None:
        """The message is done with. That is seen at once and written soon; a crash may undo it."""
        segment = self._last_used
        if not segment.base <= offset < segment.end:
            segment = self._segment_from(offset)
            if not segment.base <= offset < segment.end:
                return  # of a segment that is gone
        if not segment.ack(offset):
            return
        self.live -= 1
        if offset in self._recent:
            self._recent.take(offset)
        if segment.references is not None and (blob := segment.references.blob_of(offset - segment.base)) != NO_BLOB:
            self._release((blob,))
        if not self.is_volatile:
            self._parts.acks.schedule_write(self)
        elif segment.is_sealed and not segment.live:
            self.remove_if_all_acked(segment)

    def ack_each(self, offsets: Sequence[int]) -> None:
        """As `settle` of each, at least one: cheaper where they are of one segment, and nothing else is to be done."""
        first, last = min(offsets), max(offsets)
        segment = self._last_used
        if not segment.base <= first < segment.end:
            segment = self._segment_from(first)
        is_plain = segment.base <= first and last < segment.end and segment.references is None
        if not is_plain or not self._recent.keys().isdisjoint(offsets):
            for offset in offsets:
                self.ack(offset)
            return
        self.live -= segment.ack_each(offsets, last)
        if not self.is_volatile:
            self._parts.acks.schedule_write(self)
        elif segment.is_sealed and not segment.live:
            self.remove_if_all_acked(segment)

    def ack_range(self, first: int, end: int, but: Iterable[int] = ()) -> int:
        """Settle every live message from `first` up to `end` but for some. How many that were."""
        kept = set(but)
        acked = 0
        for segment in [segment for segment in self.segments if segment.base < end and segment.end > first]:
            self._release(blob for offset, blob in segment.live_blobs() if first <= offset < end and offset not in kept)
            acked += segment.ack_range(max(first, segment.base), min(end, segment.end), kept)
            if segment.is_sealed and not segment.live:
                self.remove_if_all_acked(segment)
        self.live -= acked
        self._recent.forget(first, end, kept)
        if acked and not self.is_volatile:
            self._parts.acks.schedule_write(self)
        return acked

    def _release(self, blobs: Iterable[int]) -> None:
        bodies = self._parts.bodies
        if bodies is not None and not self.is_removed:
            for blob in blobs:
                bodies.release(blob)

    def recover_references(self) -> None:
        """Hold again what live messages refer to. One whose body is not there was never acknowledged, or is settled."""
        bodies = self._parts.bodies
        for segment in self.segments:
            for offset, blob in segment.live_blobs():
                if bodies is not None and not bodies.recover(blob) and segment.ack(offset):
                    self.live -= 1
                    self._parts.acks.schedule_write(self)

    def note_attempts(self, offset: int, attempts: int) -> None:
        """Keep how often a message was tried, for a limit that holds after a restart too."""
        segment = self._segment_of(offset)
        segment.attempts[offset - segment.base] = segment.unwritten_attempts[offset - segment.base] = attempts
        if not self.is_volatile:
            self._parts.acks.schedule_write(self)

    def remove_if_all_acked(self, segment: QueueSegment) -> None:
        """Unlink a sealed segment with nothing live. A restart must not expect it by then."""
        if segment.live or not segment.is_sealed or segment not in self.segments or segment is self._tail:
            return
        if self.is_volatile and self._mark is not None and self._mark[1] is segment:
            self._parts.passes.call_soon(lambda: self.remove_if_all_acked(segment))  # this pass may be undone
        elif self.is_volatile:
            self._take_from_list(segment)
            self._remove(segment)
        elif segment.is_seal_durable:
            self._take_from_list(segment)
            forgotten = self._parts.checkpoints.forget_marks(self.folder, [segment.base])
            self._parts.passes.on_synced(forgotten, lambda ticket: self._unlink(segment, ticket))

    def _unlink(self, segment: QueueSegment, ticket: Ticket) -> None:
        if self.is_removed:
            return
        if ticket.refusal is None:
            self._remove(segment)
        else:  # a restart expects it: it stays until something else of this queue is settled, or the log is closed
            segment.unwritten = list(range(segment.end - segment.base))
            self.segments.insert(self.segments.index(self._segment_from(segment.end)), segment)

    def _remove(self, segment: QueueSegment) -> None:
        segment.close_acks()
        self.journal.remove(segment.segment, (ACKS,))
