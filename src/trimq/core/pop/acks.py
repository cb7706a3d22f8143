"""Acknowledgement of popped messages by receipt. A batch of acks looks up its queue once; a repeated ack waits for the
first one to become durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from trimq.core.pop.in_flight import InFlightQueue
from trimq.errors import Refusal
from trimq.storage.group_commit.passes import Ticket

if TYPE_CHECKING:
    from trimq.core.pop.receipts import Receipt


AckResult = Ticket | Refusal | None
"""Result of one ack: as `PopService.ack` returns it, or the refusal if the receipt could not be checked."""

_QUEUE = itemgetter(0, 1)  # Queue of a receipt: whether it is a retry queue, and its number


class PendingAcks:
    """Acks that are not durable yet. `on_durable` calls back when the pass of a ticket is durable or refused."""

    def __init__(self, on_durable: Callable[[Ticket, Callable[[Ticket], object]], None]) -> None:
        self._on_durable = on_durable
        self._settled: dict[Ticket, set[tuple[InFlightQueue, int]]] = {}

    def add(self, ticket: Ticket, queue: InFlightQueue, offsets: Iterable[int]) -> None:
        found = self._settled.get(ticket)
        if found is None:
            found = self._settled[ticket] = set()
            self._on_durable(ticket, self._settled.pop)
        for offset in offsets:
            found.add((queue, offset))

    def find(self, queue: InFlightQueue, offset: int) -> Ticket | None:
        return next((ticket for ticket, settled in self._settled.items() if (queue, offset) in settled), None)


class Acknowledger:
    """Acknowledges messages of one topic for one group. `find` returns the queue by whether it is a retry queue and by
    its number; `ack` removes in-flight messages of a queue."""

    __slots__ = ("_ack", "_find", "_pending_acks", "_queues")

    def __init__(
        self,
        find: Callable[[bool, int], InFlightQueue | None],
        ack: Callable[[InFlightQueue, Sequence[int]], Ticket],
        pending_acks: PendingAcks,
    ) -> None:
        self._find = find
        self._ack = ack
        self._pending_acks = pending_acks
        self._queues: dict[tuple[bool, int], InFlightQueue | None] = {}

    def ack(self, receipt: Receipt) -> Ticket | None:
        """As `PopService.ack`."""
        is_retry, number, offset, pop_time_ms = receipt
        queue = self._queue(is_retry, number)
        if queue is None:
            return None
        return (
            self._ack(queue, (offset,))
            if queue.is_in_flight(offset, pop_time_ms)
            else self._pending_acks.find(queue, offset)
        )

    def ack_all(self, receipts: Sequence[Receipt]) -> list[AckResult]:
        """As `ack`, for each receipt. Consecutive receipts of one queue are acknowledged together."""
        settled: list[AckResult] = []
        for (is_retry, number), row in groupby(receipts, _QUEUE):
            places = [(offset, pop_time_ms) for _, _, offset, pop_time_ms in row]
            try:
                queue = self._queue(is_retry, number)
                settled += [None] * len(places) if queue is None else self._ack_batch(queue, places)
            except Refusal as refusal:
                settled += [refusal] * len(places)
        return settled

    def _queue(self, is_retry: bool, number: int) -> InFlightQueue | None:
        key = (is_retry, number)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._find(is_retry, number)
        return queue

    def _ack_batch(self, queue: InFlightQueue, places: Sequence[tuple[int, int]]) -> list[Ticket | None]:
        """Acknowledges messages of one queue, given as offset and pop time."""
        out: dict[int, None] = {}
        earlier: dict[int, Ticket | None] = {}
        for at, (offset, pop_time_ms) in enumerate(places):
            if queue.is_in_flight(offset, pop_time_ms):
                out[offset] = None
            elif offset not in out:
                earlier[at] = self._pending_acks.find(queue, offset)
        ticket = self._ack(queue, [*out]) if out else None
        if not earlier:
            return [ticket] * len(places)
        return [earlier.get(at, ticket) for at in range(len(places))]
