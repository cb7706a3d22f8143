"""The commit log: the units of many queues in one sequence of files, as RocketMQ lays them out. Owns positions, ends
and the roll to the next file; which queue a unit belongs to is known to its listener."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from trimq.errors import (
    ColdRead,
    DamagedSegment,
    MessageTooLong,
    OffsetOutOfRange,
    PropertiesTooLong,
    Refusal,
    WriteFailed,
)
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, UnitPosition, encode_batch
from trimq.formats.rocketmq_unit.unit import (
    FILLER_BYTES,
    LONGEST_PROPERTIES,
    BadUnit,
    Unit,
    UnitDraft,
    check_unit,
    draft_size,
    encode_unit,
    filler,
)
from trimq.model import Buffer
from trimq.storage.commit_log.file_preparation import FilePreparation
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.group_commit.segment import Segment
from trimq.storage.io.files import Files
from trimq.storage.io.page_cache import find_cold

# What is shorter in all is copied, to be handed on in one piece.
_JOINED_BYTES = 64 * 1024

Span = tuple[int, int]
"""Position and size of a unit."""


class AppendedUnit(NamedTuple):
    """Where a unit went. It counts when the ticket's pass is durable and the ticket carries no refusal."""

    queue_offset: int
    position: int
    size: int
    store_ms: int
    ticket: Ticket


class AppendedUnits(NamedTuple):
    """Where several units went; they count as one does. `refusal`: why those behind the last of them have no place."""

    places: list[UnitPosition]
    store_ms: int
    ticket: Ticket
    refusal: Refusal | None = None


class CommitListener(Protocol):
    """Whoever builds queues and indexes from the log: kept in step with it."""

    def pass_written(self, number: int, dirty: Dirty) -> None: ...

    def pass_undone(self) -> None: ...

    def pass_durable(self, number: int) -> None: ...


