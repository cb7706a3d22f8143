"""Messages that consumer groups have popped and not acknowledged, and the next offset of each group and queue: leases
on a timeline, and a table from which a restart restores them. Knows offsets, never a message."""

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
_NEXT_OFFSET_KEY = -1  # key suffix in place of a message offset
_NOBODY = ""  # leases have no named holder: any client with the receipt may use them


class InFlightRecord(msgspec.Struct, frozen=True, array_like=True):
    """Table row. For a message in flight: `number` is its deadline in milliseconds, and `is_before_next_offset` says
    that the queue's next offset is behind it. For a queue: `number` is its next offset; a power cut may lose this row
    and keep the rows of messages."""

    number: int
    pop_time_ms: int = 0
    tries: int = 0
    is_ordered: bool = False
    is_before_next_offset: bool = False


class InFlightMessage(msgspec.Struct, gc=False):
    """A message in flight; `lease` is None when the lease has expired. `tries` counts earlier deliveries.
    `is_recovered`: loaded from the table, or restored after a refused pass; may already have been returned without a
    record of it, so check first. `was_expired`: its lease had expired before; the old receipt is invalid."""

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
    """One queue as read by one group. Each message before `next_offset` is acknowledged or in `in_flight`. Messages in
    `returned` must be delivered again before any other. `stored_next_offset` is the offset after a restart."""

    group: str
    stream: StreamId
    next_offset: int
    stored_next_offset: int
    in_flight: dict[int, InFlightMessage] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    is_ordered: bool = False
    attempt_id: str = ""
    pending_passes: int = 0
    """Number of pops whose passes are not durable yet."""
    place: str = field(init=False)
    """Prefix of the table keys of its messages."""

    def __post_init__(self) -> None:
        self.place = f"{self.stream.topic.hex}/{self.stream.number}/"

    def key(self, offset: int) -> str:
        """Table key of a message. A group name may contain any character, so it is last."""
        return f"{self.place}{offset}/{self.group}"

    def attempts_of(self, offset: int) -> int:
        """Number of earlier deliveries. A repeated request for messages still in flight does not count."""
        known = self.in_flight.get(offset)
        return 0 if known is None else known.tries + (known.lease is None)

    def is_in_flight(self, offset: int, pop_time_ms: int) -> bool:
        """Whether the message popped at this time is still in flight under that receipt."""
        in_flight = self.in_flight.get(offset)
        return (
            in_flight is not None
            and in_flight.pop_time_ms == pop_time_ms
            and in_flight.lease is not None
            and not in_flight.was_expired
        )

    @property
    def in_flight_offsets(self) -> list[int]:
        """Offsets in flight, in order, without returned messages."""
        return sorted(self.in_flight.keys() - self.returned)


Expired = Callable[[InFlightQueue, int], None]
"""Called when the lease of a message expires. A Refusal repeats the call after a second."""


