"""Leases of messages in flight, each with a deadline, for one group of competing consumers. Knows the position of a
message, never its content, nor the next step after a lease expires."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from trimq.clock import Timeline
from trimq.core.scheduling.timers import PendingTimer, TimerEntry, Timers
from trimq.errors import AlreadyLeased, LeaseGone, Refusal
from trimq.model import StreamId

_STALE_OFFSETS_ALLOWED = 64

_PLACE = attrgetter("stream", "holder")

LeaseId = int
LeaseHolder = Hashable


class Lease(msgspec.Struct):
    """`attempts` counts the deliveries so far, including this one."""

    id: LeaseId
    stream: StreamId
    offset: int
    holder: LeaseHolder
    deadline_ms: int
    attempts: int


class _Offsets:
    """Offsets of one stream that are in flight."""

    __slots__ = ("_heap", "out")

    def __init__(self) -> None:
        self.out: set[int] = set()
        self._heap: list[int] = []

    def add(self, offset: int) -> None:
        if len(self._heap) > 2 * len(self.out) + _STALE_OFFSETS_ALLOWED:
            self._heap = sorted(self.out)
        self.out.add(offset)
        heapq.heappush(self._heap, offset)

    def lowest(self) -> int:
        while self._heap[0] not in self.out:
            heapq.heappop(self._heap)
        return self._heap[0]


class Leases:
    """Each lease ends in exactly one of three ways: it is settled, it is released, or it expires and `expired` is
    called with it.

    A holder may settle or extend a lease until `expired` was called, even after the deadline. If `expired` raises a
    Refusal, the lease stays and expires again after a second."""

    def __init__(self, timeline: Timeline, expired: Callable[[Lease], None]) -> None:
        self._expired = expired
        self._deadlines = Timers(timeline, self._expire)
        self._leases: dict[LeaseId, Lease] = {}
        self._by_holder: dict[LeaseHolder, set[LeaseId]] = {}
        self._by_stream: dict[StreamId, _Offsets] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def grant(self, stream: StreamId, offset: int, holder: LeaseHolder, deadline_ms: int, attempts: int) -> LeaseId:
        """Leases the message at `offset` to `holder` until `deadline_ms`."""
        if self.is_leased(stream, offset):
            raise AlreadyLeased(offset)
        id = self._deadlines.schedule(deadline_ms, TimerEntry(stream, offset))
        self._add(stream, holder, (Lease(id, stream, offset, holder, deadline_ms, attempts),))
        return id

    def grant_all(
        self, stream: StreamId, offsets: Sequence[int], holder: LeaseHolder, deadline_ms: int, attempts: int
    ) -> list[LeaseId]:
        """Same as `grant`, for several distinct messages of one stream: all of them, or none."""
        known = self._by_stream.get(stream)
        if known is not None:
            for offset in offsets:
                if offset in known.out:
                    raise AlreadyLeased(offset)
        ids = self._deadlines.schedule_all(deadline_ms, stream, offsets)
        granted = zip(ids, offsets, strict=True)
        batch = [Lease(id, stream, offset, holder, deadline_ms, attempts) for id, offset in granted]
        if batch:
            self._add(stream, holder, batch)
        return ids

    def extend(self, id: LeaseId, deadline_ms: int) -> Lease:
        """Moves the deadline to `deadline_ms`, which may be earlier than before."""
        lease = self.get(id)
        self._deadlines.reschedule(id, deadline_ms)
        lease.deadline_ms = deadline_ms
        return lease

    def settle(self, id: LeaseId) -> Lease:
        """Ends a lease because the holder has processed or rejected the message."""
        lease = self.get(id)
        self._deadlines.cancel(id)
        self._remove(lease.stream, lease.holder, (lease,))
        return lease

    def ack_all(self, ids: Sequence[LeaseId]) -> None:
        """Same as `settle`, for several distinct leases: all of them, or none."""
        if len(ids) == 1:
            self.settle(ids[0])
            return
        leases = [self.get(id) for id in ids]
        self._deadlines.cancel_all(ids)
        for (stream, holder), batch in groupby(leases, _PLACE):
            self._remove(stream, holder, batch)

    def release(self, holder: LeaseHolder) -> list[Lease]:
        """Ends all leases of a holder that disconnected. Returns them in the order of streams and offsets."""
        leases = [self.settle(id) for id in tuple(self._by_holder.get(holder, ()))]
        leases.sort(key=lambda lease: (lease.stream, lease.offset))
        return leases

    def get(self, id: LeaseId) -> Lease:
        lease = self._leases.get(id)
        if lease is None:
            raise LeaseGone(id)
        return lease

    def is_leased(self, stream: StreamId, offset: int) -> bool:
        offsets = self._by_stream.get(stream)
        return offsets is not None and offset in offsets.out

    def lowest(self, stream: StreamId) -> int | None:
        """Returns the lowest offset in flight, or None. Every offset before it was settled, or returned to the
        caller."""
        offsets = self._by_stream.get(stream)
        return None if offsets is None else offsets.lowest()

    def count_of_stream(self, stream: StreamId) -> int:
        offsets = self._by_stream.get(stream)
        return 0 if offsets is None else len(offsets.out)

    def count_of_holder(self, holder: LeaseHolder) -> int:
        return len(self._by_holder.get(holder, ()))

    def _add(self, stream: StreamId, holder: LeaseHolder, batch: Iterable[Lease]) -> None:
        """Adds leases of one stream and one holder."""
        of_holder = self._by_holder.setdefault(holder, set())
        offsets = self._by_stream.get(stream)
        if offsets is None:
            offsets = self._by_stream[stream] = _Offsets()
        for lease in batch:
            self._leases[lease.id] = lease
            of_holder.add(lease.id)
            offsets.add(lease.offset)

    def _remove(self, stream: StreamId, holder: LeaseHolder, batch: Iterable[Lease]) -> None:
        of_holder, offsets = self._by_holder[holder], self._by_stream[stream]
        for lease in batch:
            del self._leases[lease.id]
            of_holder.remove(lease.id)
            offsets.out.remove(lease.offset)
        if not of_holder:
            del self._by_holder[holder]
        if not offsets.out:
            del self._by_stream[stream]

    def _expire(self, pending: PendingTimer) -> None:
        lease = self._leases[pending.id]
        # Removed first, so that `expired` may lease the message to the next holder at once.
        self._remove(lease.stream, lease.holder, (lease,))
        try:
            self._expired(lease)
        except Refusal:
            if not self.is_leased(lease.stream, lease.offset):
                self._add(lease.stream, lease.holder, (lease,))
                raise
