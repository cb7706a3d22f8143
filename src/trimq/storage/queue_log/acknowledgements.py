"""Acknowledgements of one queue log: marks messages as acknowledged, releases their shared bodies, and removes segments
without live messages. `AckWriter` writes the marks; `QueueLog` appends and reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimq.formats.amqp_content.content import NO_BLOB
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.reader import RecentContents
from trimq.storage.queue_log.segment import ACKS, QueueSegment
from trimq.storage.queue_log.segments import SegmentList
from trimq.storage.queue_log.services import QueueLogServices


class Acknowledgements:
    """An acknowledgement takes effect at once and is written at the end of the turn, without a sync: after a crash, the
    message may be redelivered."""

    def __init__(
        self,
        services: QueueLogServices,
        folder: str,
        is_volatile: bool,
        segments: SegmentList,
        recent: RecentContents,
        journal: Journal,
    ) -> None:
        self.folder = folder
        self.segments = segments
        self.is_removed = False
        self._is_volatile = is_volatile
        self._services = services
        self._recent = recent
        self._journal = journal

    def ack(self, offset: int) -> None:
        """Acknowledges one message. Ignores one of a segment that was removed."""
        segments = self.segments
        segment = segments.last_used
        if not segment.base <= offset < segment.end:
            segment = segments.segment_from(offset)
            if not segment.base <= offset < segment.end:
                return
        if not segment.ack(offset):
            return
        segments.live -= 1
        if offset in self._recent:
            self._recent.take(offset)
        if segment.references is not None and (blob := segment.references.blob_of(offset - segment.base)) != NO_BLOB:
            self.release_bodies((blob,))
        if not self._is_volatile:
            self._services.ack_writer.schedule_write(self)
        elif segment.is_sealed and not segment.live:
            self.remove_if_all_acked(segment)

    def ack_each(self, offsets: Sequence[int]) -> None:
        """Fast path of `ack` for at least one message; falls back if they are in several segments, are in memory for
        readers, or have shared bodies."""
        segments = self.segments
        first, last = min(offsets), max(offsets)
        segment = segments.last_used
        if not segment.segment.base <= first < segment.end:
            segment = segments.segment_from(first)
        is_plain = segment.segment.base <= first and last < segment.end and segment.references is None
        if not is_plain or not self._recent.keys().isdisjoint(offsets):
            for offset in offsets:
                self.ack(offset)
            return
        segments.live -= segment.ack_each(offsets, last)
        if not self._is_volatile:
            self._services.ack_writer.schedule_write(self)
        elif segment.is_sealed and not segment.live:
            self.remove_if_all_acked(segment)

    def ack_range(self, first: int, end: int, but: Iterable[int] = ()) -> int:
        """Acknowledges every live message from `first` up to `end` except those in `but`. Returns their number."""
        kept = set(but)
        acked = 0
        for segment in [segment for segment in self.segments if segment.base < end and segment.end > first]:
            self.release_bodies(
                blob for offset, blob in segment.live_blobs() if first <= offset < end and offset not in kept
            )
            acked += segment.ack_range(max(first, segment.base), min(end, segment.end), kept)
            if segment.is_sealed and not segment.live:
                self.remove_if_all_acked(segment)
        self.segments.live -= acked
        self._recent.forget(first, end, kept)
        if acked and not self._is_volatile:
            self._services.ack_writer.schedule_write(self)
        return acked

    def note_attempts(self, offset: int, attempts: int) -> None:
        """Stores the number of failed deliveries of a message, for a delivery limit that survives a restart."""
        segment = self.segments.segment_of(offset)
        segment.attempts[offset - segment.base] = segment.unwritten_attempts[offset - segment.base] = attempts
        if not self._is_volatile:
            self._services.ack_writer.schedule_write(self)

    # -- shared bodies

    def release_bodies(self, blobs: Iterable[int]) -> None:
        bodies = self._services.bodies
        if bodies is not None and not self.is_removed:
            for blob in blobs:
                bodies.release(blob)

    def recover_references(self) -> None:
        """After a start: counts the shared bodies of live messages. A message without its body was never confirmed, or
        is acknowledged."""
        bodies = self._services.bodies
        for segment in self.segments:
            for offset, blob in segment.live_blobs():
                if bodies is not None and not bodies.recover(blob) and segment.ack(offset):
                    self.segments.live -= 1
                    self._services.ack_writer.schedule_write(self)

    # -- removal of segments

    def remove_if_all_acked(self, segment: QueueSegment) -> None:
        """Removes a sealed segment without live messages, once a restart does not expect it any more."""
        segments = self.segments
        if segment.live or not segment.is_sealed or segment not in segments or segment is segments.tail:
            return
        if self._is_volatile and segments.pass_tail is segment:  # this pass may be undone
            self._services.passes.call_soon(lambda: self.remove_if_all_acked(segment))
        elif self._is_volatile:
            segments.take_out(segment)
            self._remove(segment)
        elif segment.is_seal_durable:
            segments.take_out(segment)
            forgotten = self._services.checkpoints.forget_marks(self.folder, [segment.base])
            self._services.passes.on_synced(forgotten, lambda ticket: self._unlink(segment, ticket))

    def _unlink(self, segment: QueueSegment, ticket: Ticket) -> None:
        if self.is_removed:
            return
        if ticket.refusal is None:
            self._remove(segment)
        else:  # a restart expects it: keep it until another message is acknowledged, or the log is closed
            segment.unwritten = list(range(segment.end - segment.base))
            self.segments.put_back(segment)

    def _remove(self, segment: QueueSegment) -> None:
        segment.close_acks()
        self._journal.remove(segment.segment, (ACKS,))

    # -- the end

    def close(self) -> None:
        """Syncs all acknowledgements with the pass that this call joins."""
        self._services.ack_writer.close(self)

    def abandon(self) -> None:
        """Releases all shared bodies, and writes nothing more: the folder of the log is removed."""
        self.release_bodies(blob for segment in self.segments for _, blob in segment.live_blobs())
        self.is_removed = True
