"""Slots of one key index file: for each hash slot the number of its newest entry. Changed slots are kept in memory and
written section by section: they are scattered over the table, but close together within a section."""

from __future__ import annotations

from struct import Struct

from trimq.storage.io.files import File

SLOT = Struct(">i")

_SECTIONS = 64

# If fewer than one in this many slots of a section have changed, each is written separately.
_SPARSE = 1024


class KeySlots:
    __slots__ = ("_at", "_count", "_next", "changed", "width")

    def __init__(self, at: int, count: int) -> None:
        """`count`: number of slots. `at`: position of the first slot in the file."""
        self._at = at
        self._count = count
        self.width = -(-count // _SECTIONS)
        self.changed: list[dict[int, int]] = [{} for _ in range(_SECTIONS)]
        """Per section of `width` slots: the newest entries that are not in the file yet, by slot."""
        self._next = 0

    def __len__(self) -> int:
        """Number of unwritten slots."""
        return sum(map(len, self.changed))

    def unwritten(self, slot: int) -> int | None:
        """Returns the newest entry if it is not in the file yet."""
        return self.changed[slot // self.width].get(slot)

    def read(self, file: File, slot: int) -> int:
        """Returns the entry stored in the file."""
        number: int
        (number,) = SLOT.unpack(file.read(self._at + slot * SLOT.size, SLOT.size))
        return number

    def stored(self, file: File) -> memoryview:
        """Returns the entries of all slots as stored in the file."""
        return file.view(self._at, self._count * SLOT.size)

    def change(self, heads: dict[int, int]) -> None:
        changed, width = self.changed, self.width
        for slot, number in heads.items():
            changed[slot // width][slot] = number

    def write(self, file: File) -> None:
        """Writes all changed slots. After an OSError the unwritten ones are kept."""
        for number in range(_SECTIONS):
            self._write_stretch(file, number)

    def write_some(self, file: File) -> None:
        """Writes the changed slots of the next section, in rotation."""
        self._write_stretch(file, self._next)
        self._next = (self._next + 1) % _SECTIONS

    def _write_stretch(self, file: File, number: int) -> None:
        changed, pack_into = self.changed[number], SLOT.pack_into
        first = number * self.width
        width = min(self.width, self._count - first)
        if len(changed) * _SPARSE < width:
            for slot, head in changed.items():
                file.write(self._at + slot * SLOT.size, [SLOT.pack(head)])
        elif changed:
            at = self._at + first * SLOT.size
            table = bytearray(file.view(at, width * SLOT.size))
            for slot, head in changed.items():
                pack_into(table, (slot - first) * SLOT.size, head)
            file.write(at, [table])
        self.changed[number] = {}
