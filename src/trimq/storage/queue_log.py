"""The queue log: contents in segments, what was settled of them apart. Owns offsets, ends, and the going of segments
with nothing live; who gets a message, and when, is decided above."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from trimq.errors import OffsetOutOfRange, UnknownTopic, WriteFailed
from trimq.formats.content import HEAD_BYTES, NEVER, TRANSIENT, Sealed, Stored, encode_footer, encode_head
from trimq.storage.ack_writing import AckWriting
from trimq.storage.checkpoints import Checkpoints, SealedMark
from trimq.storage.files import File, Files
from trimq.storage.flusher import Dirty
from trimq.storage.journal import Journal
from trimq.storage.passes import Passes, Ticket
from trimq.storage.queue_reading import Budget, Window, count_live_bytes
from trimq.storage.queue_segment import ACKS, CONTENTS, QueueSegment, TailMark


class QueueParts(NamedTuple):
    """What every queue log of a broker shares. `budget`: of contents that are kept for readers that keep up."""

    files: Files
    passes: Passes
    checkpoints: Checkpoints
    acks: AckWriting
    budget: Budget
    segment_bytes: int


_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor, for every message

# What a content takes in memory besides its bytes.
_OBJECT_BYTES = 300

_PassMark = tuple[int, QueueSegment, TailMark]
_Written = tuple[int, int | None]
"""The end of a pass, and the first of its messages that must be synced before it is readable."""


class QueueLog:
    """`end` (appended) >= `readable_end`. Of a volatile log, and of transient messages in another, what is written is
    readable; all else when it is durable, and everything in the order of the offsets."""

    def __init__(self, parts: QueueParts, folder: str, is_volatile: bool) -> None:
        self.folder = folder
        self.is_volatile = is_volatile
        self._parts = parts
        self.journal = Journal(parts.files, folder, CONTENTS, parts.passes, self)
        self.segments: list[QueueSegment] = []
        self.live = 0
        self.end = 0
        self.readable_end = 0
        self.is_removed = False
        self.grown: Callable[[], None] | None = None
        """Called when `readable_end` has grown."""
        self.undone: Callable[[], None] | None = None
        """Called when messages were appended and then taken back."""
        self._written_end = 0
        self._tail: QueueSegment
        self._near: QueueSegment
        self._mark: _PassMark | None = None
        self._first_synced: int | None = None
        self._has_rolled = False
        self._unsettled: deque[_Written] = deque()
        self._recent: dict[int, Stored] = {}
        self._window = Window()
        self._new_folders: set[str] = set()

    # -- beginning

    def begin(self) -> None:
        """A new log, in a folder that is there. Durable with the pass that this takes part in."""
        self._aim(QueueSegment(self.journal.roll(0)))
        self._has_rolled = True
        self._new_folders.update((self.folder, self.folder.rpartition("/")[0]))

    def resume(self, segments: list[QueueSegment], undurable: QueueSegment) -> None:
        """An existing log was opened. From `undurable` on it is synced before it is read."""
        for segment in segments:
            self._aim(segment)
        self.live = sum(segment.live for segment in segments)
        self.end = self._written_end = segments[-1].end
        self.readable_end = self._first_synced = undurable.base
        self._has_rolled = True
        self.journal.resync(undurable.segment)

    def begin_tail(self) -> None:
        """The last segment that was found is sealed: what is appended goes to another."""
        self._aim(QueueSegment(self.journal.roll(self.end)))

    def _aim(self, segment: QueueSegment) -> None:
        self.segments.append(segment)
        self._tail = self._near = segment

    # -- appending

    def append(self, sealed: Sealed, expires_ms: int = NEVER, flags: int = 0) -> Ticket:
        """Collect a content for this pass; it has the offset `end` as it was before. `flags`: TRANSIENT, RETURNED."""
        if self._mark is None:
            self._begin_pass()
        offset = self.end
        tail = self._tail
        head = encode_head(sealed, offset, expires_ms, flags)
        size = len(head) + sealed.size
        if tail.segment.size + size > self._parts.segment_bytes and tail.records:
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
        budget = self._parts.budget
        if budget.left > size:
            budget.left -= size + _OBJECT_BYTES
            self._recent[offset] = _new_tuple(Stored, (offset, flags, expires_ms, content))
        return ticket

    def latest_ticket(self) -> Ticket:
        return self.journal.latest_ticket()

    def roll(self) -> QueueSegment:
        """Seal the tail with a footer and begin the next segment."""
        if self._mark is None:
            self._begin_pass()
        sealed = self._tail
        footer = encode_footer(sealed.footer())
        parts, _ = self.journal.collect(sealed.segment)
        parts.append(footer)
        sealed.segment.size += len(footer)
        try:
            segment = QueueSegment(self.journal.roll(self.end))
        except WriteFailed:
            parts.pop()  # what follows a footer would never be read
            sealed.segment.size -= len(footer)
            raise
        sealed.is_sealed = True
        self._has_rolled = True
        self._aim(segment)
        if not self.is_volatile:
            self.mark_when_on_disk(sealed)
        return segment

    def _begin_pass(self) -> None:
        if self.is_removed:
            raise UnknownTopic(self.folder)
        self._mark = (self.end, self._tail, self._tail.mark())

    def mark_when_on_disk(self, sealed: QueueSegment) -> None:
        """Only what is on disk is expected there by a restart."""

        def sealed_on_disk(ticket: Ticket) -> None:
            if ticket.refusal is not None or self.is_removed:
                return
            mark = SealedMark(sealed.segment.size, None)
            saved = self._parts.checkpoints.seal(self.folder, sealed.base, mark)
            self._parts.passes.when_on_disk(saved, marked)

        def marked(ticket: Ticket) -> None:
            if ticket.refusal is None and not self.is_removed:
                sealed.is_marked = True
                self.drop_if_dead(sealed)

        self._parts.passes.when_on_disk(self.journal.latest_ticket(), sealed_on_disk)

    # -- the journal's side: passes end

    def pass_written(self, number: int, dirty: Dirty) -> None:
        self._mark = None
        if self.is_removed or not self.segments:  # or it could not be opened
            return
        if self.is_volatile:
            self._keep_clean(dirty)
        if self._new_folders:
            dirty.folders.update(() if self.is_volatile else self._new_folders)
            self._new_folders.clear()
        self._has_rolled = False
        self._unsettled.append((self.end, self._first_synced))
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
        if mark is None:
            return
        self.live -= self.end - mark[0]
        for offset in range(mark[0], self.end):
            self._forget_recent(offset)
        self.end, tail, tail_mark = mark
        while self.segments[-1] is not tail:
            self.segments.pop()
        self._tail = self._near = tail
        tail.back_to(tail_mark)
        self._window.clear()
        if self.undone is not None:
            self.undone()

    def pass_settled(self, number: int) -> None:
        if self._unsettled and not self.is_removed:
            self._unsettled.popleft()
            self._move_readable_end()

    def _move_readable_end(self) -> None:
        end = next((first for _, first in self._unsettled if first is not None), self._written_end)
        if end > self.readable_end:
            self.readable_end = end
            if self.grown is not None:
                self.grown()

    # -- reading

    def next_live(self, offset: int) -> int | None:
        """The first live message from `offset` on that is readable."""
        segment = self._near
        if not segment.base <= offset < segment.end:
            if offset >= self.readable_end:
                return None
            segment = self._near = self._segment_from(offset)
            offset = max(offset, segment.base)
        while True:
            found = segment.next_live(offset)
            if found < segment.end:
                return found if found < self.readable_end else None
            if segment is self._tail:
                return None
            segment = self._near = self._segment_from(segment.end)
            offset = segment.base

    def peek(self, offset: int) -> Stored:
        """The content of a live message. DamagedSegment: its bytes are not what was written."""
        return self._recent.get(offset) or self._window.read(self._segment_of(offset), offset)

    def take(self, offset: int) -> Stored:
        """As `peek`, for the reader whose turn it is: the content need not be kept at hand any longer."""
        recent = self._recent.pop(offset, None)
        if recent is None:
            return self._window.read(self._segment_of(offset), offset)
        self._parts.budget.left += _memory_bytes(recent)
        return recent

    def _forget_recent(self, offset: int) -> None:
        recent = self._recent.pop(offset, None)
        if recent is not None:
            self._parts.budget.left += _memory_bytes(recent)

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

    # -- settling

    def settle(self, offset: int) -> None:
        """The message is done with. That is seen at once and written soon; a crash may undo it."""
        segment = self._near
        if not segment.base <= offset < segment.end:
            segment = self._segment_from(offset)
            if not segment.base <= offset < segment.end:
                return  # of a segment that is gone
        if not segment.settle(offset):
            return
        self.live -= 1
        if offset in self._recent:
            self._forget_recent(offset)
        if not self.is_volatile:
            self._parts.acks.touch(self)
        elif segment.is_sealed and not segment.live:
            self.drop_if_dead(segment)

    def settle_all(self, first: int, end: int, but: Iterable[int] = ()) -> int:
        """Settle every live message from `first` up to `end` but for some. How many that were."""
        kept = set(but)
        settled = 0
        for segment in [segment for segment in self.segments if segment.base < end and segment.end > first]:
            settled += segment.settle_range(max(first, segment.base), min(end, segment.end), kept)
            if segment.is_sealed and not segment.live:
                self.drop_if_dead(segment)
        self.live -= settled
        for offset in [offset for offset in self._recent if first <= offset < end and offset not in kept]:
            self._forget_recent(offset)
        if settled and not self.is_volatile:
            self._parts.acks.touch(self)
        return settled

    def live_bytes(self) -> int:
        """How long the bodies of all live messages are together. Reads segments of which some are settled."""
        return sum(
            segment.body_bytes if segment.live == segment.records else count_live_bytes(segment)
            for segment in self.segments
        )

    def is_live(self, offset: int) -> bool:
        segment = self._segment_from(offset)
        return segment.base <= offset < segment.end and segment.is_live(offset)

    def note_attempts(self, offset: int, attempts: int) -> None:
        """Keep how often a message was tried, for a limit that holds after a restart too."""
        segment = self._segment_of(offset)
        segment.attempts[offset - segment.base] = segment.unwritten_attempts[offset - segment.base] = attempts
        if not self.is_volatile:
            self._parts.acks.touch(self)

    def attempts(self, offset: int) -> int:
        segment = self._segment_from(offset)
        return segment.attempts.get(offset - segment.base, 0)

    def drop_if_dead(self, segment: QueueSegment) -> None:
        """Unlink a sealed segment with nothing live. A restart must not expect it by then."""
        if segment.live or not segment.is_sealed or segment not in self.segments or segment is self._tail:
            return
        if self.is_volatile:
            self._take_from_list(segment)
            self._remove(segment)
        elif segment.is_marked:
            self._take_from_list(segment)
            forgotten = self._parts.checkpoints.forget_marks(self.folder, [segment.base])
            self._parts.passes.when_on_disk(forgotten, lambda ticket: self._unlink(segment, ticket))

    def _take_from_list(self, segment: QueueSegment) -> None:
        self.segments.remove(segment)
        if self._near is segment:
            self._near = self._tail

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

    def take_copy(self, segment: QueueSegment, file: File, size: int, records: int, body_bytes: int) -> None:
        """A shorter file has taken the place of a segment's own: it holds what was live when it was made."""
        segment.segment.file.close()
        segment.segment.file = file
        segment.segment.size = size
        segment.compacted(records, body_bytes)
        self._window.clear()
        self._new_folders.add(self.folder)
        self.journal.touch()

    # -- the end

    def close(self) -> None:
        """What was settled reaches the disk with the pass that this begins."""
        if not self.is_removed and not self.is_volatile:
            self._parts.acks.close(self)

    def abandon(self) -> None:
        """Its folder goes: nothing more is written or said."""
        self.is_removed = True
        for offset in list(self._recent):
            self._forget_recent(offset)
        self._window.clear()
        self.journal.abandon(UnknownTopic(self.folder))


def _memory_bytes(stored: Stored) -> int:
    """As much as `append` has charged."""
    exchange, key, header, body, _ = stored.content
    return _OBJECT_BYTES + HEAD_BYTES + len(exchange) + len(key) + len(header) + len(body)
