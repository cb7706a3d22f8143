"""One file of a journal. Knows how much of it is data, never what the data means."""

from __future__ import annotations

from trimq.storage.io.files import File

_LARGEST = (1 << 63) - 1  # that a file holds as an offset or a position

_ROOM_BYTES = 256 * 1024
_ROOM_ENDS_AT = 4096  # and multiples of it: what the disk writes at once
_ROOM_ENDS_BEFORE = 1 << 31  # Kafka opens no longer file, and may be the one that finds it after a crash
_PASSES_PER_ROOM = 4
_ZEROS = memoryview(bytes(_ROOM_BYTES + _ROOM_ENDS_AT))


class Segment:
    """`base` is the number in its name; `size` is the end of the data, which need not be the end of the file."""

    __slots__ = ("_begun_at", "base", "file", "room_to", "size")

    def __init__(self, base: int, file: File, size: int) -> None:
        self.base = base
        self.file = file
        self.size = size
        self.room_to = 0
        """Where the zeros end that were written behind the data. Before the end of the data: there are none."""
        self._begun_at = size

    def room_after(self, position: int, full_bytes: int) -> memoryview:
        """The zeros to be written behind the data, of which this pass writes what is after `position`; empty: none.
        `full_bytes`: the file has this size already; 0: it grows.

        A sync of a file that has not grown and has no holes need not wait for the file system's own journal, and takes
        half the time. There is as much room as this process has appended, up to a limit: so a stream that few append to
        takes little of the disk. Where a few passes fill it, it is not worth while.
        """
        self._begun_at = min(self._begun_at, position)  # what was there may have been cut
        room = min(self.size - self._begun_at, _ROOM_BYTES)
        if not room or room < _PASSES_PER_ROOM * (self.size - position):
            return _ZEROS[:0]
        room_to = -(-(self.size + room) // _ROOM_ENDS_AT) * _ROOM_ENDS_AT
        if full_bytes:
            room_to = min(room_to, full_bytes)
        elif room_to >= _ROOM_ENDS_BEFORE:
            return _ZEROS[:0]
        self.room_to = room_to
        return _ZEROS[: self.room_to - self.size]

    def give_back_room(self, full_bytes: int) -> None:
        """A file that grows ends with its data, and gets no more room before more is appended."""
        if self.room_to > self.size and not full_bytes:
            self.file.resize(self.size)
        self.room_to = 0
        self._begun_at = self.size

    def view(self, position: int, length: int) -> memoryview:
        """Up to `length` bytes of data from `position` on, without a copy where that is cheaper."""
        return self.file.view(position, min(length, self.size - position))

    def read(self, position: int, length: int) -> bytes:
        return self.file.read(position, min(length, self.size - position))


def is_room(view: memoryview) -> bool:
    """Whether there are only zeros: no record looks so, whatever the layout."""
    return not any(bytes(view[at : at + _ROOM_BYTES]).strip(b"\0") for at in range(0, len(view), _ROOM_BYTES))


def segment_name(base: int, suffix: str) -> str:
    """Twenty digits, as both Kafka and RocketMQ name their files."""
    return f"{base:020d}{suffix}"


def base_of(name: str, suffix: str) -> int | None:
    """The number in a segment's name; None for a file that is no segment of this suffix."""
    if not name.endswith(suffix):
        return None
    digits = name[: len(name) - len(suffix)]
    if len(digits) != 20 or not digits.isascii() or not digits.isdigit() or int(digits) > _LARGEST:
        return None
    return int(digits)
