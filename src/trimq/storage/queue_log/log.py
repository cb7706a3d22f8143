"""The queue log: appends and reads contents in segments, with an offset for each message. `Acknowledgements` marks
messages and removes segments. Does not know consumers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from trimq.errors import DamagedSegment, Refusal, UnknownTopic, WriteFailed
from trimq.formats.amqp_content.content import (
    NEVER,
    NO_BLOB,
    REFERENCE_BYTES,
    SHARED,
    TRANSIENT,
    Content,
    EncodedContent,
    StoredContent,
    blob_of,
    encode_all,
    encode_content,
    encode_footer,
    encode_head,
    encode_references,
)
from trimq.model import Buffer
from trimq.storage.checkpoints.log_checkpoints import SealedMark
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import File
from trimq.storage.queue_log.acknowledgements import Acknowledgements
from trimq.storage.queue_log.reader import ReadWindow, RecentContents, read_expiries
from trimq.storage.queue_log.segment import CONTENTS, QueueSegment, SegmentRollbackPoint
from trimq.storage.queue_log.segments import SegmentList
from trimq.storage.queue_log.services import QueueLogServices

log = logging.getLogger(__name__)

_Written = tuple[int, int | None]
"""The end of a pass, and the first of its messages that must be synced before it is readable."""


class QueueLog:
    """`end` (appended) >= `readable_end`. Messages of a volatile log, and transient messages, are readable once they
    are written; all others once they are durable. Messages become readable in the order of their offsets."""

    def __init__(self, services: QueueLogServices, folder: str, is_volatile: bool) -> None:
        self.folder = folder
        self.segment_bytes = services.segment_bytes
        self.is_volatile = is_volatile
        self._services = services
        self.journal = Journal(
            services.files, folder, CONTENTS, services.passes, self, is_first=services.bodies is None
        )
        self.journal.may_preallocate = not is_volatile  # a volatile log is never synced
        self.segments = SegmentList()
        self.end = 0
        self.readable_end = 0
        self.is_removed = False
        self.on_readable: Callable[[], None] | None = None
        self.on_grown: Callable[[], None] | None = None
        """As `on_readable`, for readers that take no messages."""
        """Called when `readable_end` grows."""
        self.caches_recent = True
        """True if appended contents are kept in memory for consumers that keep up."""
        self.undone: Callable[[], None] | None = None
        """Called when a pass failed and its messages were removed again."""
        self._written_end = 0
        self._rollback_point: tuple[int, SegmentRollbackPoint]  # `end` when this pass began, and that of `pass_tail`
        self._parts: list[Buffer] = []  # of this pass, for the tail, as the journal collects them
        self._ticket: Ticket  # of this pass
        self._first_synced: int | None = None
        self._has_rolled = False
        self._not_yet_durable: deque[_Written] = deque()
        self._has_new_references = False
        self._recent = RecentContents(services.budget)
        self._window = ReadWindow()
        self._new_folders: set[str] = set()
        self.acks = Acknowledgements(services, folder, is_volatile, self.segments, self._recent, self.journal)

    @property
    def live(self) -> int:
        """Messages that are not acknowledged."""
        return self.segments.live

    # -- creation and recovery

    def begin(self) -> None:
        """Begins a new log in an existing folder. Durable with the pass that this joins."""
        self.segments.add_tail(QueueSegment(self.journal.roll(0)))
        self._has_rolled = True
        self._new_folders.update((self.folder, self.folder.rpartition("/")[0]))

    def resume(self, segments: list[QueueSegment], undurable: QueueSegment) -> None:
        """Continues an existing log. Messages from `undurable` on are synced before they are readable."""
        for segment in segments:
            self.segments.add_tail(segment)
        self.segments.live = sum(segment.live for segment in segments)
        self.end = self._written_end = segments[-1].end
        self.readable_end = self._first_synced = undurable.base
        self._has_rolled = True
        self.journal.resync(undurable.segment)

    def begin_segment(self) -> None:
        """Begins another segment: the last one that was found is sealed."""
        self.segments.add_tail(QueueSegment(self.journal.roll(self.end)))

    # -- appending

    def append(self, sealed: EncodedContent, expires_ms: int = NEVER, flags: int = 0) -> Ticket:
        """Collects a content for this pass, with the offset `end`. `flags`: TRANSIENT, REDELIVERED,
        DEAD_LETTER."""
        segments = self.segments
        if segments.pass_tail is None:
            self._begin_pass()
        offset = self.end
        tail = segments.tail
        blob = sealed.blob
        if blob != NO_BLOB:
            flags |= SHARED
        head = encode_head(sealed, offset, expires_ms, flags)
        size = len(head) + sealed.size
        if tail.segment.size + size > self.segment_bytes and tail.records:
            tail = self.roll()
        position = tail.segment.size
        content = sealed.content
        parts = sealed.parts
        if len(parts) == 1:
            self._parts.append(head + parts[0])
        else:
            self._parts.append(head)
            self._parts += parts
        tail.segment.size += size
        tail.note(offset, position, len(content.body), expires_ms, content.published_ms)
        if flags & TRANSIENT:
            tail.transient += 1
        elif self._first_synced is None and not self.is_volatile:
            self._first_synced = offset
        self.end = offset + 1
        segments.live += 1
        if blob != NO_BLOB:
            self._add_reference(tail, offset, blob)
            size += len(content.body) - REFERENCE_BYTES
        if self.caches_recent:
            self._recent.keep(offset, flags, expires_ms, (content,), size)
        return self._ticket

    def append_all(self, contents: Sequence[Content], expires_ms: int, flags: int) -> Ticket:
        """Fast path of `append` for one or more contents published at the same time; falls back to `append` when the
        segment is full."""
        records = encode_all(contents, self.end, expires_ms, flags)
        size = sum(map(len, records))
        segments = self.segments
        if segments.tail.segment.size + size > self.segment_bytes:
            for content in contents:
                ticket = self.append(encode_content(content), expires_ms, flags)
            return ticket
        if segments.pass_tail is None:
            self._begin_pass()
        tail, offset, count = segments.tail, self.end, len(records)
        self._parts += records
        body_bytes = sum([len(content[3]) for content in contents])
        tail.note(offset, tail.segment.size, body_bytes, expires_ms, contents[0].published_ms, count)
        tail.segment.size += size
        if flags & TRANSIENT:
            tail.transient += count
        elif self._first_synced is None and not self.is_volatile:
            self._first_synced = offset
        self.end = offset + count
        segments.live += count
        if self.caches_recent:
            self._recent.keep(offset, flags, expires_ms, contents, size)
        return self._ticket

    def _add_reference(self, tail: QueueSegment, offset: int, blob: int) -> None:
        assert self._services.bodies is not None, "the log of shared bodies does not refer to shared bodies"
        self._services.bodies.hold(blob)
        tail.add_reference(offset, blob)
        self._has_new_references = True

    def latest_ticket(self) -> Ticket:
        return self.journal.latest_ticket()

    def roll(self, base: int | None = None) -> QueueSegment:
        """Seals the tail with a footer and begins the next segment at `base`, by default the next offset."""
        if self.segments.pass_tail is None:
            self._begin_pass()
        sealed = self.segments.tail
        base = self.end if base is None else base
        footer = encode_footer(sealed.footer())
        if sealed.references is not None and sealed.shared:
            footer = encode_references(sealed.references, sealed.end) + footer
        self._parts.append(footer)
        sealed.segment.size += len(footer)
        try:
            segment = QueueSegment(self.journal.roll(base))
        except WriteFailed:
            self._parts.pop()  # records behind a footer are never read
            sealed.segment.size -= len(footer)
            raise
        sealed.is_sealed = True
        self.end = base
        self._has_rolled = True
        self.segments.add_tail(segment)
        self._parts, self._ticket = self.journal.collect(segment.segment)
        if not self.is_volatile:
            self.mark_sealed_when_synced(sealed)
        return segment

    def _begin_pass(self) -> None:
        if self.is_removed:
            raise UnknownTopic(self.folder)
        tail = self.segments.pass_tail = self.segments.tail
        self._rollback_point = (self.end, tail.mark())
        self._parts, self._ticket = self.journal.collect(tail.segment)

    def mark_sealed_when_synced(self, sealed: QueueSegment) -> None:
        """Saves a checkpoint for a sealed segment once it is synced: from then on, a restart requires the segment."""

        def sealed_on_disk(ticket: Ticket) -> None:
            if ticket.refusal is not None or self.is_removed:
                return
            mark = SealedMark(sealed.segment.size, None)
            saved = self._services.checkpoints.seal(self.folder, sealed.base, mark)
            self._services.passes.on_synced(saved, marked)

        def marked(ticket: Ticket) -> None:
            if ticket.refusal is None and not self.is_removed:
                sealed.is_seal_durable = True
                self.acks.remove_if_all_acked(sealed)

        self._services.passes.on_synced(self.journal.latest_ticket(), sealed_on_disk)

    # -- calls of the journal: the end of a pass

    def pass_written(self, number: int, dirty: Dirty) -> None:
        if self._has_new_references and self._services.bodies is not None:
            if self._services.bodies.failed_pass == number:
                raise OSError("the shared bodies of this pass could not be written")
            self._has_new_references = False
        self.segments.pass_tail = None
        self._parts = []  # written: free the memory
        if self.is_removed or not self.segments:  # or it could not be opened
            return
        if self.is_volatile:
            self._keep_clean(dirty)
        if self._new_folders:
            dirty.folders.update(() if self.is_volatile else self._new_folders)
            self._new_folders.clear()
        self._has_rolled = False
        self._not_yet_durable.append((self.end, self._first_synced))
        self._first_synced = None
        self._written_end = self.end
        self._move_readable_end()

    def _keep_clean(self, dirty: Dirty) -> None:
        """Removes the files of a volatile log from those to sync."""
        written = self.journal.segments if self._has_rolled else self.journal.segments[-1:]
        dirty.files.difference_update(segment.file for segment in written)
        dirty.folders.discard(self.folder)

    def pass_undone(self) -> None:
        self._first_synced, self._has_rolled, self._has_new_references = None, False, False
        self._parts = []
        if self.segments.pass_tail is None:
            return
        end, point = self._rollback_point
        self._recent.forget(end, self.end)
        self.end = end
        self.acks.release_bodies(self.segments.roll_back(end, point))
        self._window.clear()
        if self.undone is not None:
            self.undone()

    def pass_durable(self, number: int) -> None:
        if self._not_yet_durable and not self.is_removed:
            self._not_yet_durable.popleft()
            self._move_readable_end()

    def _move_readable_end(self) -> None:
        end = self._written_end
        for _, first in self._not_yet_durable:
            if first is not None:
                end = first
                break
        if end > self.readable_end:
            self.readable_end = end
            if self.on_readable is not None:
                self.on_readable()
            if self.on_grown is not None:
                self.on_grown()

    # -- reading

    def next_live(self, offset: int) -> int | None:
        """Returns the offset of the first live, readable message from `offset` on."""
        return self.segments.next_live(offset, self.readable_end)

    def peek(self, offset: int, may_wait: bool = True) -> StoredContent:
        """Returns the content of a live message. DamagedSegment: its stored bytes are corrupt. ColdRead: it is cold
        data and `may_wait` is False."""
        return self._recent.get(offset) or self._read(offset, may_wait)

    def take(self, offset: int, may_wait: bool = True) -> StoredContent:
        """Returns the same as `peek`, and frees the memory of the content."""
        recent = self._recent.take(offset)
        if recent is None:
            recent = self._read(offset, may_wait)
            self._window.forget(offset)
        return recent

    def take_batch(self, offset: int, most: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        """Fast path of `take` for live messages from `offset` on; ends at the first that is acknowledged, cold, expired
        or has failed attempts."""
        segments = self.segments
        first = segments.next_live(offset, self.readable_end)
        if first is None or segments.last_used.attempts:
            return []
        end = min(segments.last_used.next_acked(first), self.readable_end, first + most)
        return self._recent.take_batch(first, end, max_bytes, now_ms) or self._window.take_batch(
            first, end, max_bytes, now_ms
        )

    def take_expired(self, offset: int, most: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        """Does the same as `take_batch` for messages that have expired."""
        segments = self.segments
        first = segments.next_live(offset, self.readable_end)
        if first is None or segments.last_used.attempts:
            return []
        end = min(segments.last_used.next_acked(first), self.readable_end, first + most)
        return self._recent.take_expired(first, end, max_bytes, now_ms) or self._window.take_expired(
            first, end, max_bytes, now_ms
        )

    def expiry_ms(self, offset: int, may_wait: bool = True) -> int:
        """Returns the time of expiry of a live message. Does not read a shared body."""
        found = self._recent.get(offset) or self._read_window(offset, may_wait)
        return found.expires_ms

    def expiries(self, offset: int) -> Iterator[tuple[int, int]]:
        """Yields the offsets of live readable messages from `offset` on, and their times of expiry. Skips messages of
        a damaged file."""
        following = self.next_live(offset)
        while following is not None:
            recent = self._recent.get(following)
            if recent is not None:
                yield following, recent.expires_ms
                following = self.next_live(following + 1)
                continue
            segment = self.segments.segment_of(following)
            end = min(segment.end, self.readable_end)
            try:
                for found, expires_ms in read_expiries(segment, following, end):
                    if segment.is_live(found):
                        yield found, expires_ms
            except DamagedSegment as damage:
                log.error("%s: messages skipped: %s", self.folder, damage)
            following = self.next_live(end)

    def _read(self, offset: int, may_wait: bool) -> StoredContent:
        stored = self._read_window(offset, may_wait)
        if not stored.flags & SHARED or self._services.bodies is None:
            return stored
        body = self._services.bodies.read(blob_of(stored), may_wait)
        return stored._replace(content=stored.content._replace(body=body))

    def _read_window(self, offset: int, may_wait: bool) -> StoredContent:
        try:
            return self._window.read(self.segments.segment_of(offset), offset, may_wait)
        except DamagedSegment as damage:
            self._services.damages.found(
                damage, "restore the file from a copy; its messages are delivered after the next start"
            )
            raise

    # -- compaction

    def swap_in_copy(self, segment: QueueSegment, file: File, size: int, records: int, body_bytes: int) -> None:
        """Replaces the file of a segment by a shorter one, which holds the messages that were live when it was made."""
        segment.segment.file.close()
        segment.segment.file = file
        segment.segment.size = size
        segment.compacted(records, body_bytes)
        self._window.clear()
        self._new_folders.add(self.folder)
        self.journal.join_pass()

    # -- the end

    def close(self) -> None:
        """Syncs all acknowledgements with the pass that this call joins, and frees preallocated space."""
        if not self.is_removed and not self.is_volatile:
            self.acks.close()
            self.journal.trim_preallocation()

    def abandon(self, refusal: Refusal | None = None) -> None:
        """Writes nothing more: the folder of the log is removed. `refusal` is set on the ticket of messages that are
        not written yet."""
        self.acks.abandon()
        self.is_removed = True
        self._recent.forget(0, self.end)
        self._window.clear()
        self._parts = []
        self.journal.abandon(refusal or UnknownTopic(self.folder))
