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
_NEXT = -1  # stands where a message has its offset
_NOBODY = ""  # leases are held by whoever shows the receipt


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """Of a message that is out: `number` is its deadline in milliseconds, and `is_passed` says that the queue's next
    offset is behind it. Of a whole queue: its next offset, which a power cut may lose though it keeps what was taken.
    """

    number: int
    taken_ms: int = 0
    tries: int = 0
    is_ordered: bool = False
    is_passed: bool = False


class Taken(msgspec.Struct, gc=False):
    """A message that is out; `lease` is None when its time is over. `tries` counts how often it was out before.
    `is_found`: it may have been brought back already, by a run before this one, or without that being noted. `is_over`:
    its time was over then, and whoever had it has it no longer."""

    lease: LeaseId | None
    taken_ms: int
    tries: int
    is_ordered: bool
    is_passed: bool
    is_found: bool = False
    is_over: bool = False

    def kept_until(self, deadline_ms: int) -> Kept:
        return Kept(deadline_ms, self.taken_ms, self.tries, self.is_ordered, self.is_passed)


@dataclass(slots=True, eq=False)
class GroupQueue:
    """One stream, as one group has read it: everything before `next_offset` is settled, or in `taken`.
    Those of `taken` that are `back` must be taken again before any other. `kept_offset` is what a restart goes on from.
    """

    group: str
    stream: StreamId
    next_offset: int
    kept_offset: int
    taken: dict[int, Taken] = field(default_factory=dict)
    back: set[int] = field(default_factory=set)
    is_ordered: bool = False
    attempt_id: str = ""
    unsettled: int = 0
    """Of how many takings it is not known yet whether they are durable."""
    place: str = field(init=False)
    """How the keys of its messages begin."""

    def __post_init__(self) -> None:
        self.place = f"{self.stream.topic.hex}/{self.stream.number}/"

    def key(self, offset: int) -> str:
        """Under which it is kept that a message is out. A group's name may hold any character, so it comes last."""
        return f"{self.place}{offset}/{self.group}"

    def tries_of(self, offset: int) -> int:
        """How often it was out before. One who asks again for the same has not had it."""
        known = self.taken.get(offset)
        return 0 if known is None else known.tries + (known.lease is None)

    def is_out(self, offset: int, taken_ms: int) -> bool:
        """Whether the message that was taken then is still with whoever took it."""
        taken = self.taken.get(offset)
        return taken is not None and taken.taken_ms == taken_ms and taken.lease is not None and not taken.is_over

    @property
    def held(self) -> list[int]:
        """The offsets that are out now, in order."""
        return sorted(self.taken.keys() - self.back)


Expired = Callable[[GroupQueue, int], None]
"""The time of a message is over. A Refusal: it expires again after a second."""


