"""Checkpoint of the commit log: the part that a restart can trust without reading it, and the state of the queue and
key index files at that point. Stored in a table of its own, since RocketMQ's `checkpoint` file holds times only."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, NamedTuple

from trimq.storage.commit_log.consume_queue import ConsumeQueue, ConsumeQueueState
from trimq.storage.commit_log.key_index import KeyIndexState
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.tables.table import Table

_POINT = "point"
_INDEX = "index"
_QUEUE = "queue/"
_DROPPED = "dropped/"

_TIMES = Struct(">qqqqq")
FILE_BYTES = 4096


class CommitPoint(NamedTuple):
    """All bytes before `position` are whole, durable, and entered in the queues and the key index. `start` is the first
    byte of the log."""

    position: int = 0
    start: int = 0
    store_ms: int = 0


class PendingCheckpoint:
    """Contents of a checkpoint that is being written."""

    __slots__ = ("indexes", "point", "queues", "states")

    def __init__(self, point: CommitPoint, indexes: list[KeyIndexState], queues: list[ConsumeQueue]) -> None:
        self.point = point
        self.indexes = indexes
        self.queues = queues
        self.states = [
            (queue.topic, queue.number, ConsumeQueueState(queue.start, queue.stored_end)) for queue in queues
        ]


class CommitCheckpoints:
    def __init__(self, table: Table[list[Any]]) -> None:
        self._table = table

    def point(self) -> CommitPoint:
        value = self._table.get(_POINT)
        return CommitPoint() if value is None else CommitPoint(*value)

    def is_empty(self) -> bool:
        """Returns whether no checkpoint was ever made: the log is new, or another program wrote it."""
        return self._table.get(_POINT) is None

    def indexes(self) -> list[KeyIndexState]:
        return [KeyIndexState(*state) for state in self._table.get(_INDEX) or []]

    def queue(self, topic: str, number: int) -> ConsumeQueueState | None:
        value = self._table.get(f"{_QUEUE}{topic}/{number}")
        return None if value is None else ConsumeQueueState(*value)

    def queues(self) -> list[tuple[str, int]]:
        """Returns topic and number of each queue that has a state."""
        names = [key.removeprefix(_QUEUE).rpartition("/") for key in self._table if key.startswith(_QUEUE)]
        return [(topic, int(number)) for topic, _, number in names]

    def dropped(self) -> dict[str, int]:
        """Returns for each deleted topic the end of its units. A topic created again under the same name does not own
        them."""
        rows = [(key, self._table.get(key)) for key in self._table if key.startswith(_DROPPED)]
        return {key.removeprefix(_DROPPED): row[0] for key, row in rows if row is not None}

    def save(
        self, point: CommitPoint, indexes: Iterable[KeyIndexState], queues: Iterable[tuple[str, int, ConsumeQueueState]]
    ) -> Ticket:
        """Saves the states before the point that relies on them: a crash may keep only the first ones."""
        for topic, number, state in queues:
            self._table.put(f"{_QUEUE}{topic}/{number}", list(state))
        self._table.put(_INDEX, [list(state) for state in indexes])
        for topic, position in self.dropped().items():
            if position <= point.position:
                self._table.delete(f"{_DROPPED}{topic}")
        return self._table.put(_POINT, list(point))

    def drop(self, topic: str, position: int) -> Ticket:
        for found, number in self.queues():
            if found == topic:
                self._table.delete(f"{_QUEUE}{topic}/{number}")
        return self._table.put(f"{_DROPPED}{topic}", [position])


def format_times(store_ms: int, position: int) -> bytes:
    """Returns the contents of the file `checkpoint`: the time up to which the log, the queues and the key index are on
    disk."""
    return _TIMES.pack(store_ms, store_ms, store_ms, 0, position).ljust(FILE_BYTES, b"\x00")
