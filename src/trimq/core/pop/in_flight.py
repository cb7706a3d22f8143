"""What groups have taken out of streams and not settled, and how far each has got: leases on the clock, and a table in
which a restart finds them again. Knows places, never a message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import msgspec
from msgspec.structs import astuple

from trimq.clock import Timeline
from trimq.core.metadata.durable_map import DurableMap
from trimq.core.scheduling.leases import Lease, LeaseId, Leases
from trimq.errors import LeaseGone, Refusal
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Ticket

_AGAIN_MS = 1000
_NEXT_OFFSET_KEY = -1  # stands where a message has its offset
_NOBODY = ""  # leases are held by whoever shows the receipt


class InFlightRecord(msgspec.Struct, frozen=True, array_like=True):
    """Of a message that is out: `number` is its deadline in milliseconds, and `is_before_next_offset` says that the
    queue's next offset is behind it. Of a whole queue: its next offset, which a power cut may lose though it keeps what
    was taken."""

    number: int
    pop_time_ms: int = 0
    tries: int = 0
    is_ordered: bool = False
    is_before_next_offset: bool = False


class InFlightMessage(msgspec.Struct, gc=False):
    """A message that is out; `lease` is None when its time is over. `tries` counts how often it was out before.
    `is_recovered`: it may have been brought back already, by a run before this one, or without that being noted.
    `was_expired`: its time was over then, and whoever had it has it no longer."""

    lease: LeaseId | None
    pop_time_ms: int
    tries: int
    is_ordered: bool
    is_before_next_offset: bool
    is_recovered: bool = False
    was_expired: bool = False

    def record_until(self, deadline_ms: int) -> InFlightRecord:
        return InFlightRecord(deadline_ms, self.pop_time_ms, self.tries, self.is_ordered, self.is_before_next_offset)


@dataclass(slots=True, eq=False)
class InFlightQueue:
    """One stream, as one group has read it: everything before `next_offset` is settled, or in `in_flight`. Those of
    `in_flight` that are `returned` must be taken again before any other. `stored_next_offset` is what a restart goes on
    from."""

    group: str
    stream: StreamId
    next_offset: int
    stored_next_offset: int
    in_flight: dict[int, InFlightMessage] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    is_ordered: bool = False
    attempt_id: str = ""
    pending_passes: int = 0
    """Of how many takings it is not known yet whether they are durable."""
    place: str = field(init=False)
    """How the keys of its messages begin."""

    def __post_init__(self) -> None:
        self.place = f"{self.stream.topic.hex}/{self.stream.number}/"

    def key(self, offset: int) -> str:
        """Under which it is kept that a message is out. A group's name may hold any character, so it comes last."""
        return f"{self.place}{offset}/{self.group}"

    def attempts_of(self, offset: int) -> int:
        """How often it was out before. One who asks again for the same has not had it."""
        known = self.in_flight.get(offset)
        return 0 if known is None else known.tries + (known.lease is None)

    def is_in_flight(self, offset: int, pop_time_ms: int) -> bool:
        """Whether the message that was taken then is still with whoever took it."""
        in_flight = self.in_flight.get(offset)
        return (
            in_flight is not None
            and in_flight.pop_time_ms == pop_time_ms
            and in_flight.lease is not None
            and not in_flight.was_expired
        )

    @property
    def in_flight_offsets(self) -> list[int]:
        """The offsets that are out now, in order."""
        return sorted(self.in_flight.keys() - self.returned)


Expired = Callable[[InFlightQueue, int], None]
"""The time of a message is over. A Refusal: it expires again after a second."""


