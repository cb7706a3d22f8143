"""Timers of messages: an index from due time to stream and position, driven by one timer of the clock. Rebuilt after a
start from the durable layout; knows nothing of the messages themselves."""

from __future__ import annotations

import heapq
import logging
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from trimq.clock import Timeline, Timer
from trimq.core.scheduling.timer_heap import ID_BITS, TimerHeap
from trimq.errors import Refusal
from trimq.model import StreamId

log = logging.getLogger(__name__)

# Limits of one loop turn, in timers and in time: other connections wait meanwhile.
FIRES_PER_TURN = 256
TURN_MS = 10
RETRY_MS = 1000

# A timer id consists of a sequence number, which gives the order of scheduling, and a slot.
_SLOT_BITS = 32
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_ID_MASK = (1 << ID_BITS) - 1
_NO_STREAM = -1
_LATEST_MS = (1 << 63) - 1

TimerId = int


class TimerEntry(NamedTuple):
    """Identity of a timer, the same after a rebuild."""

    stream: StreamId
    position: int


class PendingTimer(NamedTuple):
    id: TimerId
    due_ms: int
    entry: TimerEntry


Fire = Callable[[PendingTimer], None]

FireBatch = Callable[[Sequence[TimerEntry], int], int]
"""Fires due timers together, beginning at the given index, and returns how many it fired; `Timers` then fires the next
one alone. Example with five timers of which the third is special: (batch, 0) returns 2, the third is fired alone,
(batch, 3) returns 2. A Refusal means that none has fired: the rest of the batch is retried after a second. A callback
that must not delay the timers behind a refused one reschedules that one itself."""


