"""Receipts that come together: the message that is out under each is settled, and its queue is looked up once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trimq.core.taken import GroupQueue
from trimq.storage.passes import Ticket

if TYPE_CHECKING:
    from trimq.core.popping import Receipt


class Settler:
    """Of one topic, for one group. `find` tells the queue of a receipt, `settle` ends what is out."""

    __slots__ = ("_find", "_queues", "_settle")

    def __init__(
        self, find: Callable[[Receipt], GroupQueue | None], settle: Callable[[GroupQueue, int], Ticket]
    ) -> None:
        self._find = find
        self._settle = settle
        self._queues: dict[tuple[bool, int], GroupQueue | None] = {}

    def ack(self, receipt: Receipt) -> Ticket | None:
        """As `Popping.ack`."""
        is_returned, number, offset, taken_ms = receipt
        key = (is_returned, number)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._find(receipt)
        return self._settle(queue, offset) if queue is not None and queue.is_out(offset, taken_ms) else None
