"""One file of a journal. Knows how much of it is data, never what the data means."""

from __future__ import annotations

from trimq.storage.io.files import File

_LARGEST = (1 << 63) - 1  # that a file holds as an offset or a position

_PREALLOCATED_BYTES = 256 * 1024
_PREALLOCATION_UNIT = 4096  # and multiples of it: what the disk writes at once
_MAX_PREALLOCATED_FILE = 1 << 31  # Kafka opens no longer file, and may be the one that finds it after a crash
_MIN_PASSES_PER_PREALLOCATION = 4
_ZEROS = memoryview(bytes(_PREALLOCATED_BYTES + _PREALLOCATION_UNIT))


class Segment:
    """`base` is the number in its name; `size` is the end of the data, which need not be the end of the file."""

    __slots__ = ("_begun_at", "base", "file", "preallocated_to", "size")

    def __init__(self, base: int, file: File, size: int) -> None:
        self.base = base
        self.file = file
        self.size = size
        self.preallocated_to = 0
        """Where the zeros end that were written behind the data. Before the end of the data: there are none."""
        self._begun_at = size

    def preallocation_after(self, position: int, full_bytes: int) -> memoryview:
        """The zeros to be written behind the data, of which this pass writes what is after `position`; empty: none.
        `full_bytes`: the file has this size already; 0: it grows.

        A sync of a file that has not grown and has no holes need not wait for the file system's own journal, and takes
        half the time. There is as much room as this process has appended, up to a limit: so a stream that few append to
        takes little of the disk. Where a few passes fill it, it is not worth while.
        """
        self._begun_at = min(self._begun_at, position)  # what was there may have been cut
        room = min(self.size - self._begun_at, _PREALLOCATED_BYTES)
        if not room or room < _MIN_PASSES_PER_PREALLOCATION * (self.size - position):
            return _ZEROS[:0]
        preallocated_to = -(-(self.size + room) // _PREALLOCATION_UNIT) * _PREALLOCATION_UNIT
        if full_bytes:
            preallocated_to = min(preallocated_to, full_bytes)
        elif preallocated_to >= _MAX_PREALLOCATED_FILE:
            return _ZEROS[:0]
        self.preallocated_to = preallocated_to
        return _ZEROS[: self.preallocated_to - self.size]

    def trim_preallocation(self, full_bytes: int) -> None:
        """A file that grows ends with its data, and gets no more room before more is appended."""
        if self.preallocated_to > self.size and not full_bytes:
            self.file.resize(self.size)
        self.preallocated_to = 0
        self._begun_at = self.size

    def view(self, position: int, length: int) -> memoryview:
        """Up to `length` bytes of data from `position` on, without a copy where that is cheaper."""
        return self.file.view(position, min(length, self.size - position))

    def read(self, position: int, length: int) -> bytes:
        return self.file.read(position, min(length, self.size - position))


def is_zero_filled(view: memoryview) -> bool:
    """Whether there are only zeros: no record looks so, whatever the layout."""
    return not any(
        bytes(view[at : at + _PREALLOCATED_BYTES]).strip(b"\0") for at in range(0, len(view), _PREALLOCATED_BYTES)
    )


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
