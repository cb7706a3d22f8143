"""What a restart may trust without reading it: how far each log is known to be whole, and the checksums of its sealed
segments. Kept in one table for all logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trimq.storage.epoch_checkpoint import EpochStart
from trimq.storage.passes import Ticket
from trimq.storage.table import Table


class IndexSums(NamedTuple):
    """How many entries of a segment's offset, time and transaction index are in their files, and the checksums of
    those: Kafka's formats have none, and a flipped bit in them would be believed."""

    offsets: int = 0
    offsets_crc: int = 0
    times: int = 0
    times_crc: int = 0
    aborted: int = 0
    aborted_crc: int = 0
    newest_ms: int = -1
    """The newest time of the records."""


class RecoveryPoint(NamedTuple):
    """All before byte `position` of the segment `base` is whole, durable and indexed; `offset` is the next one there.
    `start` is the first offset that may be read; `producers` says how many the snapshot at `offset` holds, -1: nobody
    knows; `sums` is what the index files of the segment hold of it."""

    offset: int
    base: int
    position: int
    start: int
    producers: int
    sums: IndexSums | None = None


class SealedMark(NamedTuple):
    """The size of a sealed segment, the checksum of its whole file once it is known, and those of its indexes."""

    size: int
    crc: int | None
    sums: IndexSums | None = None


class Cleaned(NamedTuple):
    """Before `offset` a log is compacted; at `due_ms` the last of its tombstones may go, -1: it has none."""

    offset: int
    due_ms: int


class Checkpoints:
    def __init__(self, table: Table[list[Any]]) -> None:
        self._table = table
        self._marked: dict[str, set[int]] = {}
        for key in table:
            if key.startswith("sealed/"):
                folder, _, base = key.removeprefix("sealed/").rpartition("/")
                self._marked.setdefault(folder, set()).add(int(base))

    def point(self, folder: str) -> RecoveryPoint | None:
        value = self._table.get(f"point/{folder}")
        if value is None:
            return None
        offset, base, position, start, producers, *sums = value
        return RecoveryPoint(offset, base, position, start, producers, _index_sums(sums))

    def save(self, folder: str, point: RecoveryPoint) -> Ticket:
        return self._table.put(f"point/{folder}", [*point[:5], *(point.sums or ())])

    def epochs(self, folder: str) -> list[EpochStart] | None:
        """The leader epochs of the records before the point; None: they were never saved."""
        value = self._table.get(f"epochs/{folder}")
        return None if value is None else [EpochStart(epoch, offset) for epoch, offset in value]

    def save_epochs(self, folder: str, epochs: Sequence[EpochStart]) -> Ticket:
        return self._table.put(f"epochs/{folder}", [list(start) for start in epochs])

    def sealed(self, folder: str, base: int) -> SealedMark | None:
        value = self._table.get(f"sealed/{folder}/{base}")
        return None if value is None else SealedMark(value[0], value[1], _index_sums(value[2:]))

    def marked(self, folder: str) -> list[int]:
        """The bases of the segments that were sealed."""
        return sorted(base for base in self._marked.get(folder, ()) if self.sealed(folder, base) is not None)

    def seal(self, folder: str, base: int, mark: SealedMark) -> Ticket:
        self._marked.setdefault(folder, set()).add(base)
        return self._table.put(f"sealed/{folder}/{base}", [mark.size, mark.crc, *(mark.sums or ())])

    def forget_sealed(self, folder: str, base: int) -> None:
        if self.sealed(folder, base) is not None:
            self._table.delete(f"sealed/{folder}/{base}")

    def forget_marks(self, folder: str, bases: list[int]) -> Ticket:
        """Expect no sizes of these segments any more. With its ticket, all that was saved before is durable."""
        for base in bases:
            self.forget_sealed(folder, base)
        return self._table.delete(f"sealed/{folder}/{bases[0]}")

    def cleaned(self, folder: str) -> Cleaned:
        value = self._table.get(f"cleaned/{folder}")
        return Cleaned(0, -1) if value is None else Cleaned(*value)

    def save_cleaned(self, folder: str, cleaned: Cleaned) -> Ticket:
        return self._table.put(f"cleaned/{folder}", list(cleaned))

    def knows(self, folder: str) -> bool:
        """Whether anything was saved of this log."""
        kinds = ("point", "epochs", "cleaned")
        return any(f"{kind}/{folder}" in self._table for kind in kinds) or bool(self.marked(folder))

    def forget(self, folder: str) -> Ticket:
        """The log is removed. With the ticket, all that was saved of it is gone."""
        for base in self.marked(folder):
            self.forget_sealed(folder, base)
        for kind in ("point", "epochs"):
            self._table.delete(f"{kind}/{folder}")
        return self._table.delete(f"cleaned/{folder}")


def _index_sums(numbers: list[int]) -> IndexSums | None:
    return IndexSums(*numbers) if numbers else None
