"""Commit log: the units of many queues in one sequence of files, in RocketMQ's layout. Owns positions, ends and the
roll to the next file; its listener knows the queues of the units."""

from __future__ import annotations

import logging
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
from trimq.storage.commit_log.commit_pool import CommitPool
from trimq.storage.commit_log.file_preparation import FilePreparation
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.group_commit.segment import Segment
from trimq.storage.io.files import Files
from trimq.storage.io.page_cache import find_cold

log = logging.getLogger(__name__)

# Units with a smaller total size are copied into one buffer.
_JOINED_BYTES = 64 * 1024

Span = tuple[int, int]
"""Position and size of a unit."""


class AppendedUnit(NamedTuple):
    """Place of an appended unit. It is committed when the ticket's pass is durable and the ticket has no refusal."""

    queue_offset: int
    position: int
    size: int
    store_ms: int
    ticket: Ticket


class AppendedUnits(NamedTuple):
    """Places of several appended units, committed like a single one. `refusal`: the reason why the remaining messages
    have no place."""

    places: list[UnitPosition]
    store_ms: int
    ticket: Ticket
    refusal: Refusal | None = None


class CommitListener(Protocol):
    """Builds queues and indexes from the log and is kept consistent with it."""

    def pass_written(self, number: int, dirty: Dirty) -> None: ...

    def pass_undone(self) -> None: ...

    def pass_durable(self, number: int) -> None: ...


