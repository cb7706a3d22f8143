"""What a restart may trust without reading it: how far each log is known to be whole, and the checksums of its sealed
segments. Kept in one table for all logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from trimq.storage.checkpoints.leader_epochs import EpochStart
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.tables.table import Table


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


class CleanerCheckpoint(NamedTuple):
    """Before `offset` a log is compacted; at `due_ms` the last of its tombstones may go, -1: it has none."""

    offset: int
    due_ms: int


class Checkpoints:
    """By folders, which several topics may have had one after the other: only what was saved of the present one is
    told. What was saved of an earlier one is there as long as it could not be deleted, on a full disk for example."""

    def __init__(self, table: Table[list[Any]]) -> None:
        self._table = table
        self._owners: dict[str, str] = {}
        self._marked: dict[str, set[int]] = {}
        for key in table:
            if key.startswith("sealed/"):
                folder, _, base = key.removeprefix("sealed/").rpartition("/")
                self._marked.setdefault(folder, set()).add(int(base))

    # -- whose they are

    def take(self, folder: str, owner: UUID) -> None:
        """From now on the log in this folder is that of the topic `owner`."""
        self._owners[folder] = owner.hex

    def _is_stale(self, folder: str) -> bool:
        owner, saved = self._owners.get(folder), self._table.get(f"owner/{folder}")
        return owner is not None and saved is not None and saved != [owner]

    def _get(self, key: str, folder: str) -> list[Any] | None:
        value = self._table.get(key)
        return None if value is None or self._is_stale(folder) else value

    def _put(self, key: str, folder: str, value: list[Any]) -> Ticket:
        owner = self._owners.get(folder)
        if owner is not None and self._table.get(f"owner/{folder}") != [owner]:
            if self._is_stale(folder):
                self.forget(folder)
                self._owners[folder] = owner
            self._table.put(f"owner/{folder}", [owner])
        return self._table.put(key, value)

    # -- how far each log is known to be whole

    def point(self, folder: str) -> RecoveryPoint | None:
        value = self._get(f"point/{folder}", folder)
        if value is None:
            return None
        offset, base, position, start, producers, *sums = value
        return RecoveryPoint(offset, base, position, start, producers, _index_sums(sums))

    def save(self, folder: str, point: RecoveryPoint) -> Ticket:
        return self._put(f"point/{folder}", folder, [*point[:5], *(point.sums or ())])

    def epochs(self, folder: str) -> list[EpochStart] | None:
        """The leader epochs of the records before the point; None: they were never saved."""
        value = self._get(f"epochs/{folder}", folder)
        return None if value is None else [EpochStart(epoch, offset) for epoch, offset in value]

    def save_epochs(self, folder: str, epochs: Sequence[EpochStart]) -> Ticket:
        return self._put(f"epochs/{folder}", folder, [list(start) for start in epochs])

    def cleaned(self, folder: str) -> CleanerCheckpoint:
        value = self._get(f"cleaned/{folder}", folder)
        return CleanerCheckpoint(0, -1) if value is None else CleanerCheckpoint(*value)

    def save_cleaned(self, folder: str, cleaned: CleanerCheckpoint) -> Ticket:
        return self._put(f"cleaned/{folder}", folder, list(cleaned))

    # -- sealed segments

    def sealed(self, folder: str, base: int) -> SealedMark | None:
        value = self._get(f"sealed/{folder}/{base}", folder)
        return None if value is None else SealedMark(value[0], value[1], _index_sums(value[2:]))

    def marked(self, folder: str) -> list[int]:
        """The bases of the segments that were sealed."""
        return sorted(base for base in self._marked.get(folder, ()) if self.sealed(folder, base) is not None)

    def seal(self, folder: str, base: int, mark: SealedMark) -> Ticket:
        ticket = self._put(f"sealed/{folder}/{base}", folder, [mark.size, mark.crc, *(mark.sums or ())])
        self._marked.setdefault(folder, set()).add(base)
        return ticket

    def forget_sealed(self, folder: str, base: int) -> None:
        if self.sealed(folder, base) is not None:
            self._table.delete(f"sealed/{folder}/{base}")

    def forget_marks(self, folder: str, bases: list[int]) -> Ticket:
        """Expect no sizes of these segments any more. With its ticket, all that was saved before is durable."""
        for base in bases:
            self.forget_sealed(folder, base)
        return self._table.delete(f"sealed/{folder}/{bases[0]}")

    # -- logs that go

    def knows(self, folder: str) -> bool:
        """Whether anything was saved of this folder, by whomever."""
        kinds = ("owner", "point", "epochs", "cleaned")
        marks = (f"sealed/{folder}/{base}" in self._table for base in self._marked.get(folder, ()))
        return any(f"{kind}/{folder}" in self._table for kind in kinds) or any(marks)

    def forget(self, folder: str) -> Ticket:
        """The log is removed. With the ticket, all that was saved of it is gone."""
        self._owners.pop(folder, None)
        for base in self.marked(folder):
            self.forget_sealed(folder, base)
        for kind in ("point", "epochs", "cleaned"):
            self._table.delete(f"{kind}/{folder}")
        return self._table.delete(f"owner/{folder}")


def _index_sums(numbers: list[int]) -> IndexSums | None:
    return IndexSums(*numbers) if numbers else None
