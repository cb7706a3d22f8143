"""Messages that are settled by their receipts: those that come together look their queue up once, and who repeats one
waits for it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from trimq.core.pop.in_flight import GroupQueue
from trimq.errors import Refusal
from trimq.storage.group_commit.passes import Ticket

if TYPE_CHECKING:
    from trimq.core.pop.receipts import Receipt


Outcome = Ticket | Refusal | None
"""What became of a receipt: as `Popping.ack` tells it, or why it could not be looked at."""

_QUEUE = itemgetter(0, 1)  # of a receipt: whether it is of what came back, and the number


class Undecided:
    """What was settled and is not durable yet. `afterwards` calls back when a ticket's pass is."""

    def __init__(self, afterwards: Callable[[Ticket, Callable[[Ticket], object]], None]) -> None:
        self._afterwards = afterwards
        self._settled: dict[Ticket, set[tuple[GroupQueue, int]]] = {}

    def note(self, ticket: Ticket, queue: GroupQueue, offsets: Iterable[int]) -> None:
        found = self._settled.get(ticket)
        if found is None:
            found = self._settled[ticket] = set()
            self._afterwards(ticket, self._settled.pop)
        for offset in offsets:
            found.add((queue, offset))

    def find(self, queue: GroupQueue, offset: int) -> Ticket | None:
        return next((ticket for ticket, settled in self._settled.items() if (queue, offset) in settled), None)


class Settler:
    """Of one topic, for one group. `find` tells a queue by whether it is of what came back, and its number; `settle`
    ends what is out of one."""

    __slots__ = ("_find", "_queues", "_settle", "_undecided")

    def __init__(
        self,
        find: Callable[[bool, int], GroupQueue | None],
        settle: Callable[[GroupQueue, Sequence[int]], Ticket],
        undecided: Undecided,
    ) -> None:
        self._find = find
        self._settle = settle
        self._undecided = undecided
        self._queues: dict[tuple[bool, int], GroupQueue | None] = {}

    def ack(self, receipt: Receipt) -> Ticket | None:
        """As `Popping.ack`."""
        is_returned, number, offset, taken_ms = receipt
        queue = self._queue(is_returned, number)
        if queue is None:
            return None
        return self._settle(queue, (offset,)) if queue.is_out(offset, taken_ms) else self._undecided.find(queue, offset)

    def ack_all(self, receipts: Sequence[Receipt]) -> list[Outcome]:
        """As `ack`, of each. Those of one queue that follow each other are settled together."""
        settled: list[Outcome] = []
        for (is_returned, number), row in groupby(receipts, _QUEUE):
            places = [(offset, taken_ms) for _, _, offset, taken_ms in row]
            try:
                queue = self._queue(is_returned, number)
                settled += [None] * len(places) if queue is None else self._ack_row(queue, places)
            except Refusal as refusal:
                settled += [refusal] * len(places)
        return settled

    def _queue(self, is_returned: bool, number: int) -> GroupQueue | None:
        key = (is_returned, number)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._find(is_returned, number)
        return queue

    def _ack_row(self, queue: GroupQueue, places: Sequence[tuple[int, int]]) -> list[Ticket | None]:
        """Places are offsets, and when the messages there were taken."""
        out: dict[int, None] = {}
        earlier: dict[int, Ticket | None] = {}
        for at, (offset, taken_ms) in enumerate(places):
            if queue.is_out(offset, taken_ms):
                out[offset] = None
            elif offset not in out:
                earlier[at] = self._undecided.find(queue, offset)
        ticket = self._settle(queue, [*out]) if out else None
        if not earlier:
            return [ticket] * len(places)
        return [earlier.get(at, ticket) for at in range(len(places))]
