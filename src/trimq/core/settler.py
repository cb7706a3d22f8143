"""Messages that are settled by their receipts: those that come together look their queue up once, and who repeats one
waits for it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trimq.core.taken import GroupQueue
from trimq.storage.passes import Ticket

if TYPE_CHECKING:
    from trimq.core.popping import Receipt


class Undecided:
    """What was settled and is not durable yet. `afterwards` calls back when a ticket's pass is."""

    def __init__(self, afterwards: Callable[[Ticket, Callable[[Ticket], object]], None]) -> None:
        self._afterwards = afterwards
        self._settled: dict[Ticket, set[tuple[GroupQueue, int]]] = {}

    def note(self, ticket: Ticket, queue: GroupQueue, offset: int) -> None:
        found = self._settled.get(ticket)
        if found is None:
            found = self._settled[ticket] = set()
            self._afterwards(ticket, self._settled.pop)
        found.add((queue, offset))

    def find(self, queue: GroupQueue, offset: int) -> Ticket | None:
        return next((ticket for ticket, settled in self._settled.items() if (queue, offset) in settled), None)


class Settler:
    """Of one topic, for one group. `find` tells the queue of a receipt, `settle` ends what is out."""

    __slots__ = ("_find", "_queues", "_settle", "_undecided")

    def __init__(
        self,
        find: Callable[[Receipt], GroupQueue | None],
        settle: Callable[[GroupQueue, int], Ticket],
        undecided: Undecided,
    ) -> None:
        self._find = find
        self._settle = settle
        self._undecided = undecided
        self._queues: dict[tuple[bool, int], GroupQueue | None] = {}

    def ack(self, receipt: Receipt) -> Ticket | None:
        """As `Popping.ack`."""
        is_returned, number, offset, taken_ms = receipt
        key = (is_returned, number)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._find(receipt)
        if queue is None:
            return None
        return self._settle(queue, offset) if queue.is_out(offset, taken_ms) else self._undecided.find(queue, offset)
