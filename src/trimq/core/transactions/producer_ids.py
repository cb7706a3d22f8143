"""Producer ids, each allocated once. Reserved in blocks, so that not every producer costs a write."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from trimq.core.metadata.durable_map import DurableMap
from trimq.storage.group_commit.passes import Ticket

_KEY = "next producer id"
_BLOCK = 1_000


class AllocatedProducerId(NamedTuple):
    """The id must not be sent to a client before the ticket's pass is durable; without a ticket it may be sent at
    once."""

    id: int
    ticket: Ticket | None


class ProducerIds:
    """`floor`: ids below it are known to be in use, even if the table does not contain them."""

    def __init__(self, table: DurableMap[str | int], floor: int = 0) -> None:
        self._table = table
        self._floor = floor
        self._ticket: Ticket | None = None
        self._next = self._end = self._reserved()
        table.on_undone(self._rolled_back)

    def next(self) -> AllocatedProducerId:
        if self._next == self._end:
            self._ticket = self._table.put(_KEY, self._end + _BLOCK)
            self._end += _BLOCK
        id, self._next = self._next, self._next + 1
        return AllocatedProducerId(id, self._ticket)

    def _reserved(self) -> int:
        """Returns the end of the last block. The rest of that block is skipped: an earlier run may have allocated
        it."""
        reserved = self._table.get(_KEY)
        return max(reserved if isinstance(reserved, int) else 0, self._floor)

    def _rolled_back(self, keys: Collection[str]) -> None:
        if _KEY in keys:
            # No client has received an id of the refused block.
            self._next = self._end = self._reserved()
            self._ticket = None
