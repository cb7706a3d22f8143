"""One file of a journal. Knows how much of it is data, never what the data means."""

from __future__ import annotations

from trimq.storage.files import File

_LARGEST = (1 << 63) - 1  # that a file holds as an offset or a position


class Segment:
    """`base` is the number in its name; `size` is the end of the data, which need not be the end of the file."""

    __slots__ = ("base", "file", "size")

    def __init__(self, base: int, file: File, size: int) -> None:
        self.base = base
        self.file = file
        self.size = size

    def view(self, position: int, length: int) -> memoryview:
        """Up to `length` bytes of data from `position` on, without a copy where that is cheaper."""
        return self.file.view(position, min(length, self.size - position))

    def read(self, position: int, length: int) -> bytes:
        return self.file.read(position, min(length, self.size - position))


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
