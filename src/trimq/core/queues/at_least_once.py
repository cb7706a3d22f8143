"""At-least-once dead-lettering: a message stays in its queue, unavailable to consumers, until all target queues of its
dead letter have stored it. Owns the pending dead letters and their retries; does not know exchanges or target
queues."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from trimq.core.failures.ledger import Reason
from trimq.core.queues.backlog import Backlog, DeliveryCounts
from trimq.errors import ColdRead, DamagedSegment, Refusal
from trimq.formats.amqp_content.content import StoredContent
from trimq.storage.group_commit.passes import Passes, Ticket

log = logging.getLogger(__name__)

# Back-off if no target queue has room. Doubles until a dead letter is stored.
_MIN_BACKOFF_MS = 100
_MAX_BACKOFF_MS = 1000

# A turn of the loop ends after so many dead letters without a target that has room, or after so many that were sent.
_MAX_STUCK = 256
_MAX_SENT = 1000

# Limits of a batch of equal dead letters.
_MAX_BATCH_MESSAGES = 256
_MAX_BATCH_BYTES = 1 << 20

# So many messages are kept in memory; of the others only their offsets.
_MAX_HELD = 1000

# Reason in the high bits of a message's stored attempts, above any real count: a restart recovers pending dead letters
# from it. Expired messages need no mark: they expire again.
_MARKS = {Reason.REJECTED: 1, Reason.DELIVERY_LIMIT: 2}
_REASONS = {mark: reason for reason, mark in _MARKS.items()}
_MARK_BITS = 24
_COUNT_BITS = 12  # of the deliveries, and above them of those that failed
_COUNT_MASK = (1 << _COUNT_BITS) - 1


class DeadLetterSendResult(NamedTuple):
    """Target queues that a dead letter was sent to, effective when the ticket's pass is durable. `is_complete`: no
    other target is left."""

    to: Collection[str]
    ticket: Ticket | None
    is_complete: bool


NOTHING_SENT = DeadLetterSendResult((), None, False)


class AtLeastOnceQueue(Protocol):
    """The queue in which messages wait to be dead-lettered."""

    def send_dead_letters(
        self,
        batch: Sequence[StoredContent],
        reason: Reason,
        delivery_counts: DeliveryCounts,
        died_ms: int,
        confirmed: Collection[str],
    ) -> DeadLetterSendResult | None:
        """Sends dead letters that are equal except for their bodies to the target queues that have room and are not in
        `confirmed`. None: the caller must send them one by one."""

    def send_dead_letters_at(self, due_ms: int) -> None:
        """Dispatches the queue at that time, or at the end of this turn, which calls `resume`."""


class _PendingDeadLetter:
    __slots__ = ("backlog", "confirmed", "counted_bytes", "delivery_counts", "died_ms", "offset", "reason", "stored")

    def __init__(
        self, backlog: Backlog, offset: int, reason: Reason, delivery_counts: DeliveryCounts, died_ms: int
    ) -> None:
        self.backlog = backlog
        self.offset = offset
        self.reason = reason
        self.delivery_counts = delivery_counts
        self.died_ms = died_ms
        self.stored: StoredContent | None = None
        self.counted_bytes = 0
        self.confirmed: Collection[str] = ()

    def is_alike(self, other: _PendingDeadLetter) -> bool:
        """True if both may be in one batch: same death, and sent to no target queue yet."""
        return (
            self.backlog is other.backlog
            and self.reason is other.reason
            and (self.delivery_counts, self.died_ms) == (other.delivery_counts, other.died_ms)
            and not self.confirmed
            and not other.confirmed
        )


_Batch = list[tuple[_PendingDeadLetter, StoredContent]]


class AtLeastOnceDeadLetters:
    """Messages of one queue whose dead letters some target queue has not stored yet. They are in flight until then."""

    def __init__(self, queue: AtLeastOnceQueue, passes: Passes, now_ms: Callable[[], int]) -> None:
        self._queue = queue
        self._passes = passes
        self._now_ms = now_ms
        self.waiting: deque[_PendingDeadLetter] = deque()
        self._all: dict[tuple[int, int], _PendingDeadLetter] = {}
        self._held = 0
        self.counted_bytes = 0
        self._backoff_until_ms = 0
        self._backoff_ms = _MIN_BACKOFF_MS

    def __len__(self) -> int:
        return len(self._all)

    def bytes_in(self, backlog: Backlog) -> int:
        """Returns `counted_bytes` of the pending dead letters of one backlog."""
        return sum(letter.counted_bytes for letter in self._all.values() if letter.backlog is backlog)

    # -- enqueueing and recovery

    def enqueue(self, backlog: Backlog, stored: StoredContent, reason: Reason, delivery_counts: DeliveryCounts) -> None:
        """Adds a message that was taken from its backlog. The next `resume` sends it."""
        letter = _PendingDeadLetter(backlog, stored.offset, reason, delivery_counts, self._now_ms())
        letter.counted_bytes = backlog.size_of(stored.content)
        if self._held < _MAX_HELD:
            letter.stored = stored
            self._held += 1
        if reason in _MARKS:
            mark = _MARKS[reason] << _MARK_BITS | _packed(delivery_counts)
            backlog.log.acks.note_attempts(stored.offset, mark)
        self._add(letter)
        self._queue.send_dead_letters_at(max(self._now_ms(), self._backoff_until_ms))

    def recover(self, backlog: Backlog) -> None:
        """Recovers the pending dead letters of a backlog at start: messages rejected or over the delivery limit."""
        for offset, number in list(_marked(backlog)):
            letter = _PendingDeadLetter(
                backlog, offset, _REASONS[number >> _MARK_BITS], _unpacked(number), self._now_ms()
            )
            if backlog.counts_bytes:
                letter.counted_bytes = backlog.size_of(backlog.log.peek(offset).content)
                backlog.ready_bytes -= letter.counted_bytes
            backlog.ready -= 1
            backlog.in_flight += 1
            self._add(letter)
            self._queue.send_dead_letters_at(self._now_ms())

    def _add(self, letter: _PendingDeadLetter) -> None:
        letter.backlog.withheld.add(letter.offset)
        self._all[letter.backlog.level, letter.offset] = letter
        self.counted_bytes += letter.counted_bytes
        self.waiting.append(letter)

    # -- sending

    def resume(self, may_wait: bool) -> None:
        """Sends pending dead letters to target queues with room, unless backing off. ColdRead: the next one is cold
        data and `may_wait` is False."""
        if not self.waiting or self._now_ms() < self._backoff_until_ms:
            return
        stuck: list[_PendingDeadLetter] = []
        sent = 0
        try:
            while self.waiting and len(stuck) < _MAX_STUCK and sent < _MAX_SENT:
                try:
                    batch = self._next_batch(may_wait)
                except DamagedSegment as damage:
                    self._leave_out(damage)
                    continue
                moved = self._try(batch)
                if moved is None:
                    batch = batch[:1]
                    moved = self._try(batch)
                if moved:
                    sent += len(batch)
                else:
                    stuck += [letter for letter, _ in batch]
                for _ in batch:
                    self.waiting.popleft()
        finally:
            self.waiting.extendleft(reversed(stuck))
            self._schedule_retry(bool(stuck), sent > 0)

    def _schedule_retry(self, is_stuck: bool, has_moved: bool) -> None:
        self._backoff_ms = _MIN_BACKOFF_MS if has_moved else min(self._backoff_ms * 2, _MAX_BACKOFF_MS)
        if is_stuck:
            self._backoff_until_ms = self._now_ms() + self._backoff_ms
        if self.waiting:
            self._queue.send_dead_letters_at(max(self._now_ms(), self._backoff_until_ms))

    def _next_batch(self, may_wait: bool) -> _Batch:
        """Returns the first pending dead letter and those behind it that are alike."""
        batch: _Batch = []
        size = 0
        for letter in islice(self.waiting, _MAX_BATCH_MESSAGES):
            if batch and (size >= _MAX_BATCH_BYTES or not letter.is_alike(batch[0][0])):
                break
            try:
                stored = letter.stored or letter.backlog.log.peek(letter.offset, may_wait)
            except (ColdRead, DamagedSegment):
                if batch:
                    break
                raise
            if batch and not _has_equal_dead_letter(stored, batch[0][1]):
                break
            batch.append((letter, stored))
            size += len(stored.content.body)
        return batch

    def _leave_out(self, damage: DamagedSegment) -> None:
        """Skips the first pending dead letter. It stays unacknowledged: a restart with a repaired file recovers it."""
        letter = self.waiting.popleft()
        log.error("%s: dead letter skipped (its message cannot be read): %s", letter.backlog.log.folder, damage)
        self._forget(letter)

    def _try(self, batch: _Batch) -> bool | None:
        """Sends a batch. Returns False if no target queue took it: it stays pending. Returns None if the dead letters
        must be sent one by one."""
        letters = [letter for letter, _ in batch]
        first = letters[0]
        try:
            sent = self._queue.send_dead_letters(
                [stored for _, stored in batch], first.reason, first.delivery_counts, first.died_ms, first.confirmed
            )
        except Refusal as refusal:
            log.warning("dead letter could not be published, will retry: %s", refusal)
            return False
        if sent is None:
            return None
        if sent.ticket is not None:
            self._passes.on_durable(sent.ticket, lambda done: self._sent(letters, sent, done.refusal))
        elif sent.is_complete:
            self._settle(letters)
        return sent.ticket is not None or sent.is_complete

    def _sent(self, letters: list[_PendingDeadLetter], sent: DeadLetterSendResult, refusal: Refusal | None) -> None:
        first = letters[0]
        if self._all.get((first.backlog.level, first.offset)) is not first:
            return  # the queue was deleted
        if refusal is None and sent.is_complete:
            self._settle(letters)
            return
        for letter in letters if refusal is None else ():
            letter.confirmed = {*letter.confirmed, *sent.to}
        self.waiting.extendleft(reversed(letters))
        self._backoff_until_ms = self._now_ms() + (_MIN_BACKOFF_MS if refusal is None else _MAX_BACKOFF_MS)
        self._queue.send_dead_letters_at(self._backoff_until_ms)

    def _settle(self, letters: list[_PendingDeadLetter]) -> None:
        """Acknowledges the messages of one or more dead letters of one backlog."""
        backlog, offsets = letters[0].backlog, [letter.offset for letter in letters]
        for letter in letters:
            self._forget(letter)
        backlog.withheld.difference_update(offsets)
        backlog.settle(offsets)

    def _forget(self, letter: _PendingDeadLetter) -> None:
        del self._all[letter.backlog.level, letter.offset]
        self.counted_bytes -= letter.counted_bytes
        if letter.stored is not None:
            self._held -= 1

    def end(self) -> None:
        """Forgets all dead letters: the queue is deleted."""
        self.waiting.clear()
        self._all.clear()


def _has_equal_dead_letter(stored: StoredContent, other: StoredContent) -> bool:
    """True if the dead letters of two messages differ in their bodies at most."""
    return stored.flags == other.flags and stored.content[:3] == other.content[:3]


def _packed(delivery_counts: DeliveryCounts) -> int:
    acquired, failed = delivery_counts
    return min(failed, _COUNT_MASK) << _COUNT_BITS | min(acquired, _COUNT_MASK)


def _unpacked(number: int) -> DeliveryCounts:
    return DeliveryCounts(number & _COUNT_MASK, number >> _COUNT_BITS & _COUNT_MASK)


def _marked(backlog: Backlog) -> Iterator[tuple[int, int]]:
    for segment in backlog.log.segments:
        for message, number in segment.attempts.items():
            if number >> _MARK_BITS in _REASONS and segment.is_live(segment.base + message):
                yield segment.base + message, number
