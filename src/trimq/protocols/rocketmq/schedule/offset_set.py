"""Set of nearby offsets: one byte each, with a fast search for the next member or gap."""

from __future__ import annotations

# The start is trimmed only in chunks of this size, since each trim moves the rest.
_FORGOTTEN_AT_ONCE = 1 << 16

_IN, _OUT = b"\x01", b"\x00"


class OffsetSet:
    """Set of offsets from `begin` on. Callers never ask for earlier ones."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        self._marks = bytearray()

    def add(self, offset: int) -> None:
        at = offset - self._begin
        if at == len(self._marks):
            self._marks.append(1)
            return
        if at > len(self._marks):
            self._marks.extend(bytes(at + 1 - len(self._marks)))
        self._marks[at] = 1

    def __contains__(self, offset: int) -> bool:
        at = offset - self._begin
        return 0 <= at < len(self._marks) and self._marks[at] == 1

    def __len__(self) -> int:
        return self._marks.count(_IN)

    def first(self, offset: int, end: int) -> int:
        """First member from `offset` on; `end` if there is none before it."""
        at = self._marks.find(_IN, max(offset - self._begin, 0), max(end - self._begin, 0))
        return end if at < 0 else self._begin + at

    def first_gap(self, offset: int) -> int:
        """First offset from this one on that is not a member."""
        at = self._marks.find(_OUT, offset - self._begin)
        return max(offset, self._begin + (len(self._marks) if at < 0 else at))

    def forget_before(self, offset: int) -> None:
        if offset - self._begin >= _FORGOTTEN_AT_ONCE:
            del self._marks[: offset - self._begin]
            self._begin = offset

    def clear(self) -> None:
        self._marks.clear()
