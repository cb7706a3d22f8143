"""How far the messages of one queue, in which they wait for their time, are done with, and what a next run must know of
that. Knows offsets and due times, never a message."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimq.core.commit_log.stream import Entry, SharedStream
from trimq.core.commit_log.topics import SharedTopic
from trimq.protocols.rocketmq.schedule.offset_set import OffsetMarks

# So much log without a delivery, or so many messages that came to wait, and what a next run has to look at is noted.
_UNNOTED_BYTES = 16 << 20
_UNNOTED_MESSAGES = 4096

# Behind every due time: of one that cannot be read now.
_UNREADABLE_MS = 1 << 63


class Note(NamedTuple):
    """What is kept beside the offset before which all is done with. Each of it stays true for ever; a later note only
    says more.

    Of messages that wait for times of their own, all before `known_to` whose due time and offset are not behind
    (`due_ms`, `offset`) are done with. Whatever of this queue was delivered before `log_position` in the log is done
    with. No message before `words_from` that still waits takes another back. `delay_ms` is what made the due times."""

    due_ms: int = -1
    offset: int = -1
    known_to: int = 0
    log_position: int = 0
    words_from: int = 0
    delay_ms: int = -1


def _read_note(text: str) -> Note | None:
    words = text.split(" ")
    if len(words) != len(Note._fields):
        return None
    try:
        return Note(*map(int, words))
    except ValueError:
        return None


class Batch:
    """Messages that were fired together. `last`: due time and offset of the furthest of them. By then those before
    `known_to` were timed, and what became of these stands before `log_end` in the log."""

    __slots__ = ("is_over", "known_to", "last", "log_end", "offsets")

    def __init__(self, offsets: Sequence[int], last: tuple[int, int], known_to: int, log_end: int) -> None:
        self.offsets = offsets
        self.last = last
        self.known_to = known_to
        self.log_end = log_end
        self.is_over = False


class Progress:
    """Those before `next_offset` are all done with. `delay_ms`: how long each waits; 0: each for a time of its own.

    Timers fire in the order of due times, and of offsets where these are equal: once a message is fired, so are all
    before it that were timed by then. What is tried again is out of that order, and holds up every note meanwhile."""

    def __init__(self, topic: SharedTopic, stream: SharedStream, delay_ms: int, offset: int, text: str) -> None:
        self.topic = topic
        self.stream = stream
        self.delay_ms = delay_ms
        self.found_to = stream.end  # what a run before this one may have delivered already
        # A power cut may have kept what was noted and taken messages, whose offsets others get.
        self.next_offset = min(max(stream.start, offset), stream.end)
        self.indexed_to = self.next_offset
        self.note = _read_note(text) or Note()
        self.doubtful = OffsetMarks(self.next_offset)
        """Those of which it has to be asked, one by one, whether they have come already."""
        self.knows_words = not self.is_timed
        """Whether it is known which of them take others back."""
        self.under_way: set[int] = set()
        self._done = OffsetMarks(self.next_offset)
        self._tried_again: set[int] = set()
        self._batches: deque[Batch] = deque()
        self._furthest: Batch | None = None
        self._words: deque[tuple[int, int]] = deque()
        # The furthest that any of them stands which this run has delivered, or one before it may have.
        self._last_due, self._last_offset = (-1, -1), -1

    @property
    def is_timed(self) -> bool:
        return self.delay_ms == 0

    # -- what was found

    def forget_note(self, log_end: int) -> bool:
        """Whether the note that was found must be written anew: it speaks of more than there is."""
        if self.note.known_to <= self.found_to and self.note.log_position <= log_end:
            return False
        self.note = Note()
        return True

    def find(self, offset: int, due_ms: int, last_ms: int, stored_ms: int) -> bool:
        """Whether a message that was found at the start still waits. Nothing was delivered that was due after
        `last_ms`; but by levels that were others then, or by a clock that had been set back behind `stored_ms`, when
        the last message of all was stored, it may have been due sooner."""
        if self._is_noted(due_ms, offset):
            self._mark_done((offset,))
            return False
        by_level = not self.is_timed and (self.note.delay_ms != self.delay_ms or due_ms - self.delay_ms >= stored_ms)
        if due_ms <= last_ms or by_level:
            self.doubtful.add(offset)
            self._last_due, self._last_offset = max(self._last_due, (due_ms, offset)), max(self._last_offset, offset)
        return True

    def certain_to(self, offset: int, end: int) -> int:
        """Up to which offset it is known, from there on, that none has come, or that those are known which may have."""
        if offset >= self.found_to:
            return end
        return self.doubtful.first(offset, end) if self.knows_words else offset

    def found_words(self, words: Sequence[tuple[int, int]]) -> None:
        """All that take others back, of those that were found: when each is due, and its offset."""
        self._words.extendleft(reversed(words))
        self.knows_words = True

    def add_word(self, due_ms: int, offset: int) -> None:
        """One that takes another back comes to wait there."""
        while self._words and self._words[-1][1] >= offset:
            self._words.pop()  # it was refused, and another has its offset
        self._words.append((due_ms, offset))

    # -- going on

    def waiting(self, count: int) -> Iterator[Entry]:
        """So many of those that were not all done with, oldest first."""
        return self.stream.entries(self.next_offset, count)

    def is_dealt_with(self, offset: int) -> bool:
        """Whether it is delivered, or about to be."""
        return offset < self.next_offset or offset in self._done or offset in self.under_way

    def begin(self, offsets: Sequence[int], log_end: int) -> Batch:
        """They were fired, in this order, and what became of them stands before `log_end`."""
        self.under_way.update(offsets)
        batch = Batch(offsets, self._furthest_of(offsets), self.indexed_to, log_end)
        self._batches.append(batch)
        return batch

    def _furthest_of(self, offsets: Sequence[int]) -> tuple[int, int]:
        """The last, unless one is tried again, which may stand behind others that were due later."""
        looked_at = offsets[-1:] if self._tried_again.isdisjoint(offsets) else offsets
        return max((self._due_ms(offset), offset) for offset in looked_at)

    def _due_ms(self, offset: int) -> int:
        """-1: it is kept no longer."""
        try:
            return next((each.code for each in self.stream.entries(offset, 1) if each.offset == offset), -1)
        except OSError:
            return _UNREADABLE_MS

    def finish(self, batch: Batch) -> bool:
        """Whether there is more to note now."""
        self.under_way.difference_update(batch.offsets)
        self._tried_again.difference_update(batch.offsets)
        before = self.next_offset, self.note
        self._mark_done(batch.offsets)
        self._end(batch)
        return (self.next_offset, self.note) != before

    def fail(self, batch: Batch) -> None:
        """They have to be tried again."""
        self.under_way.difference_update(batch.offsets)
        self.put_off(batch.offsets)
        self._end(batch)

    def put_off(self, offsets: Sequence[int]) -> None:
        """They come later than their time, or with the next start."""
        self._tried_again.update(offsets)

    @property
    def is_held_up(self) -> bool:
        """Whether any of them comes later than its time."""
        return bool(self._tried_again)

    def _mark_done(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._done.add(offset)
        self.next_offset = self._done.first_gap(self.next_offset)
        self._done.forget_before(self.next_offset)

    # -- notes

    def _end(self, batch: Batch) -> None:
        batch.is_over = True
        while self._batches and self._batches[0].is_over:
            first = self._batches.popleft()
            self._last_due = max(self._last_due, first.last)
            self._last_offset = max(self._last_offset, *first.offsets)
            if first.last[0] < _UNREADABLE_MS and (self._furthest is None or first.last >= self._furthest.last):
                self._furthest = first
            if self.is_timed and self._furthest is not None and not self._tried_again:
                self._note_all_before(self._furthest)
            if self._is_all_noted():
                self.note = self.note._replace(log_position=first.log_end)

    def _note_all_before(self, batch: Batch) -> None:
        """All that was fired before it, or with it, is done with."""
        if batch.last >= self.note[:2]:
            self.note = self.note._replace(due_ms=batch.last[0], offset=batch.last[1], known_to=batch.known_to)

    def _is_all_noted(self) -> bool:
        """Whether the note speaks of all that was delivered, and that an earlier run may have."""
        if not self.is_timed:
            return self.next_offset > self._last_offset
        return self.note[:2] >= self._last_due and self.note.known_to > self._last_offset

    def note_place(self, log_end: int) -> bool:
        """To be asked now and then. Whether it should be noted that a next run need not look at much of the log, or of
        what waits here."""
        is_far = log_end - self.note.log_position >= _UNNOTED_BYTES
        if is_far and not self._batches and self._is_all_noted():
            self.note = self.note._replace(log_position=log_end)
            return True
        return self.is_timed and self._words_from() - self.note.words_from >= _UNNOTED_MESSAGES

    def _words_from(self) -> int:
        """Those of which a next run would not know that they are done with wait still: it would not know of what they
        took back, either."""
        if not self.knows_words:
            return self.note.words_from
        while self._words and self._is_noted(*self._words[0]):
            self._words.popleft()
        return min(self._words[0][1], self.indexed_to) if self._words else self.indexed_to

    def _is_noted(self, due_ms: int, offset: int) -> bool:
        """Whether a next run knows that it is done with."""
        if offset < self.next_offset:
            return True
        return self.is_timed and offset < self.note.known_to and (due_ms, offset) <= self.note[:2]

    def write_note(self) -> str:
        # While some wait whose due times other levels may have made, a next run must not trust these, either.
        is_sure = self.is_timed or self.next_offset >= self.found_to or self.note.delay_ms == self.delay_ms
        self.note = self.note._replace(words_from=self._words_from(), delay_ms=self.delay_ms if is_sure else -1)
        return " ".join(map(str, self.note))
