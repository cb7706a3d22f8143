"""Messages of one segment that have shared bodies (blobs), with the numbers of the blobs. Takes twelve bytes for each;
knows numbers, never the bodies."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from trimq.formats.amqp_content.content import NO_BLOB


class BodyReferences:
    """Messages are numbered from the base of their segment, and must be added in that order."""

    __slots__ = ("_blobs", "_messages")

    def __init__(self) -> None:
        self._messages = array("I")
        self._blobs = array("Q")

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._messages, self._blobs, strict=True)

    def add(self, message: int, blob: int) -> None:
        self._messages.append(message)
        self._blobs.append(blob)

    def blob_of(self, message: int) -> int:
        place = bisect_left(self._messages, message)
        if place < len(self._messages) and self._messages[place] == message:
            return self._blobs[place]
        return NO_BLOB

    def between(self, low: int, high: int) -> list[tuple[int, int]]:
        """Returns message and blob for the messages from `low` up to `high`, exclusive."""
        first, end = bisect_left(self._messages, low), bisect_left(self._messages, high)
        return list(zip(self._messages[first:end], self._blobs[first:end], strict=True))

    def cut(self, length: int) -> None:
        """Keeps only the first `length` references."""
        del self._messages[length:], self._blobs[length:]