class InFlightTable:
    """Changes are visible at once and count when their ticket's pass is durable; a refused pass undoes them."""

    def __init__(self, table: DurableMap[InFlightRecord], timeline: Timeline, expired: Expired) -> None:
        self._table = table
        self._timeline = timeline
        self._expired = expired
        self._queues: dict[tuple[str, StreamId], InFlightQueue] = {}
        self._leases: dict[str, Leases] = {}
        table.on_undone(self._rolled_back)

    def load(self) -> None:
        """Restores the messages in flight. Their leases may expire at once."""
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
        """Starts consumption of a queue by a group. Stored with the first change."""
        return self._queues.setdefault((group, stream), InFlightQueue(group, stream, next_offset, next_offset))

    # -- changes

    def mark_in_flight(self, queue: InFlightQueue, offsets: Sequence[int], kept: InFlightRecord) -> Ticket:
        """Marks these messages as in flight. All of them have the same number of earlier deliveries."""
        self._lease_all(queue, offsets, kept)
        return self._table.put_all([queue.key(offset) for offset in offsets], kept)

    def store_next_offset(self, queue: InFlightQueue, next_offset: int) -> Ticket:
        queue.next_offset = queue.stored_next_offset = next_offset
        return self._table.put(queue.key(_NEXT_OFFSET_KEY), InFlightRecord(next_offset))

    def move(self, queue: InFlightQueue, next_offset: int) -> Ticket:
        """Resets the group's offset, possibly to before messages in flight."""
        for offset, in_flight in queue.in_flight.items():
            key = queue.key(offset)
            kept = self._table.get(key)
            if kept is not None and in_flight.is_before_next_offset:
                in_flight.is_before_next_offset = False
                self._table.put(key, in_flight.record_until(kept.number))
        return self.store_next_offset(queue, next_offset)

    def reset(self, queue: InFlightQueue, next_offset: int) -> Ticket:
        """As `move`, and ends the leases of ordered messages and of those from `next_offset` on: they are delivered as
        if for the first time. Their rows are deleted last: a power cut that keeps part of the pass loses no message."""
        released = [
            offset for offset, message in queue.in_flight.items() if message.is_ordered or offset >= next_offset
        ]
        queue.attempt_id = ""
        ticket = self.move(queue, next_offset)
        return self.ack_all(queue, released) if released else ticket

    def ack(self, queue: InFlightQueue, offset: int) -> Ticket:
        """Acknowledges a message for good."""
        return self.ack_all(queue, (offset,))

    def ack_all(self, queue: InFlightQueue, offsets: Sequence[int]) -> Ticket:
        """As `ack`, for several distinct offsets."""
        self._release_all(queue, offsets)
        return self._table.delete_all([queue.key(offset) for offset in offsets])

    def extend(self, queue: InFlightQueue, offset: int, pop_time_ms: int, deadline_ms: int) -> Ticket:
        """Extends the lease, as if the message had been popped at `pop_time_ms`. Raises LeaseGone if the message is not
        in flight."""
        in_flight = queue.in_flight.get(offset)
        if in_flight is None or in_flight.lease is None:
            raise LeaseGone(offset)
        self._extend_lease(queue.group, in_flight, deadline_ms)
        in_flight.pop_time_ms = pop_time_ms
        return self._table.put(queue.key(offset), in_flight.record_until(deadline_ms))

    def requeue(self, queue: InFlightQueue, offset: int) -> None:
        """Makes the message the next to be delivered. Not stored: a restart finds it in flight with an expired
        lease."""
        queue.returned.add(offset)

    def postpone_return(self, queue: InFlightQueue, offset: int, deadline_ms: int) -> None:
        """Leases the message again for a while: its lease has expired, but it cannot be returned now."""
        self._lease_all(queue, (offset,), queue.in_flight[offset].record_until(deadline_ms))

    def forget(self, queue: InFlightQueue) -> Ticket:
        """Forgets a queue because its group or topic is deleted."""
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

    # -- table rows

    def _rolled_back(self, keys: Collection[str]) -> None:
        # Messages first: a queue whose next offset was never stored is forgotten only when none is in flight, and the
        # next pop starts at its first offset again.
        for key in sorted(keys, key=lambda key: _read_key(key)[1] == _NEXT_OFFSET_KEY):
            kept = self._table.get(key)
            stream, offset, group = _read_key(key)
            self._apply_record(key, kept)
            if offset != _NEXT_OFFSET_KEY and kept is not None:
                # The message may have been returned without a record of it. The minimum lease avoids an immediate retry
                # on a failing disk.
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
                self._queues.pop((group, stream), None)  # it was never stored
        elif kept is None:
            self._release_all(queue, (offset,))
        else:
            self._lease_all(queue, (offset,), kept)


def _read_key(key: str) -> tuple[StreamId, int, str]:
    topic, number, offset, group = key.split("/", 3)
    return StreamId(UUID(topic), int(number)), int(offset), group
