"""How far the messages of one queue, in which they wait for their time, are done with, and what a next run must know of
that. Knows offsets and due times, never a message."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimq.core.commit_log.stream import MessageQueue, QueueEntry
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.protocols.rocketmq.schedule.offset_set import OffsetSet

# So much log without a delivery, or so many messages that came to wait, and what a next run has to look at is noted.
_CHECKPOINT_BYTES = 16 << 20
_CHECKPOINT_MESSAGES = 4096

# Behind every due time: of one that cannot be read now.
_UNREADABLE_MS = 1 << 63


class ScheduleCheckpoint(NamedTuple):
    """What is kept beside the offset before which all is done with. Each of it stays true for ever; a later note only
    says more.

    Of messages that wait for times of their own, all before `known_to` whose due time and offset are not behind
    (`due_ms`, `offset`) are done with. Whatever of this queue was delivered before `log_position` in the log is done
    with. No message before `recalls_from` that still waits recalls another. `delay_ms` made the due times."""

    due_ms: int = -1
    offset: int = -1
    known_to: int = 0
    log_position: int = 0
    recalls_from: int = 0
    delay_ms: int = -1


def _read_checkpoint(text: str) -> ScheduleCheckpoint | None:
    words = text.split(" ")
    if len(words) != len(ScheduleCheckpoint._fields):
        return None
    try:
        return ScheduleCheckpoint(*map(int, words))
    except ValueError:
        return None


class FiredBatch:
    """Messages that were fired together. `last`: due time and offset of the furthest of them. By then those before
    `known_to` were timed, and what became of these stands before `log_end` in the log."""

    __slots__ = ("is_over", "known_to", "last", "log_end", "offsets")

    def __init__(self, offsets: Sequence[int], last: tuple[int, int], known_to: int, log_end: int) -> None:
        self.offsets = offsets
        self.last = last
        self.known_to = known_to
        self.log_end = log_end
        self.is_over = False


class ScheduleProgress:
    """Those before `next_offset` are all done with. `delay_ms`: how long each waits; 0: each for a time of its own.

    Timers fire in the order of due times, and of offsets where these are equal: once a message is fired, so are all
    before it that were timed by then. What is tried again is out of that order, and holds up every note meanwhile."""

    def __init__(self, topic: CommitLogTopic, stream: MessageQueue, delay_ms: int, offset: int, text: str) -> None:
        self.topic = topic
        self.stream = stream
        self.delay_ms = delay_ms
        self.restored_end = stream.end  # what a run before this one may have delivered already
        # A power cut may have kept what was noted and taken messages, whose offsets others get.
        self.next_offset = min(max(stream.start, offset), stream.end)
        self.indexed_to = self.next_offset
        self.checkpoint = _read_checkpoint(text) or ScheduleCheckpoint()
        self.maybe_delivered = OffsetSet(self.next_offset)
        """Those of which it has to be asked, one by one, whether they have come already."""
        self.knows_recalls = not self.is_timed
        """Whether it is known which of them take others back."""
        self.in_flight: set[int] = set()
        self._done = OffsetSet(self.next_offset)
        self._retried: set[int] = set()
        self._batches: deque[FiredBatch] = deque()
        self._furthest: FiredBatch | None = None
        self._recalls: deque[tuple[int, int]] = deque()
        # The furthest that any of them stands which this run has delivered, or one before it may have.
        self._last_due, self._last_offset = (-1, -1), -1

    @property
    def is_timed(self) -> bool:
        return self.delay_ms == 0

    # -- what was found

    def discard_checkpoint(self, log_end: int) -> bool:
        """Whether the note that was found must be written anew: it speaks of more than there is."""
        if self.checkpoint.known_to <= self.restored_end and self.checkpoint.log_position <= log_end:
            return False
        self.checkpoint = ScheduleCheckpoint()
        return True

    def find(self, offset: int, due_ms: int, last_ms: int, stored_ms: int) -> bool:
        """Whether a message that was found at the start still waits. Nothing was delivered that was due after
        `last_ms`; but by levels that were others then, or by a clock that had been set back behind `stored_ms`, when
        the last message of all was stored, it may have been due sooner."""
        if self._is_checkpointed(due_ms, offset):
            self._mark_done((offset,))
            return False
        by_level = not self.is_timed and (
            self.checkpoint.delay_ms != self.delay_ms or due_ms - self.delay_ms >= stored_ms
        )
        if due_ms <= last_ms or by_level:
            self.maybe_delivered.add(offset)
            self._last_due, self._last_offset = max(self._last_due, (due_ms, offset)), max(self._last_offset, offset)
        return True

    def certain_end(self, offset: int, end: int) -> int:
        """Up to which offset it is known, from there on, that none has come, or that those are known which may have."""
        if offset >= self.restored_end:
            return end
        return self.maybe_delivered.first(offset, end) if self.knows_recalls else offset

    def set_recalls(self, words: Sequence[tuple[int, int]]) -> None:
        """All that take others back, of those that were found: when each is due, and its offset."""
        self._recalls.extendleft(reversed(words))
        self.knows_recalls = True

    def add_recall(self, due_ms: int, offset: int) -> None:
        """One that takes another back comes to wait there."""
        while self._recalls and self._recalls[-1][1] >= offset:
            self._recalls.pop()  # it was refused, and another has its offset
        self._recalls.append((due_ms, offset))

    # -- going on

    def waiting(self, count: int) -> Iterator[QueueEntry]:
        """So many of those that were not all done with, oldest first."""
        return self.stream.entries(self.next_offset, count)

    def is_handled(self, offset: int) -> bool:
        """Whether it is delivered, or about to be."""
        return offset < self.next_offset or offset in self._done or offset in self.in_flight

    def begin(self, offsets: Sequence[int], log_end: int) -> FiredBatch:
        """They were fired, in this order, and what became of them stands before `log_end`."""
        self.in_flight.update(offsets)
        batch = FiredBatch(offsets, self._furthest_of(offsets), self.indexed_to, log_end)
        self._batches.append(batch)
        return batch

    def _furthest_of(self, offsets: Sequence[int]) -> tuple[int, int]:
        """The last, unless one is tried again, which may stand behind others that were due later."""
        looked_at = offsets[-1:] if self._retried.isdisjoint(offsets) else offsets
        return max((self._due_ms(offset), offset) for offset in looked_at)

    def _due_ms(self, offset: int) -> int:
        """-1: it is kept no longer."""
        try:
            return next((each.code for each in self.stream.entries(offset, 1) if each.offset == offset), -1)
        except OSError:
            return _UNREADABLE_MS

    def finish(self, batch: FiredBatch) -> bool:
        """Whether there is more to note now."""
        self.in_flight.difference_update(batch.offsets)
        self._retried.difference_update(batch.offsets)
        before = self.next_offset, self.checkpoint
        self._mark_done(batch.offsets)
        self._end(batch)
        return (self.next_offset, self.checkpoint) != before

    def fail(self, batch: FiredBatch) -> None:
        """They have to be tried again."""
        self.in_flight.difference_update(batch.offsets)
        self.put_off(batch.offsets)
        self._end(batch)

    def put_off(self, offsets: Sequence[int]) -> None:
        """They come later than their time, or with the next start."""
        self._retried.update(offsets)

    @property
    def has_delayed(self) -> bool:
        """Whether any of them comes later than its time."""
        return bool(self._retried)

    def _mark_done(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._done.add(offset)
        self.next_offset = self._done.first_gap(self.next_offset)
        self._done.forget_before(self.next_offset)

    # -- notes

    def _end(self, batch: FiredBatch) -> None:
        batch.is_over = True
        while self._batches and self._batches[0].is_over:
            first = self._batches.popleft()
            self._last_due = max(self._last_due, first.last)
            self._last_offset = max(self._last_offset, *first.offsets)
            if first.last[0] < _UNREADABLE_MS and (self._furthest is None or first.last >= self._furthest.last):
                self._furthest = first
            if self.is_timed and self._furthest is not None and not self._retried:
                self._advance_checkpoint(self._furthest)
            if self._is_all_checkpointed():
                self.checkpoint = self.checkpoint._replace(log_position=first.log_end)

    def _advance_checkpoint(self, batch: FiredBatch) -> None:
        """All that was fired before it, or with it, is done with."""
        if batch.last >= self.checkpoint[:2]:
            self.checkpoint = self.checkpoint._replace(
                due_ms=batch.last[0], offset=batch.last[1], known_to=batch.known_to
            )

    def _is_all_checkpointed(self) -> bool:
        """Whether the note speaks of all that was delivered, and that an earlier run may have."""
        if not self.is_timed:
            return self.next_offset > self._last_offset
        return self.checkpoint[:2] >= self._last_due and self.checkpoint.known_to > self._last_offset

    def needs_checkpoint(self, log_end: int) -> bool:
        """To be asked now and then. Whether it should be noted that a next run need not look at much of the log, or of
        what waits here."""
        is_far = log_end - self.checkpoint.log_position >= _CHECKPOINT_BYTES
        if is_far and not self._batches and self._is_all_checkpointed():
            self.checkpoint = self.checkpoint._replace(log_position=log_end)
            return True
        return self.is_timed and self._recalls_from() - self.checkpoint.recalls_from >= _CHECKPOINT_MESSAGES

    def _recalls_from(self) -> int:
        """Those of which a next run would not know that they are done with wait still: it would not know of what they
        took back, either."""
        if not self.knows_recalls:
            return self.checkpoint.recalls_from
        while self._recalls and self._is_checkpointed(*self._recalls[0]):
            self._recalls.popleft()
        return min(self._recalls[0][1], self.indexed_to) if self._recalls else self.indexed_to

    def _is_checkpointed(self, due_ms: int, offset: int) -> bool:
        """Whether a next run knows that it is done with."""
        if offset < self.next_offset:
            return True
        return self.is_timed and offset < self.checkpoint.known_to and (due_ms, offset) <= self.checkpoint[:2]

    def write_checkpoint(self) -> str:
        # While some wait whose due times other levels may have made, a next run must not trust these, either.
        is_sure = self.is_timed or self.next_offset >= self.restored_end or self.checkpoint.delay_ms == self.delay_ms
        self.checkpoint = self.checkpoint._replace(
            recalls_from=self._recalls_from(), delay_ms=self.delay_ms if is_sure else -1
        )
        return " ".join(map(str, self.checkpoint))
