"""The slots of one file of the key index: for each hash the number of its newest entry. Those that have changed are in
memory, and are written stretch by stretch: they lie anywhere, but in a stretch of the table they lie close."""

from __future__ import annotations

from struct import Struct

from trimq.storage.io.files import File

SLOT = Struct(">i")

_SECTIONS = 64

# Of a stretch where fewer slots than one in so many have changed, each is written alone.
_SPARSE = 1024


class KeySlots:
    __slots__ = ("_at", "_count", "_next", "changed", "width")

    def __init__(self, at: int, count: int) -> None:
        """`count` slots, the first of them at the position `at` of the file."""
        self._at = at
        self._count = count
        self.width = -(-count // _SECTIONS)
        self.changed: list[dict[int, int]] = [{} for _ in range(_SECTIONS)]
        """By stretch, each `width` slots long: the newest entries that are not yet in the file, by slot."""
        self._next = 0

    def __len__(self) -> int:
        """How many are not yet written."""
        return sum(map(len, self.changed))

    def unwritten(self, slot: int) -> int | None:
        """The newest entry, unless that is in the file."""
        return self.changed[slot // self.width].get(slot)

    def read(self, file: File, slot: int) -> int:
        """What the file says."""
        number: int
        (number,) = SLOT.unpack(file.read(self._at + slot * SLOT.size, SLOT.size))
        return number

    def stored(self, file: File) -> memoryview:
        """What the file says of all of them."""
        return file.view(self._at, self._count * SLOT.size)

    def change(self, heads: dict[int, int]) -> None:
        changed, width = self.changed, self.width
        for slot, number in heads.items():
            changed[slot // width][slot] = number

    def write(self, file: File) -> None:
        """Write all that have changed. OSError: what was not written is kept."""
        for number in range(_SECTIONS):
            self._write_stretch(file, number)

    def write_some(self, file: File) -> None:
        """Write those of the stretch whose turn it is."""
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
