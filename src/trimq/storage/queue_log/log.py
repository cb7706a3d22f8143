"""The queue log: contents in segments, what was settled of them apart. Owns offsets, ends, and the going of segments
with nothing live; who gets a message, and when, is decided above."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from trimq.errors import DamagedSegment, UnknownTopic, WriteFailed
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
from trimq.storage.checkpoints.log_checkpoints import SealedMark
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import File
from trimq.storage.queue_log.reader import ReadWindow, RecentContents, read_expiries
from trimq.storage.queue_log.segment import CONTENTS, QueueSegment
from trimq.storage.queue_log.settling import AckableSegments, QueueRollbackPoint
from trimq.storage.queue_log.shared import QueueLogServices

log = logging.getLogger(__name__)

_Written = tuple[int, int | None]
"""The end of a pass, and the first of its messages that must be synced before it is readable."""


class QueueLog(AckableSegments):
    """`end` (appended) >= `readable_end`. Of a volatile log, and of transient messages in another, what is written is
    readable; all else when it is durable, and everything in the order of the offsets."""

    def __init__(self, parts: QueueLogServices, folder: str, is_volatile: bool) -> None:
        super().__init__()
        self.folder = folder
        self.segment_bytes = parts.segment_bytes
        self.is_volatile = is_volatile
        self._parts = parts
        self.journal = Journal(parts.files, folder, CONTENTS, parts.passes, self, is_first=parts.bodies is None)
        self.journal.may_preallocate = not is_volatile  # which is never synced
        self.is_removed = False
        self.on_readable: Callable[[], None] | None = None
        """Called when `readable_end` has grown."""
        self.caches_recent = True
        """Whether what is appended is kept at hand for readers that keep up."""
        self.undone: Callable[[], None] | None = None
        """Called when messages were appended and then taken back."""
        self._written_end = 0
        self._mark: QueueRollbackPoint | None = None
        self._first_synced: int | None = None
        self._has_rolled = False
        self._not_yet_durable: deque[_Written] = deque()
        self._has_new_references = False
        self._recent = RecentContents(parts.budget)
        self._window = ReadWindow()
        self._new_folders: set[str] = set()

    # -- beginning

    def begin(self) -> None:
        """A new log, in a folder that is there. Durable with the pass that this takes part in."""
        self._add_tail(QueueSegment(self.journal.roll(0)))
        self._has_rolled = True
        self._new_folders.update((self.folder, self.folder.rpartition("/")[0]))

    def resume(self, segments: list[QueueSegment], undurable: QueueSegment) -> None:
        """An existing log was opened. From `undurable` on it is synced before it is read."""
        for segment in segments:
            self._add_tail(segment)
        self.live = sum(segment.live for segment in segments)
        self.end = self._written_end = segments[-1].end
        self.readable_end = self._first_synced = undurable.base
        self._has_rolled = True
        self.journal.resync(undurable.segment)

    def begin_segment(self) -> None:
        """The last segment that was found is sealed: what is appended goes to another."""
        self._add_tail(QueueSegment(self.journal.roll(self.end)))

    # -- appending

    def append(self, sealed: EncodedContent, expires_ms: int = NEVER, flags: int = 0) -> Ticket:
        """Collect a content for this pass; it has the offset `end` as it was before. `flags`: TRANSIENT, RETURNED."""
        if self._mark is None:
            self._begin_pass()
        offset = self.end
        tail = self._tail
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
            ticket = self.journal.append(head + parts[0], size)
        else:
            ticket = self.journal.append(head, len(head))
            for part in parts:
                self.journal.append(part, len(part))
        tail.note(offset, position, len(content.body), expires_ms, content.published_ms)
        if flags & TRANSIENT:
            tail.transient += 1
        elif self._first_synced is None and not self.is_volatile:
            self._first_synced = offset
        self.end = offset + 1
        self.live += 1
        if blob != NO_BLOB:
            self._add_reference(tail, offset, blob)
            size += len(content.body) - REFERENCE_BYTES
        if self.caches_recent:
            self._recent.keep(offset, flags, expires_ms, (content,), size)
        return ticket

    def append_all(self, contents: Sequence[Content], expires_ms: int, flags: int) -> Ticket:
        """As `append` of each: contents that were published at one time, at least one."""
        records = encode_all(contents, self.end, expires_ms, flags)
        size = sum(map(len, records))
        if self._tail.segment.size + size > self.segment_bytes:
            for content in contents:
                ticket = self.append(encode_content(content), expires_ms, flags)
            return ticket
        if self._mark is None:
            self._begin_pass()
        tail, offset, count = self._tail, self.end, len(records)
        parts, ticket = self.journal.collect(tail.segment)
        parts += records
        body_bytes = sum([len(content[3]) for content in contents])
        tail.note(offset, tail.segment.size, body_bytes, expires_ms, contents[0].published_ms, count)
        tail.segment.size += size
        if flags & TRANSIENT:
            tail.transient += count
        elif self._first_synced is None and not self.is_volatile:
            self._first_synced = offset
        self.end = offset + count
        self.live += count
        if self.caches_recent:
            self._recent.keep(offset, flags, expires_ms, contents, size)
        return ticket

    def _add_reference(self, tail: QueueSegment, offset: int, blob: int) -> None:
        assert self._parts.bodies is not None, "bodies are not shared once more"
        self._parts.bodies.hold(blob)
        tail.add_reference(offset, blob)
        self._has_new_references = True

    def latest_ticket(self) -> Ticket:
        return self.journal.latest_ticket()

    def roll(self, base: int | None = None) -> QueueSegment:
        """Seal the tail with a footer and begin the next segment: with the next offset, or one behind it."""
        if self._mark is None:
            self._begin_pass()
        sealed = self._tail
        base = self.end if base is None else base
        footer = encode_footer(sealed.footer())
        if sealed.references is not None and sealed.shared:
            footer = encode_references(sealed.references, sealed.end) + footer
        parts, _ = self.journal.collect(sealed.segment)
        parts.append(footer)
        sealed.segment.size += len(footer)
        try:
            segment = QueueSegment(self.journal.roll(base))
        except WriteFailed:
            parts.pop()  # what follows a footer would never be read
            sealed.segment.size -= len(footer)
            raise
        sealed.is_sealed = True
        self.end = base
        self._has_rolled = True
        self._add_tail(segment)
        if not self.is_volatile:
            self.mark_sealed_when_synced(sealed)
        return segment

    def _begin_pass(self) -> None:
        if self.is_removed:
            raise UnknownTopic(self.folder)
        self._mark = (self.end, self._tail, self._tail.mark())

    def mark_sealed_when_synced(self, sealed: QueueSegment) -> None:
        """Only what is on disk is expected there by a restart."""

        def sealed_on_disk(ticket: Ticket) -> None:
            if ticket.refusal is not None or self.is_removed:
                return
            mark = SealedMark(sealed.segment.size, None)
            saved = self._parts.checkpoints.seal(self.folder, sealed.base, mark)
            self._parts.passes.on_synced(saved, marked)

        def marked(ticket: Ticket) -> None:
            if ticket.refusal is None and not self.is_removed:
                sealed.is_seal_durable = True
                self.remove_if_all_acked(sealed)

        self._parts.passes.on_synced(self.journal.latest_ticket(), sealed_on_disk)

    # -- the journal's side: passes end

    def pass_written(self, number: int, dirty: Dirty) -> None:
        if self._has_new_references and self._parts.bodies is not None:
            if self._parts.bodies.failed_pass == number:
                raise OSError("the shared bodies of this pass could not be written")
            self._has_new_references = False
        self._mark = None
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
        """Nothing of a volatile log is ever synced."""
        written = self.journal.segments if self._has_rolled else self.journal.segments[-1:]
        dirty.files.difference_update(segment.file for segment in written)
        dirty.folders.discard(self.folder)

    def pass_undone(self) -> None:
        mark, self._mark, self._first_synced, self._has_rolled = self._mark, None, None, False
        self._has_new_references = False
        if mark is None:
            return
        self._recent.forget(mark[0], self.end)
        self.end, tail, tail_mark = mark
        undone = self.segments[self.segments.index(tail) :]
        self.live -= sum(segment.records for segment in undone) - tail_mark[1]
        self._release(blob for segment in undone for offset, blob in segment.live_blobs() if offset >= self.end)
        del self.segments[-len(undone) + 1 or len(self.segments) :]
        self._tail = self._last_used = tail
        tail.roll_back_to(tail_mark)
        self._window.clear()
        if self.undone is not None:
            self.undone()

    def pass_durable(self, number: int) -> None:
        if self._not_yet_durable and not self.is_removed:
            self._not_yet_durable.popleft()
            self._move_readable_end()

    def _move_readable_end(self) -> None:
        end = next((first for _, first in self._not_yet_durable if first is not None), self._written_end)
        if end > self.readable_end:
            self.readable_end = end
            if self.on_readable is not None:
                self.on_readable()

    # -- reading

    def peek(self, offset: int, may_wait: bool = True) -> StoredContent:
        """The content of a live message. DamagedSegment: its bytes are not what was written. ColdRead: they are on disk
        only, and the caller may not wait for them."""
        return self._recent.get(offset) or self._read(offset, may_wait)

    def take(self, offset: int, may_wait: bool = True) -> StoredContent:
        """As `peek`, for the reader whose turn it is: the content need not be kept at hand any longer."""
        recent = self._recent.take(offset)
        if recent is None:
            recent = self._read(offset, may_wait)
            self._window.forget(offset)
        return recent

    def take_batch(self, offset: int, most: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        """As `take` of the live messages from `offset` on, as far as they lie one after the other, are at hand, were
        never tried before and have not expired."""
        first = self.next_live(offset)
        if first is None or self._last_used.attempts:
            return []
        end = min(self._last_used.next_acked(first), self.readable_end, first + most)
        return self._recent.take_batch(first, end, most_bytes, now_ms) or self._window.take_batch(
            first, end, most_bytes, now_ms
        )

    def take_expired(self, offset: int, most: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        """As `take_batch`, of messages that have expired."""
        first = self.next_live(offset)
        if first is None or self._last_used.attempts:
            return []
        end = min(self._last_used.next_acked(first), self.readable_end, first + most)
        return self._recent.take_expired(first, end, most_bytes, now_ms) or self._window.take_expired(
            first, end, most_bytes, now_ms
        )

    def expiry_ms(self, offset: int, may_wait: bool = True) -> int:
        """Of a live message, whose body is not read if it is elsewhere."""
        found = self._recent.get(offset) or self._read_window(offset, may_wait)
        return found.expires_ms

    def expiries(self, offset: int) -> Iterator[tuple[int, int]]:
        """The live messages from `offset` on that are readable, and when each expires. What a damaged file does not
        tell is left out."""
        following = self.next_live(offset)
        while following is not None:
            recent = self._recent.get(following)
            if recent is not None:
                yield following, recent.expires_ms
                following = self.next_live(following + 1)
                continue
            segment = self._segment_of(following)
            end = min(segment.end, self.readable_end)
            try:
                for found, expires_ms in read_expiries(segment, following, end):
                    if segment.is_live(found):
                        yield found, expires_ms
            except DamagedSegment as damage:
                log.error("messages of %s are left out: %s", self.folder, damage)
            following = self.next_live(end)

    def _read(self, offset: int, may_wait: bool) -> StoredContent:
        stored = self._read_window(offset, may_wait)
        if not stored.flags & SHARED or self._parts.bodies is None:
            return stored
        body = self._parts.bodies.read(blob_of(stored), may_wait)
        return stored._replace(content=stored.content._replace(body=body))

    def _read_window(self, offset: int, may_wait: bool) -> StoredContent:
        try:
            return self._window.read(self._segment_of(offset), offset, may_wait)
        except DamagedSegment as damage:
            self._parts.damages.found(damage, "put the file back from a copy: what it holds is delivered after that")
            raise

    # -- compaction

    def swap_in_copy(self, segment: QueueSegment, file: File, size: int, records: int, body_bytes: int) -> None:
        """A shorter file has taken the place of a segment's own: it holds what was live when it was made."""
        segment.segment.file.close()
        segment.segment.file = file
        segment.segment.size = size
        segment.compacted(records, body_bytes)
        self._window.clear()
        self._new_folders.add(self.folder)
        self.journal.join_pass()

    # -- the end

    def close(self) -> None:
        """What was settled reaches the disk with the pass that this begins."""
        if not self.is_removed and not self.is_volatile:
            self._parts.acks.close(self)
            self.journal.trim_preallocation()

    def abandon(self) -> None:
        """Its folder goes: nothing more is written or said."""
        self._release(blob for segment in self.segments for _, blob in segment.live_blobs())
        self.is_removed = True
        self._recent.forget(0, self.end)
        self._window.clear()
        self.journal.abandon(UnknownTopic(self.folder))
