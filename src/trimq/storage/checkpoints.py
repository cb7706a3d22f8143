"""What a restart may trust without reading it: how far each log is known to be whole, and the checksums of its sealed
segments. Kept in one table for all logs."""

from __future__ import annotations

from typing import NamedTuple

from trimq.storage.passes import Ticket
from trimq.storage.table import Table


class RecoveryPoint(NamedTuple):
    """All before byte `position` of the segment `base` is whole, durable and indexed; `offset` is the next one there.
    `start` is the first offset that may be read; `producers` says how many the snapshot at `offset` holds."""

    offset: int
    base: int
    position: int
    start: int
    producers: int


class SealedMark(NamedTuple):
    """The size of a sealed segment, and the checksum of its whole file once it is known."""

    size: int
    crc: int | None


class Cleaned(NamedTuple):
    """Before `offset` a log is compacted; at `due_ms` the last of its tombstones may go, -1: it has none."""

    offset: int
    due_ms: int


class Checkpoints:
    def __init__(self, table: Table[list[int | None]]) -> None:
        self._table = table

    def point(self, folder: str) -> RecoveryPoint | None:
        value = self._table.get(f"point/{folder}")
        return None if value is None else RecoveryPoint(*value)  # type: ignore[arg-type]

    def save(self, folder: str, point: RecoveryPoint) -> Ticket:
        return self._table.put(f"point/{folder}", list(point))

    def sealed(self, folder: str, base: int) -> SealedMark | None:
        value = self._table.get(f"sealed/{folder}/{base}")
        return None if value is None else SealedMark(*value)  # type: ignore[arg-type]

    def seal(self, folder: str, base: int, mark: SealedMark) -> Ticket:
        return self._table.put(f"sealed/{folder}/{base}", list(mark))

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
        return Cleaned(0, -1) if value is None else Cleaned(*value)  # type: ignore[arg-type]

    def save_cleaned(self, folder: str, cleaned: Cleaned) -> Ticket:
        return self._table.put(f"cleaned/{folder}", list(cleaned))

    def forget(self, folder: str, bases: list[int]) -> None:
        """The log is removed."""
        for key in (f"point/{folder}", f"cleaned/{folder}"):
            if key in self._table:
                self._table.delete(key)
        for base in bases:
            self.forget_sealed(folder, base)
