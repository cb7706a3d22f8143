"""A set of offsets that stand close together: a byte each, and the next that is in it, or is not, found at once."""

from __future__ import annotations

# The head is let go when it is so long: each time would move the rest.
_FORGOTTEN_AT_ONCE = 1 << 16

_IN, _OUT = b"\x01", b"\x00"


class OffsetSet:
    """None before `begin` is ever asked for."""

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
        """The first of them from `offset` on; `end`: there is none before it."""
        at = self._marks.find(_IN, max(offset - self._begin, 0), max(end - self._begin, 0))
        return end if at < 0 else self._begin + at

    def first_gap(self, offset: int) -> int:
        """The first offset from this one on that is not one of them."""
        at = self._marks.find(_OUT, offset - self._begin)
        return max(offset, self._begin + (len(self._marks) if at < 0 else at))

    def forget_before(self, offset: int) -> None:
        if offset - self._begin >= _FORGOTTEN_AT_ONCE:
            del self._marks[: offset - self._begin]
            self._begin = offset

    def clear(self) -> None:
        self._marks.clear()