class CommitLog:
    """`start` <= `durable_end` <= `end` are positions: bytes since the first file that ever existed."""

    def __init__(
        self,
        files: Files,
        folder: str,
        passes: Passes,
        file_bytes: int,
        now_ms: Callable[[], int],
        listener: CommitListener,
        pool: CommitPool | None = None,
    ) -> None:
        self.files = files
        self.folder = folder
        self.file_bytes = file_bytes
        self._now_ms = now_ms
        self._listener = listener
        self._pool = pool
        self.journal = Journal(files, folder, "", pool or passes, self, full_bytes=file_bytes)
        self.start = 0
        self.end = 0
        self.durable_end = 0
        self.unverified_end = 0
        """Units before this position were written by an earlier process and not checked since: they are checked when
        read."""
        self.last_store_ms = 0
        self.damaged: Callable[[DamagedSegment], None] = lambda damage: None
        """Called with damage that a reader finds."""
        self._preparation: FilePreparation | None = None
        self._tail: Segment
        self._parts: list[Buffer] = []
        self._ticket: Ticket | None = None
        self._mark: tuple[int, int] | None = None
        self._not_yet_durable: deque[int] = deque()

    # -- beginning

    def use_preparation(self, care: FilePreparation) -> None:
        """Sets the source of prepared files, which is also notified of the size of the current file. Call it before
        opening."""
        self._preparation = care
        self.journal.take_prepared_file = care.take

    def begin(self, position: int = 0) -> None:
        """Begins a new log."""
        self.start = self.end = self.durable_end = self.unverified_end = position
        self._tail = self.journal.roll(position)

    def resume(self, end: int, durable_end: int, last_store_ms: int) -> None:
        """Continues an existing log. The next pass syncs the bytes between `durable_end` and `end`."""
        self.start = self.journal.segments[0].base
        self.end, self.durable_end = end, durable_end
        self.last_store_ms = last_store_ms
        self._tail = self.journal.segments[-1]
        if durable_end < end:
            self.journal.resync(self.journal.segments[max(self.journal.find(durable_end), 0)])

    # -- appending

    def append(self, draft: UnitDraft, queue_offset: int, store_host: bytes) -> AppendedUnit:
        """Assigns the message a position and collects it for this pass."""
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
        # Cached: a journal call per unit would double the cost.
        ticket = self._ticket or self._begin_turn(segment)
        position = segment.base + segment.size
        store_ms = self.last_store_ms
        self._parts.append(encode_unit(draft, queue_offset, position, store_ms, store_host))
        segment.size += size
        self.end = position + size
        return AppendedUnit(queue_offset, position, size, store_ms, ticket)

    def append_batch(self, run: Sequence[BatchMessage], store_host: bytes) -> AppendedUnits:
        """Like `append`, for several messages. If a file is full and no new one can be created, or a message is too
        long for any file, the remaining messages are refused."""
        if self._mark is None:
            self._begin_pass()
        ticket = self._ticket or self._begin_turn(self._tail)
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
                return AppendedUnits(places, self.last_store_ms, ticket)
            run = run[len(placed) :]
            try:
                if not segment.size:
                    raise MessageTooLong(len(run[0][1]), room)
                self._roll(segment)
            except (MessageTooLong, WriteFailed) as refusal:
                return AppendedUnits(places, self.last_store_ms, ticket, refusal)

    def ensure_room(self, size: int) -> None:
        """Makes sure that the next `size` bytes of units fit into the current file, so that none of them is refused for
        lack of a new one."""
        if size + FILLER_BYTES > self.file_bytes:
            raise MessageTooLong(size, self.file_bytes - FILLER_BYTES)
        if self._tail.size + size + FILLER_BYTES > self.file_bytes:
            self._begin_pass()
            self._roll(self._tail)

    def _begin_pass(self) -> None:
        if self._mark is None:
            self._mark = (self.end, self.last_store_ms)
            self.last_store_ms = max(self.last_store_ms, self._now_ms())

    def _begin_turn(self, segment: Segment) -> Ticket:
        """Begins to collect units. With a pool, a pass may last several turns of the loop."""
        self._parts, ticket = self.journal.collect(segment)
        self._ticket = ticket
        if self._pool is not None:
            self.last_store_ms = max(self.last_store_ms, self._now_ms())
            self._pool.call_after_turn(self._end_turn)
        return ticket

    def _end_turn(self) -> int:
        """Returns the number of bytes that the pass has collected so far."""
        self._ticket = None
        self._parts = []
        return 0 if self._mark is None else self.end - self._mark[0]

    def _roll(self, full: Segment) -> Segment:
        """Fills the rest of a file that has no room for the next unit with a filler, so that readers continue in the
        next file."""
        remaining = self.file_bytes - full.size
        self.journal.append(filler(remaining), remaining)
        try:
            self._tail = self.journal.roll(full.base + self.file_bytes)
        except WriteFailed:
            self.journal.collect(full)[0].pop()  # the next append tries again
            full.size -= remaining
            raise
        self._begin_turn(self._tail)
        self.end = self._tail.base
        return self._tail

    # -- called by the journal at the end of passes

    def pass_written(self, number: int, dirty: Dirty) -> None:
        self._forget_pass()
        self._not_yet_durable.append(self.end)
        if self._preparation is not None:
            self._preparation.note_size(self._tail.file, self._tail.size)
        self._listener.pass_written(number, dirty)

    def pass_undone(self) -> None:
        if self._mark is not None:
            if self._pool is not None:
                lost = self.end - self._mark[0]
                log.error("commit log: lost %d bytes of acknowledged messages (flush = pooled, write failed)", lost)
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
        """Returns the bytes of durable units. Raises OffsetOutOfRange if they are removed or not durable yet,
        DamagedSegment if their checksums do not match."""
        if not self.start <= position < position + size <= self.durable_end:
            raise OffsetOutOfRange(position, self.start, self.durable_end)
        segment = self.journal.segments[self.journal.find(position)]
        at = position - segment.base
        found = segment.view(at, size)
        if position < self.unverified_end:
            self._verify(segment, at, found)
        return found

    def gather(self, places: Sequence[Span]) -> list[Buffer]:
        """Like `view`, for several units in ascending order. Short ones are joined: finding and passing on each
        separately takes longer than copying it."""
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
        """Returns the read that these bytes, as far as they are in one file, would have to wait for, if any."""
        if not self.start <= begin < end <= self.durable_end:
            return None
        segment = self.journal.segments[self.journal.find(begin)]
        return find_cold(segment.file, begin - segment.base, min(end, segment.base + segment.size) - begin)

    def unit_at(self, position: int) -> Unit:
        """Returns the whole unit at this position. Raises OffsetOutOfRange if there is none."""
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
        """Returns the full files, oldest first."""
        return self.journal.segments[:-1]

    def sealed_ms(self, segment: Segment) -> int | None:
        """Returns the time at which the file was full: the store time of the first unit after it. None if unknown."""
        try:
            return self.unit_at(segment.base + self.file_bytes).store_ms
        except OffsetOutOfRange:
            return None

    def remove_head(self, start: int) -> None:
        """Removes the files before `start`, which is the beginning of a file. The checkpoint must already exclude
        them."""
        self.start = max(self.start, start)
        for segment in [segment for segment in self.sealed() if segment.base < start]:
            self.journal.remove(segment, ())