class InFlightTable:
    """Each change is seen at once and counts when its ticket's pass is durable; when that is refused it goes back."""

    def __init__(self, table: DurableMap[InFlightRecord], timeline: Timeline, expired: Expired) -> None:
        self._table = table
        self._timeline = timeline
        self._expired = expired
        self._queues: dict[tuple[str, StreamId], InFlightQueue] = {}
        self._leases: dict[str, Leases] = {}
        table.on_undone(self._rolled_back)

    def load(self) -> None:
        """What is kept is out again, and may be over at once."""
        for key, kept in list(self._table.items()):
            self._apply_record(key, kept)
        for queue in self:
            for in_flight in queue.in_flight.values():
                in_flight.is_recovered = True
            last = max(
                (offset for offset, in_flight in queue.in_flight.items() if in_flight.is_before_next_offset), default=-1
            )
            if last >= queue.next_offset:
                self.store_next_offset(queue, last + 1)

    def find(self, group: str, stream: StreamId) -> InFlightQueue | None:
        return self._queues.get((group, stream))

    def __iter__(self) -> Iterator[InFlightQueue]:
        return iter(self._queues.values())

    def open(self, group: str, stream: StreamId, next_offset: int) -> InFlightQueue:
        """A queue that the group begins to take from. It is kept with the first change."""
        return self._queues.setdefault((group, stream), InFlightQueue(group, stream, next_offset, next_offset))

    # -- changes

    def mark_in_flight(self, queue: InFlightQueue, offsets: Sequence[int], kept: InFlightRecord) -> Ticket:
        """These messages go out now, all of them for the first time or once more."""
        self._lease_all(queue, offsets, kept)
        return self._table.put_all([queue.key(offset) for offset in offsets], kept)

    def store_next_offset(self, queue: InFlightQueue, next_offset: int) -> Ticket:
        queue.next_offset = queue.stored_next_offset = next_offset
        return self._table.put(queue.key(_NEXT_OFFSET_KEY), InFlightRecord(next_offset))

    def move(self, queue: InFlightQueue, next_offset: int) -> Ticket:
        """Somebody wants the group to go on there, which may be before what is out."""
        for offset, in_flight in queue.in_flight.items():
            key = queue.key(offset)
            kept = self._table.get(key)
            if kept is not None and in_flight.is_before_next_offset:
                in_flight.is_before_next_offset = False
                self._table.put(key, in_flight.record_until(kept.number))
        return self.store_next_offset(queue, next_offset)

    def ack(self, queue: InFlightQueue, offset: int) -> Ticket:
        """It is done with, for good."""
        return self.ack_all(queue, (offset,))

    def ack_all(self, queue: InFlightQueue, offsets: Sequence[int]) -> Ticket:
        """As `ack`, of several, none twice."""
        self._release_all(queue, offsets)
        return self._table.delete_all([queue.key(offset) for offset in offsets])

    def extend(self, queue: InFlightQueue, offset: int, pop_time_ms: int, deadline_ms: int) -> Ticket:
        """It is out as if it had been taken at `pop_time_ms`. LeaseGone: it is not out."""
        in_flight = queue.in_flight.get(offset)
        if in_flight is None or in_flight.lease is None:
            raise LeaseGone(offset)
        self._extend_lease(queue.group, in_flight, deadline_ms)
        in_flight.pop_time_ms = pop_time_ms
        return self._table.put(queue.key(offset), in_flight.record_until(deadline_ms))

    def requeue(self, queue: InFlightQueue, offset: int) -> None:
        """It is the next to be taken. Nothing is written: a restart finds it out, and over."""
        queue.returned.add(offset)

    def postpone_return(self, queue: InFlightQueue, offset: int, deadline_ms: int) -> None:
        """Its time is over, and yet it cannot come back now: it stays out for a while."""
        self._lease_all(queue, (offset,), queue.in_flight[offset].record_until(deadline_ms))

    def forget(self, queue: InFlightQueue) -> Ticket:
        """The group, or the stream, is gone."""
        self.ack_all(queue, list(queue.in_flight))
        self._queues.pop((queue.group, queue.stream), None)
        return self._table.delete(queue.key(_NEXT_OFFSET_KEY))

    # -- leases

    def _lease_all(self, queue: InFlightQueue, offsets: Sequence[int], kept: InFlightRecord) -> None:
        leases = self._leases.get(queue.group)
        if leases is None:
            ended = partial(self._lease_ended, queue.group)
            leases = self._leases[queue.group] = Leases(self._timeline, ended)
        deadline_ms, pop_time_ms, tries, is_ordered, is_before_next_offset = astuple(kept)
        self._release_all(queue, offsets)
        granted = leases.grant_all(queue.stream, offsets, _NOBODY, deadline_ms, tries + 1)
        for offset, lease in zip(offsets, granted, strict=True):
            queue.in_flight[offset] = InFlightMessage(lease, pop_time_ms, tries, is_ordered, is_before_next_offset)
        queue.is_ordered = is_ordered

    def _release_all(self, queue: InFlightQueue, offsets: Sequence[int]) -> None:
        leases = []
        for offset in offsets:
            in_flight = queue.in_flight.pop(offset, None)
            if in_flight is not None and in_flight.lease is not None:
                leases.append(in_flight.lease)
        if queue.returned:
            queue.returned.difference_update(offsets)
        if leases:
            self._leases[queue.group].ack_all(leases)

    def _lease_ended(self, group: str, lease: Lease) -> None:
        queue = self._queues[group, lease.stream]
        in_flight = queue.in_flight[lease.offset]
        id, in_flight.lease = in_flight.lease, None
        try:
            self._expired(queue, lease.offset)
        except Refusal:
            in_flight.lease = id
            raise

    # -- what the table says

    def _rolled_back(self, keys: Collection[str]) -> None:
        for key in keys:
            kept = self._table.get(key)
            stream, offset, group = _read_key(key)
            self._apply_record(key, kept)
            if offset != _NEXT_OFFSET_KEY and kept is not None:
                # It may have come back, which was not noted; and a disk that takes nothing is not asked again at once.
                in_flight, now_ms = self._queues[group, stream].in_flight[offset], self._timeline.now_ms()
                in_flight.is_recovered, in_flight.was_expired = True, kept.number <= now_ms
                self._extend_lease(group, in_flight, max(kept.number, now_ms + _AGAIN_MS))

    def _extend_lease(self, group: str, in_flight: InFlightMessage, deadline_ms: int) -> None:
        if in_flight.lease is not None:
            self._leases[group].extend(in_flight.lease, deadline_ms)

    def _apply_record(self, key: str, kept: InFlightRecord | None) -> None:
        stream, offset, group = _read_key(key)
        queue = self.open(group, stream, 0)
        if offset == _NEXT_OFFSET_KEY:
            if kept is not None:
                queue.next_offset = queue.stored_next_offset = kept.number
            elif not queue.in_flight:
                self._queues.pop((group, stream), None)  # nothing of it was ever kept
        elif kept is None:
            self._release_all(queue, (offset,))
        else:
            self._lease_all(queue, (offset,), kept)


def _read_key(key: str) -> tuple[StreamId, int, str]:
    topic, number, offset, group = key.split("/", 3)
    return StreamId(UUID(topic), int(number)), int(offset), group
