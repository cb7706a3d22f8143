"""Delivery progress of one schedule queue, and the checkpoint of it for the next start. Knows offsets and due times,
never a message."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimq.core.commit_log.stream import MessageQueue, QueueEntry
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.protocols.rocketmq.schedule.offset_set import OffsetSet

# A new checkpoint is written after this much log without a delivery, or after this many new delayed messages.
_CHECKPOINT_BYTES = 16 << 20
_CHECKPOINT_MESSAGES = 4096

# Later than every due time: for a message that cannot be read now.
_UNREADABLE_MS = 1 << 63


class ScheduleCheckpoint(NamedTuple):
    """Metadata stored with the cursor (the offset before which all messages are done). Every statement stays true for
    ever; a later checkpoint only adds to it.

    For messages with individual due times: all before `known_to` whose (due time, offset) is not greater than
    (`due_ms`, `offset`) are done. All messages of this queue delivered before the log position `log_position` are done.
    No pending message before `recalls_from` is a recall marker. `delay_ms` is the delay that the due times are based
    on."""

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
    """Messages that were fired together. `last`: greatest (due time, offset) of them. When they fired, all messages
    before `known_to` had timers, and the deliveries are before `log_end` in the log."""

    __slots__ = ("is_over", "known_to", "last", "log_end", "offsets")

    def __init__(self, offsets: Sequence[int], last: tuple[int, int], known_to: int, log_end: int) -> None:
        self.offsets = offsets
        self.last = last
        self.known_to = known_to
        self.log_end = log_end
        self.is_over = False


class ScheduleProgress:
    """All messages before `next_offset` are done. `delay_ms`: the fixed delay of the queue; 0: each message has its own
    due time.

    Timers fire in the order of due times, then of offsets: once a message has fired, all earlier ones that had timers
    have fired too. A retried message is out of this order, so no checkpoint is advanced until it is done."""

    def __init__(self, topic: CommitLogTopic, stream: MessageQueue, delay_ms: int, offset: int, text: str) -> None:
        self.topic = topic
        self.stream = stream
        self.delay_ms = delay_ms
        self.restored_end = stream.end  # messages in front of it may have been delivered before the restart
        # A power cut may have kept the cursor and lost messages, whose offsets are then used again.
        self.next_offset = min(max(stream.start, offset), stream.end)
        self.indexed_to = self.next_offset
        self.checkpoint = _read_checkpoint(text) or ScheduleCheckpoint()
        self.maybe_delivered = OffsetSet(self.next_offset)
        """Offsets that must be looked up one by one: they may have been delivered before the restart."""
        self.knows_recalls = not self.is_timed
        """Whether all recall markers in this queue are known."""
        self.in_flight: set[int] = set()
        self._done = OffsetSet(self.next_offset)
        self._retried: set[int] = set()
        self._batches: deque[FiredBatch] = deque()
        self._furthest: FiredBatch | None = None
        self._recalls: deque[tuple[int, int]] = deque()
        # Greatest (due time, offset) and offset delivered since the start, or possibly delivered before it.
        self._last_due, self._last_offset = (-1, -1), -1

    @property
    def is_timed(self) -> bool:
        return self.delay_ms == 0

    # -- state at start

    def discard_checkpoint(self, log_end: int) -> bool:
        """Discards the restored checkpoint if it covers more than is stored. Returns whether it must be written
        again."""
        if self.checkpoint.known_to <= self.restored_end and self.checkpoint.log_position <= log_end:
            return False
        self.checkpoint = ScheduleCheckpoint()
        return True

    def find(self, offset: int, due_ms: int, last_ms: int, stored_ms: int) -> bool:
        """Returns whether a message found at start is still pending. Nothing due after `last_ms` was delivered before
        the restart. But the message may have been due earlier than it is now: by other delay levels, or by a clock
        since set back to before `stored_ms`, the store time of the last message."""
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
        """End of the range from `offset` on in which only suspect keys (see RestartScan) need a lookup."""
        if offset >= self.restored_end:
            return end
        return self.maybe_delivered.first(offset, end) if self.knows_recalls else offset

    def set_recalls(self, words: Sequence[tuple[int, int]]) -> None:
        """Adds all recall markers found at start, as (due time, offset)."""
        self._recalls.extendleft(reversed(words))
        self.knows_recalls = True

    def add_recall(self, due_ms: int, offset: int) -> None:
        """Adds a recall marker that is appended now."""
        while self._recalls and self._recalls[-1][1] >= offset:
            self._recalls.pop()  # it was refused, and its offset is used again
        self._recalls.append((due_ms, offset))

    # -- delivery

    def waiting(self, count: int) -> Iterator[QueueEntry]:
        """Up to `count` entries that are not yet done as a whole, oldest first."""
        return self.stream.entries(self.next_offset, count)

    def is_handled(self, offset: int) -> bool:
        """Whether the message is delivered, or its delivery is not durable yet."""
        return offset < self.next_offset or offset in self._done or offset in self.in_flight

    def begin(self, offsets: Sequence[int], log_end: int) -> FiredBatch:
        """Records that these messages fired, in this order, with deliveries before `log_end`."""
        self.in_flight.update(offsets)
        batch = FiredBatch(offsets, self._furthest_of(offsets), self.indexed_to, log_end)
        self._batches.append(batch)
        return batch

    def _furthest_of(self, offsets: Sequence[int]) -> tuple[int, int]:
        """The last, unless some are retried: a retried message may have been due earlier than those in front of it."""
        looked_at = offsets[-1:] if self._retried.isdisjoint(offsets) else offsets
        return max((self._due_ms(offset), offset) for offset in looked_at)

    def _due_ms(self, offset: int) -> int:
        """-1: deleted by retention."""
        try:
            return next((each.code for each in self.stream.entries(offset, 1) if each.offset == offset), -1)
        except OSError:
            return _UNREADABLE_MS

    def finish(self, batch: FiredBatch) -> bool:
        """Marks a batch as done. Returns whether a new checkpoint can be written."""
        self.in_flight.difference_update(batch.offsets)
        self._retried.difference_update(batch.offsets)
        before = self.next_offset, self.checkpoint
        self._mark_done(batch.offsets)
        self._end(batch)
        return (self.next_offset, self.checkpoint) != before

    def fail(self, batch: FiredBatch) -> None:
        """Marks a batch for retry."""
        self.in_flight.difference_update(batch.offsets)
        self.put_off(batch.offsets)
        self._end(batch)

    def put_off(self, offsets: Sequence[int]) -> None:
        """Records that these messages are delivered late, or only after the next start."""
        self._retried.update(offsets)

    @property
    def has_delayed(self) -> bool:
        """Whether any message is waiting for a retry."""
        return bool(self._retried)

    def _mark_done(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._done.add(offset)
        self.next_offset = self._done.first_gap(self.next_offset)
        self._done.forget_before(self.next_offset)

    # -- checkpoints

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
        """Advances the checkpoint: all messages fired before or with this batch are done."""
        if batch.last >= self.checkpoint[:2]:
            self.checkpoint = self.checkpoint._replace(
                due_ms=batch.last[0], offset=batch.last[1], known_to=batch.known_to
            )

    def _is_all_checkpointed(self) -> bool:
        """Whether the checkpoint covers all deliveries since the start, and all possible ones before it."""
        if not self.is_timed:
            return self.next_offset > self._last_offset
        return self.checkpoint[:2] >= self._last_due and self.checkpoint.known_to > self._last_offset

    def needs_checkpoint(self, log_end: int) -> bool:
        """Whether a checkpoint should be written, so that the next start has less of the log or of this queue to scan.
        Call from time to time."""
        is_far = log_end - self.checkpoint.log_position >= _CHECKPOINT_BYTES
        if is_far and not self._batches and self._is_all_checkpointed():
            self.checkpoint = self.checkpoint._replace(log_position=log_end)
            return True
        return self.is_timed and self._recalls_from() - self.checkpoint.recalls_from >= _CHECKPOINT_MESSAGES

    def _recalls_from(self) -> int:
        """Lowest offset of a recall marker that the next start would not know to be done. Markers count as pending
        until then, since the next start may also not know that the recalled messages are done."""
        if not self.knows_recalls:
            return self.checkpoint.recalls_from
        while self._recalls and self._is_checkpointed(*self._recalls[0]):
            self._recalls.popleft()
        return min(self._recalls[0][1], self.indexed_to) if self._recalls else self.indexed_to

    def _is_checkpointed(self, due_ms: int, offset: int) -> bool:
        """Whether the checkpoint says that the message is done."""
        if offset < self.next_offset:
            return True
        return self.is_timed and offset < self.checkpoint.known_to and (due_ms, offset) <= self.checkpoint[:2]

    def write_checkpoint(self) -> str:
        # While messages are pending whose due times may be based on other delay levels, the next start must not trust
        # them either.
        is_sure = self.is_timed or self.next_offset >= self.restored_end or self.checkpoint.delay_ms == self.delay_ms
        self.checkpoint = self.checkpoint._replace(
            recalls_from=self._recalls_from(), delay_ms=self.delay_ms if is_sure else -1
        )
        return " ".join(map(str, self.checkpoint))
