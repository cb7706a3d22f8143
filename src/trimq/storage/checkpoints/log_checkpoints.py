"""Log checkpoints: the part of each log that a restart can trust without reading it, and the checksums of sealed
segments. One table for all logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from trimq.storage.checkpoints.leader_epochs import EpochStart
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.tables.table import Table


class IndexSums(NamedTuple):
    """Number of entries in the files of a segment's offset, time and aborted-transaction index, and their checksums.
    Kafka's formats have no checksums, so a flipped bit would go unnoticed."""

    offsets: int = 0
    offsets_crc: int = 0
    times: int = 0
    times_crc: int = 0
    aborted: int = 0
    aborted_crc: int = 0
    newest_ms: int = -1
    """Newest timestamp of the records."""


class RecoveryPoint(NamedTuple):
    """All bytes before `position` of the segment `base` are whole, durable and indexed; `offset` is the next offset
    there. `start` is the first readable offset; `producers` is the number of producers in the snapshot at `offset`, -1
    if unknown; `sums` describes the index files of the segment."""

    offset: int
    base: int
    position: int
    start: int
    producers: int
    sums: IndexSums | None = None


class SealedMark(NamedTuple):
    """Size of a sealed segment, the checksum of its whole file once known, and the checksums of its indexes."""

    size: int
    crc: int | None
    sums: IndexSums | None = None


class CleanerCheckpoint(NamedTuple):
    """A log is compacted up to `offset`. At `due_ms` its last tombstone may be removed; -1 if it has none."""

    offset: int
    due_ms: int


class Checkpoints:
    """Checkpoints by folder. Several topics may have used a folder one after the other: only checkpoints of the current
    topic are returned. Those of an earlier topic remain until they can be deleted, which a full disk delays for
    example."""

    def __init__(self, table: Table[list[Any]]) -> None:
        self._table = table
        self._owners: dict[str, str] = {}
        self._marked: dict[str, set[int]] = {}
        for key in table:
            if key.startswith("sealed/"):
                folder, _, base = key.removeprefix("sealed/").rpartition("/")
                self._marked.setdefault(folder, set()).add(int(base))

    # -- owners of the folders

    def take(self, folder: str, owner: UUID) -> None:
        """Registers the topic `owner` as the owner of this folder from now on."""
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

    # -- recovery points

    def point(self, folder: str) -> RecoveryPoint | None:
        value = self._get(f"point/{folder}", folder)
        if value is None:
            return None
        offset, base, position, start, producers, *sums = value
        return RecoveryPoint(offset, base, position, start, producers, _index_sums(sums))

    def save(self, folder: str, point: RecoveryPoint) -> Ticket:
        return self._put(f"point/{folder}", folder, [*point[:5], *(point.sums or ())])

    def epochs(self, folder: str) -> list[EpochStart] | None:
        """Returns the leader epochs of the records before the point, or None if they were never saved."""
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
        """Returns the bases of the sealed segments."""
        return sorted(base for base in self._marked.get(folder, ()) if self.sealed(folder, base) is not None)

    def seal(self, folder: str, base: int, mark: SealedMark) -> Ticket:
        ticket = self._put(f"sealed/{folder}/{base}", folder, [mark.size, mark.crc, *(mark.sums or ())])
        self._marked.setdefault(folder, set()).add(base)
        return ticket

    def forget_sealed(self, folder: str, base: int) -> None:
        if self.sealed(folder, base) is not None:
            self._table.delete(f"sealed/{folder}/{base}")

    def forget_marks(self, folder: str, bases: list[int]) -> Ticket:
        """Deletes the marks of these segments. When the ticket is durable, everything saved before is too."""
        for base in bases:
            self.forget_sealed(folder, base)
        return self._table.delete(f"sealed/{folder}/{bases[0]}")

    # -- removed logs

    def knows(self, folder: str) -> bool:
        """Returns whether any topic, current or earlier, has saved anything for this folder."""
        kinds = ("owner", "point", "epochs", "cleaned")
        marks = (f"sealed/{folder}/{base}" in self._table for base in self._marked.get(folder, ()))
        return any(f"{kind}/{folder}" in self._table for kind in kinds) or any(marks)

    def forget(self, folder: str) -> Ticket:
        """Deletes everything saved for a removed log; durable with the ticket."""
        self._owners.pop(folder, None)
        for base in self.marked(folder):
            self.forget_sealed(folder, base)
        for kind in ("point", "epochs", "cleaned"):
            self._table.delete(f"{kind}/{folder}")
        return self._table.delete(f"owner/{folder}")


def _index_sums(numbers: list[int]) -> IndexSums | None:
    return IndexSums(*numbers) if numbers else None
