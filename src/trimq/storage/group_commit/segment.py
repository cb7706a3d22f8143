"""One file of a journal. Knows the size of its data, never its meaning."""

from __future__ import annotations

from trimq.storage.io.files import File

_LARGEST = (1 << 63) - 1  # largest offset or position that a file holds

_PREALLOCATED_BYTES = 256 * 1024
_PREALLOCATION_UNIT = 4096  # the disk writes multiples of this
_MAX_PREALLOCATED_FILE = 1 << 31  # Apache Kafka opens no larger file, and may be the one to open it after a crash
_MIN_PASSES_PER_PREALLOCATION = 4
_ZEROS = memoryview(bytes(_PREALLOCATED_BYTES + _PREALLOCATION_UNIT))


class Segment:
    """One file of a journal. `base` is the number in its name; `size` is the end of the data, which may be before the
    end of the file."""

    __slots__ = ("_begun_at", "base", "file", "preallocated_to", "size")

    def __init__(self, base: int, file: File, size: int) -> None:
        self.base = base
        self.file = file
        self.size = size
        self.preallocated_to = 0
        """End of the zeros written after the data. There are none if it is before the end of the data."""
        self._begun_at = size

    def preallocation_after(self, position: int, full_bytes: int) -> memoryview:
        """Returns the zeros to write after the data of this pass, which begins at `position`; empty if none.
        `full_bytes`: fixed size of the file; 0 if it grows.

        The sync of a file that has not grown and has no holes need not wait for the file system's own journal, and
        takes half the time. The zeros are as long as the data that this process has appended, up to a limit, so that
        streams with few appends take little disk space. No zeros are written if a few passes would fill them.
        """
        self._begun_at = min(self._begun_at, position)  # the file may have been truncated
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
        """Makes a growing file end with its data. Preallocation starts again from the next appends."""
        if self.preallocated_to > self.size and not full_bytes:
            self.file.resize(self.size)
        self.preallocated_to = 0
        self._begun_at = self.size

    def view(self, position: int, length: int) -> memoryview:
        """Returns up to `length` bytes of data from `position` on, without a copy where that is cheaper."""
        return self.file.view(position, min(length, self.size - position))

    def read(self, position: int, length: int) -> bytes:
        return self.file.read(position, min(length, self.size - position))


def is_zero_filled(view: memoryview) -> bool:
    """Returns whether all bytes are zeros, which no record of any layout is."""
    return not any(
        bytes(view[at : at + _PREALLOCATED_BYTES]).strip(b"\0") for at in range(0, len(view), _PREALLOCATED_BYTES)
    )


def segment_name(base: int, suffix: str) -> str:
    """Returns 20 digits and the suffix, as both Kafka and RocketMQ name their files."""
    return f"{base:020d}{suffix}"


def base_of(name: str, suffix: str) -> int | None:
    """Returns the number in a segment's name, or None if the file is not a segment with this suffix."""
    if not name.endswith(suffix):
        return None
    digits = name[: len(name) - len(suffix)]
    if len(digits) != 20 or not digits.isascii() or not digits.isdigit() or int(digits) > _LARGEST:
        return None
    return int(digits)