class GroupQueues:
    """Each change is seen at once and counts when its ticket's pass is durable; when that is refused it goes back."""

    def __init__(self, table: DurableMap[Kept], timeline: Timeline, expired: Expired) -> None:
        self._table = table
        self._timeline = timeline
        self._expired = expired
        self._queues: dict[tuple[str, StreamId], GroupQueue] = {}
        self._leases: dict[str, Leases] = {}
        table.on_undone(self._went_back)

    def load(self) -> None:
        """What is kept is out again, and may be over at once."""
        for key, kept in list(self._table.items()):
            self._show(key, kept)
        for queue in self:
            for taken in queue.taken.values():
                taken.is_found = True
            last = max((offset for offset, taken in queue.taken.items() if taken.is_passed), default=-1)
            if last >= queue.next_offset:
                self.go_on(queue, last + 1)

    def find(self, group: str, stream: StreamId) -> GroupQueue | None:
        return self._queues.get((group, stream))

    def __iter__(self) -> Iterator[GroupQueue]:
        return iter(self._queues.values())

    def open(self, group: str, stream: StreamId, next_offset: int) -> GroupQueue:
        """A queue that the group begins to take from. It is kept with the first change."""
        return self._queues.setdefault((group, stream), GroupQueue(group, stream, next_offset, next_offset))

    # -- changes

    def take_all(self, queue: GroupQueue, offsets: Sequence[int], kept: Kept) -> Ticket:
        """These messages go out now, all of them for the first time or once more."""
        self._hold_all(queue, offsets, kept)
        return self._table.put_all([queue.key(offset) for offset in offsets], kept)

    def go_on(self, queue: GroupQueue, next_offset: int) -> Ticket:
        queue.next_offset = queue.kept_offset = next_offset
        return self._table.put(queue.key(_NEXT), Kept(next_offset))

    def move(self, queue: GroupQueue, next_offset: int) -> Ticket:
        """Somebody wants the group to go on there, which may be before what is out."""
        for offset, taken in queue.taken.items():
            key = queue.key(offset)
            kept = self._table.get(key)
            if kept is not None and taken.is_passed:
                taken.is_passed = False
                self._table.put(key, taken.kept_until(kept.number))
        return self.go_on(queue, next_offset)

    def settle(self, queue: GroupQueue, offset: int) -> Ticket:
        """It is done with, for good."""
        return self.settle_all(queue, (offset,))

    def settle_all(self, queue: GroupQueue, offsets: Sequence[int]) -> Ticket:
        """As `settle`, of several, none twice."""
        self._drop_all(queue, offsets)
        return self._table.delete_all([queue.key(offset) for offset in offsets])

    def extend(self, queue: GroupQueue, offset: int, taken_ms: int, deadline_ms: int) -> Ticket:
        """It is out as if it had been taken at `taken_ms`. LeaseGone: it is not out."""
        taken = queue.taken.get(offset)
        if taken is None or taken.lease is None:
            raise LeaseGone(offset)
        self._extend_lease(queue.group, taken, deadline_ms)
        taken.taken_ms = taken_ms
        return self._table.put(queue.key(offset), taken.kept_until(deadline_ms))

    def give_back(self, queue: GroupQueue, offset: int) -> None:
        """It is the next to be taken. Nothing is written: a restart finds it out, and over."""
        queue.back.add(offset)

    def hold_on(self, queue: GroupQueue, offset: int, deadline_ms: int) -> None:
        """Its time is over, and yet it cannot come back now: it stays out for a while."""
        self._hold_all(queue, (offset,), queue.taken[offset].kept_until(deadline_ms))

    def forget(self, queue: GroupQueue) -> Ticket:
        """The group, or the stream, is gone."""
        self.settle_all(queue, list(queue.taken))
        self._queues.pop((queue.group, queue.stream), None)
        return self._table.delete(queue.key(_NEXT))

    # -- leases

    def _hold_all(self, queue: GroupQueue, offsets: Sequence[int], kept: Kept) -> None:
        leases = self._leases.get(queue.group)
        if leases is None:
            ended = partial(self._lease_ended, queue.group)
            leases = self._leases[queue.group] = Leases(self._timeline, ended)
        deadline_ms, taken_ms, tries, is_ordered, is_passed = astuple(kept)
        self._drop_all(queue, offsets)
        granted = leases.grant_all(queue.stream, offsets, _NOBODY, deadline_ms, tries + 1)
        for offset, lease in zip(offsets, granted, strict=True):
            queue.taken[offset] = Taken(lease, taken_ms, tries, is_ordered, is_passed)
        queue.is_ordered = is_ordered

    def _drop_all(self, queue: GroupQueue, offsets: Sequence[int]) -> None:
        leases = []
        for offset in offsets:
            taken = queue.taken.pop(offset, None)
            if taken is not None and taken.lease is not None:
                leases.append(taken.lease)
        if queue.back:
            queue.back.difference_update(offsets)
        if leases:
            self._leases[queue.group].settle_all(leases)

    def _lease_ended(self, group: str, lease: Lease) -> None:
        queue = self._queues[group, lease.stream]
        taken = queue.taken[lease.offset]
        id, taken.lease = taken.lease, None
        try:
            self._expired(queue, lease.offset)
        except Refusal:
            taken.lease = id
            raise

    # -- what the table says

    def _went_back(self, keys: Collection[str]) -> None:
        for key in keys:
            kept = self._table.get(key)
            stream, offset, group = _read_key(key)
            self._show(key, kept)
            if offset != _NEXT and kept is not None:
                # It may have come back, which was not noted; and a disk that takes nothing is not asked again at once.
                taken, now_ms = self._queues[group, stream].taken[offset], self._timeline.now_ms()
                taken.is_found, taken.is_over = True, kept.number <= now_ms
                self._extend_lease(group, taken, max(kept.number, now_ms + _AGAIN_MS))

    def _extend_lease(self, group: str, taken: Taken, deadline_ms: int) -> None:
        if taken.lease is not None:
            self._leases[group].extend(taken.lease, deadline_ms)

    def _show(self, key: str, kept: Kept | None) -> None:
        stream, offset, group = _read_key(key)
        queue = self.open(group, stream, 0)
        if offset == _NEXT:
            if kept is not None:
                queue.next_offset = queue.kept_offset = kept.number
            elif not queue.taken:
                self._queues.pop((group, stream), None)  # nothing of it was ever kept
        elif kept is None:
            self._drop_all(queue, (offset,))
        else:
            self._hold_all(queue, (offset,), kept)


def _read_key(key: str) -> tuple[StreamId, int, str]:
    topic, number, offset, group = key.split("/", 3)
    return StreamId(UUID(topic), int(number)), int(offset), group