class CommitLog:
    """`start` <= `durable_end` <= `end` are positions: bytes since the first file that there ever was."""

    def __init__(
        self,
        files: Files,
        folder: str,
        passes: Passes,
        file_bytes: int,
        now_ms: Callable[[], int],
        listener: CommitListener,
    ) -> None:
        self.files = files
        self.folder = folder
        self.file_bytes = file_bytes
        self._now_ms = now_ms
        self._listener = listener
        self.journal = Journal(files, folder, "", passes, self, full_bytes=file_bytes)
        self.start = 0
        self.end = 0
        self.durable_end = 0
        self.unverified_end = 0
        """What stands before it was written by an earlier process and not looked at since: checked when it is read."""
        self.last_store_ms = 0
        self.damaged: Callable[[DamagedSegment], None] = lambda damage: None
        """Is told what a reader finds."""
        self._preparation: FilePreparation | None = None
        self._tail: Segment
        self._parts: list[Buffer] = []
        self._ticket: Ticket | None = None
        self._mark: tuple[int, int] | None = None
        self._not_yet_durable: deque[int] = deque()

    # -- beginning

    def use_preparation(self, care: FilePreparation) -> None:
        """Before it is opened: whose files are taken, and who is told of how full they are."""
        self._preparation = care
        self.journal.take_prepared_file = care.take

    def begin(self, position: int = 0) -> None:
        """A new log."""
        self.start = self.end = self.durable_end = self.unverified_end = position
        self._tail = self.journal.roll(position)

    def resume(self, end: int, durable_end: int, last_store_ms: int) -> None:
        """An existing log was opened. What lies between `durable_end` and `end` is synced with the next pass."""
        self.start = self.journal.segments[0].base
        self.end, self.durable_end = end, durable_end
        self.last_store_ms = last_store_ms
        self._tail = self.journal.segments[-1]
        if durable_end < end:
            self.journal.resync(self.journal.segments[max(self.journal.find(durable_end), 0)])

    # -- appending

    def append(self, draft: UnitDraft, queue_offset: int, store_host: bytes) -> AppendedUnit:
        """Give the message its place and collect it for this pass."""
        size = draft_size(draft, store_host)
        if size + FILLER_BYTES > self.file_bytes:
            raise MessageTooLong(size, self.file_bytes - FILLER_BYTES)
        if len(draft.properties) > LONGEST_PROPERTIES:
            raise PropertiesTooLong(len(draft.properties), LONGEST_PROPERTIES)
        if self._mark is None:
            self._begin_pass()
        segment = self._tail
        if segment.size + size + FILLER_BYTES > self.file_bytes:
            segment = self._roll(segment)
        if self._ticket is None:
            # Asking the journal for each unit costs as much again.
            self._parts, self._ticket = self.journal.collect(segment)
        position = segment.base + segment.size
        store_ms = self.last_store_ms
        self._parts.append(encode_unit(draft, queue_offset, position, store_ms, store_host))
        segment.size += size
        self.end = position + size
        return AppendedUnit(queue_offset, position, size, store_ms, self._ticket)

    def append_batch(self, run: Sequence[BatchMessage], store_host: bytes) -> AppendedUnits:
        """As `append`, for several messages. Where a file is full and another cannot be had, or one of them is too long
        for any, the rest of them is refused."""
        if self._mark is None:
            self._begin_pass()
        if self._ticket is None:
            self._parts, self._ticket = self.journal.collect(self._tail)
        places: list[UnitPosition] = []
        while True:
            segment = self._tail
            position, room = segment.base + segment.size, self.file_bytes - FILLER_BYTES - segment.size
            data, placed = encode_batch(run, position, room, self.last_store_ms, store_host)
            self._parts.append(data)
            segment.size += len(data)
            self.end = position + len(data)
            places += placed
            if len(placed) == len(run):
                return AppendedUnits(places, self.last_store_ms, self._ticket)
            run = run[len(placed) :]
            try:
                if not segment.size:
                    raise MessageTooLong(len(run[0][1]), room)
                self._roll(segment)
            except (MessageTooLong, WriteFailed) as refusal:
                return AppendedUnits(places, self.last_store_ms, self._ticket, refusal)

    def ensure_room(self, size: int) -> None:
        """So many bytes of units that follow will not need another file: none of them is refused for one."""
        if size + FILLER_BYTES > self.file_bytes:
            raise MessageTooLong(size, self.file_bytes - FILLER_BYTES)
        if self._tail.size + size + FILLER_BYTES > self.file_bytes:
            self._begin_pass()
            self._roll(self._tail)

    def _begin_pass(self) -> None:
        if self._mark is None:
            self._mark = (self.end, self.last_store_ms)
            self.last_store_ms = max(self.last_store_ms, self._now_ms())

    def _roll(self, full: Segment) -> Segment:
        """What is left of a file without room for the next unit is filled, so that a reader knows where to go on."""
        remaining = self.file_bytes - full.size
        self.journal.append(filler(remaining), remaining)
        try:
            self._tail = self.journal.roll(full.base + self.file_bytes)
        except WriteFailed:
            self.journal.collect(full)[0].pop()  # the next append tries again
            full.size -= remaining
            raise
        self._parts, self._ticket = self.journal.collect(self._tail)
        self.end = self._tail.base
        return self._tail

    # -- the journal's side: passes end

    def pass_written(self, number: int, dirty: Dirty) -> None:
        self._forget_pass()
        self._not_yet_durable.append(self.end)
        if self._preparation is not None:
            self._preparation.note_size(self._tail.file, self._tail.size)
        self._listener.pass_written(number, dirty)

    def pass_undone(self) -> None:
        if self._mark is not None:
            self.end, self.last_store_ms = self._mark
        self._forget_pass()
        self._tail = self.journal.segments[-1]
        self._listener.pass_undone()

    def pass_durable(self, number: int) -> None:
        self.durable_end = self._not_yet_durable.popleft()
        self._listener.pass_durable(number)

    def _forget_pass(self) -> None:
        self._mark = self._ticket = None
        self._parts = []

    # -- reading

    def view(self, position: int, size: int) -> memoryview:
        """The bytes of units that are durable. OffsetOutOfRange: they are gone, or not there yet. DamagedSegment: they
        are not what was written."""
        if not self.start <= position < position + size <= self.durable_end:
            raise OffsetOutOfRange(position, self.start, self.durable_end)
        segment = self.journal.segments[self.journal.find(position)]
        at = position - segment.base
        found = segment.view(at, size)
        if position < self.unverified_end:
            self._verify(segment, at, found)
        return found

    def gather(self, places: Sequence[Span]) -> list[Buffer]:
        """As `view`, at several places, which follow each other in the log. Short ones are joined: to look for each of
        them, and to hand it on by itself, takes longer than to copy it."""
        first, (last, last_size) = places[0][0], places[-1]
        size = sum([size for _, size in places])
        span = last + last_size - first
        if size == span and first // self.file_bytes == last // self.file_bytes:
            return [self.view(first, size)]
        if not (
            self.start <= first
            and last + last_size <= self.durable_end
            and first >= self.unverified_end
            and first // self.file_bytes == last // self.file_bytes
            and size <= _JOINED_BYTES
        ):
            return [self.view(position, size) for position, size in places]
        segment = self.journal.segments[self.journal.find(first)]
        data = segment.view(first - segment.base, span)
        return [b"".join([data[position - first : position - first + size] for position, size in places])]

    def find_cold(self, begin: int, end: int) -> ColdRead | None:
        """What a read of these bytes, as far as they are in one file, would wait for the disk for."""
        if not self.start <= begin < end <= self.durable_end:
            return None
        segment = self.journal.segments[self.journal.find(begin)]
        return find_cold(segment.file, begin - segment.base, min(end, segment.base + segment.size) - begin)

    def unit_at(self, position: int) -> Unit:
        """The whole unit that stands here. OffsetOutOfRange: none does."""
        if not self.start <= position < self.durable_end:
            raise OffsetOutOfRange(position, self.start, self.durable_end)
        segment = self.journal.segments[self.journal.find(position)]
        at = position - segment.base
        size = int.from_bytes(segment.view(at, 4), "big")
        if not 0 < size <= min(segment.size - at, self.durable_end - position):
            raise OffsetOutOfRange(position, self.start, self.durable_end)
        try:
            return check_unit(segment.view(at, size), position=position)
        except BadUnit:
            raise OffsetOutOfRange(position, self.start, self.durable_end) from None

    def _verify(self, segment: Segment, at: int, data: memoryview) -> None:
        checked = 0
        while checked < len(data):
            try:
                checked += check_unit(data, checked, segment.base + at + checked).size
            except BadUnit:
                damage = DamagedSegment(segment.file.name, at + checked)
                self.damaged(damage)
                raise damage from None

    # -- the head

    def sealed(self) -> list[Segment]:
        """The files that nothing is appended to, oldest first."""
        return self.journal.segments[:-1]

    def sealed_ms(self, segment: Segment) -> int | None:
        """When the file was full: the time of the first unit behind it. None: that is not known."""
        try:
            return self.unit_at(segment.base + self.file_bytes).store_ms
        except OffsetOutOfRange:
            return None

    def remove_head(self, start: int) -> None:
        """Remove the files before `start`, which is the beginning of one. A restart must not look for them."""
        self.start = max(self.start, start)
        for segment in [segment for segment in self.sealed() if segment.base < start]:
            self.journal.remove(segment, ())