class FiredTimers:
    """Timers that had fired before a crash, as found in the logs.

    Firing appends a message and marks the timer as done, in two files. A crash may keep the first write and lose the
    second. Therefore the appended message carries the timer's identity. Recovery notes here each identity that it finds
    after the last mark, and a noted timer is dropped when it is due: firing twice appends once."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[StreamId, set[int]] = {}

    def note(self, entry: TimerEntry) -> None:
        self._positions.setdefault(entry.stream, set()).add(entry.position)

    def __contains__(self, entry: TimerEntry) -> bool:
        positions = self._positions.get(entry.stream)
        return positions is not None and entry.position in positions

    def forget(self, stream: StreamId) -> None:
        """Called when the marks of this stream have caught up, or the stream was deleted."""
        self._positions.pop(stream, None)


class _StreamNumbers:
    """Small numbers for the streams that have a pending timer, so that a timer need not store the whole stream id."""

    def __init__(self) -> None:
        self._numbers: dict[StreamId, int] = {}
        self._names: list[StreamId] = []
        self._counts = array("q")
        self._free: list[int] = []

    def take(self, stream: StreamId, count: int = 1) -> int:
        number = self._numbers.get(stream)
        if number is None:
            number = self._add(stream)
        self._counts[number] += count
        return number

    def _add(self, stream: StreamId) -> int:
        if self._free:
            number = self._free.pop()
            self._names[number] = stream
        else:
            number = len(self._names)
            self._names.append(stream)
            self._counts.append(0)
        self._numbers[stream] = number
        return number

    def release(self, number: int) -> None:
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self._names[number]]
            self._free.append(number)

    def name(self, number: int) -> StreamId:
        return self._names[number]

    def number(self, stream: StreamId) -> int | None:
        return self._numbers.get(stream)


class Timers:
    """Fires timers in the order of due times and, for equal ones, in the order of scheduling. Sets no timer of the
    clock while none is pending.

    `fire` may raise a Refusal, or an OSError if a file cannot be opened now: the timer is retried after a second. After
    any other exception, which is a bug, the timer is dropped until the next rebuild: repeating half of a firing could
    append forever.

    With `fire_batch`, timers that are due together are fired together. The callback must not change other timers, but
    may schedule new ones. `fired` is not used then."""

    def __init__(
        self, timeline: Timeline, fire: Fire, fired: FiredTimers | None = None, fire_batch: FireBatch | None = None
    ) -> None:
        self._timeline = timeline
        self._fire = fire
        self._fire_batch = fire_batch
        self._fired = FiredTimers() if fired is None else fired
        self._keys = TimerHeap(self._is_current)
        self._scheduled = 0
        # One slot per pending timer, in four columns; a free slot has the sequence number 0.
        self._numbers = array("q")
        self._dues_ms = array("q")
        self._positions = array("q")
        self._stream_numbers = array("i")
        self._free_slots = array("I")
        self._streams = _StreamNumbers()
        self._alarm: Timer | None = None
        self._alarm_ms = 0
        self._is_firing = False

    def __len__(self) -> int:
        return len(self._numbers) - len(self._free_slots)

    def schedule(self, due_ms: int, entry: TimerEntry) -> TimerId:
        """Schedules `entry` for `due_ms`, or for the next loop turn if that is past. Never fires inside this call."""
        due_ms = min(due_ms, _LATEST_MS)
        self._scheduled += 1
        slot = self._take_slot()
        self._numbers[slot] = self._scheduled
        self._dues_ms[slot] = due_ms
        self._positions[slot] = entry.position
        self._stream_numbers[slot] = self._streams.take(entry.stream)
        id = self._scheduled << _SLOT_BITS | slot
        self._keys.push(due_ms << ID_BITS | id)
        self._keys.sweep(len(self))
        if self._alarm is None or due_ms < self._alarm_ms:
            self._arm()
        return id

    def schedule_all(self, due_ms: int, stream: StreamId, positions: Sequence[int]) -> list[TimerId]:
        """Same as `schedule`, for several timers of one stream with the same due time."""
        if not positions:
            return []
        due_ms = min(due_ms, _LATEST_MS)
        number, due_key, first = self._streams.take(stream, len(positions)), due_ms << ID_BITS, self._scheduled + 1
        self._scheduled += len(positions)
        ids = []
        for scheduled, position in enumerate(positions, first):
            slot = self._take_slot()
            self._numbers[slot] = scheduled
            self._dues_ms[slot] = due_ms
            self._positions[slot] = position
            self._stream_numbers[slot] = number
            id = scheduled << _SLOT_BITS | slot
            self._keys.push(due_key | id)
            ids.append(id)
        self._keys.sweep(len(self), len(positions))
        if self._alarm is None or due_ms < self._alarm_ms:
            self._arm()
        return ids

    def reschedule(self, id: TimerId, due_ms: int) -> bool:
        """Changes the due time; the id stays the same. Returns False if the timer is no longer pending."""
        if not self._is_pending(id):
            return False
        slot = id & _SLOT_MASK
        due_ms, before_ms = min(due_ms, _LATEST_MS), self._dues_ms[slot]
        self._dues_ms[slot] = due_ms
        self._keys.push(due_ms << ID_BITS | id)
        self._changed(min(due_ms, before_ms))
        return True

    def cancel(self, id: TimerId) -> bool:
        """Cancels a timer. Returns False if it is no longer pending."""
        if not self._is_pending(id):
            return False
        due_ms = self._dues_ms[id & _SLOT_MASK]
        self._free(id & _SLOT_MASK)
        self._changed(due_ms)
        return True

    def cancel_all(self, ids: Sequence[TimerId]) -> None:
        """Cancels those of the timers that are still pending."""
        dues_ms = []
        for id in ids:
            if self._is_pending(id):
                dues_ms.append(self._dues_ms[id & _SLOT_MASK])
                self._free(id & _SLOT_MASK)
        if dues_ms:
            self._changed(min(dues_ms), len(dues_ms))

    def get(self, id: TimerId) -> PendingTimer | None:
        return self._pending(id) if self._is_pending(id) else None

    def upcoming(self, limit: int) -> list[PendingTimer]:
        """Returns the next `limit` timers in the order in which they will fire."""
        return [self._pending(key & _ID_MASK) for key in islice(self._keys.in_order(), limit)]

    def upcoming_of(self, stream: StreamId, limit: int) -> list[PendingTimer]:
        """Same as `upcoming`, for one stream. Scans every pending timer: for administration, not for the message
        path."""
        wanted = self._streams.number(stream)
        if wanted is None:
            return []
        slots = (slot for slot, number in enumerate(self._stream_numbers) if number == wanted)
        found = (self._pending(self._numbers[slot] << _SLOT_BITS | slot) for slot in slots)
        return heapq.nsmallest(limit, found, key=lambda pending: (pending.due_ms, pending.id))

    def _is_pending(self, id: TimerId) -> bool:
        slot = id & _SLOT_MASK
        return id > 0 and slot < len(self._numbers) and self._numbers[slot] == id >> _SLOT_BITS

    def _pending(self, id: TimerId) -> PendingTimer:
        slot = id & _SLOT_MASK
        stream = self._streams.name(self._stream_numbers[slot])
        return PendingTimer(id, self._dues_ms[slot], TimerEntry(stream, self._positions[slot]))

    # -- slots

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        for column in (self._numbers, self._dues_ms, self._positions, self._stream_numbers):
            column.append(0)
        return len(self._numbers) - 1

    def _free(self, slot: int) -> None:
        self._streams.release(self._stream_numbers[slot])
        self._stream_numbers[slot] = _NO_STREAM
        self._numbers[slot] = 0
        self._free_slots.append(slot)

    # -- keys: a key is stale when its timer was removed or has another due time

    def _is_current(self, key: int) -> bool:
        slot = key & _SLOT_MASK
        number = (key & _ID_MASK) >> _SLOT_BITS
        return self._numbers[slot] == number and self._dues_ms[slot] == key >> ID_BITS

    # -- firing

    def _changed(self, due_ms: int, count: int = 1) -> None:
        """Called after a timer with this due time was added or removed, or after several, of which this is the
        earliest."""
        self._keys.sweep(len(self), count)
        if self._alarm is None or due_ms <= self._alarm_ms:
            self._arm()

    def _arm(self) -> None:
        """Sets the timer of the clock to the earliest due time."""
        if self._is_firing:
            return  # armed once, at the end of the turn
        key = self._keys.earliest()
        due_ms = None if key is None else key >> ID_BITS
        if self._alarm is not None:
            if due_ms == self._alarm_ms:
                return
            self._alarm.cancel()
            self._alarm = None
        if due_ms is not None:
            self._alarm_ms = due_ms
            self._alarm = self._timeline.call_at(due_ms, self._fire_due)

    def _fire_due(self) -> None:
        """Fires due timers up to the limit of one loop turn; the rest follow in the next turn."""
        self._alarm = None
        self._is_firing = True
        now_ms = self._timeline.now_ms()
        try:
            if self._fire_batch is None:
                self._fire_each(now_ms)
            else:
                self._fire_batches(self._fire_batch, now_ms)
        finally:
            self._is_firing = False
            self._arm()

    def _fire_each(self, now_ms: int) -> None:
        for _ in range(FIRES_PER_TURN):
            key = self._keys.earliest()
            if key is None or key >> ID_BITS > now_ms:
                break
            self._keys.pop_earliest()
            self._fire_one(key)

    def _fire_batches(self, fire_batch: FireBatch, now_ms: int) -> None:
        keys = self._keys.take_due(now_ms, FIRES_PER_TURN)
        names, numbers, positions = self._streams.name, self._stream_numbers, self._positions
        slots = [key & _SLOT_MASK for key in keys]
        batch = [TimerEntry(names(numbers[slot]), positions[slot]) for slot in slots]
        done = 0
        while done < len(keys):
            done += self._fire_batch_from(fire_batch, batch, done, keys)
            if done < len(keys):
                self._fire_one(keys[done])
                done += 1
                if self._timeline.now_ms() - now_ms >= TURN_MS:
                    break
        for key in keys[done:]:
            self._keys.push(key)

    def _fire_batch_from(
        self, fire_batch: FireBatch, batch: Sequence[TimerEntry], begin: int, keys: Sequence[int]
    ) -> int:
        """Returns how many timers were handled."""
        try:
            count = fire_batch(batch, begin)
        except Refusal as refusal:
            log.warning("timers: retrying %d (%s)", len(keys) - begin, refusal)
            retry_ms = self._timeline.now_ms() + RETRY_MS
            for key in keys[begin:]:
                self.reschedule(key & _ID_MASK, retry_ms)
            return len(keys) - begin
        except Exception:
            log.exception("timers: dropped %d after an unexpected error", len(keys) - begin)
            count = len(keys) - begin
        for key in keys[begin : begin + count]:
            self._free(key & _SLOT_MASK)
        return count

    def _fire_one(self, key: int) -> None:
        id = key & _ID_MASK
        pending = self._pending(id)
        try:
            if pending.entry not in self._fired:
                self._fire(pending)
        except (Refusal, OSError) as refusal:
            log.warning("timer of %s: retrying (%s)", pending.entry, refusal)
            if self._is_current(key):
                self.reschedule(id, self._timeline.now_ms() + RETRY_MS)
            return
        except Exception:
            log.exception("timer of %s: dropped after an unexpected error", pending.entry)
        if self._is_current(key):  # `fire` may have cancelled or rescheduled it
            self._free(id & _SLOT_MASK)
