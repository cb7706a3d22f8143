"""Finds reads that would have to wait for the disk, and spans of the log to read ahead. Knows positions, never
messages."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.errors import ColdRead
from trimq.storage.io.files import File

# Reads ahead at least this many messages, the size of a usual fetch, and continues up to a size that disks read
# efficiently.
_MIN_MESSAGES = 32
_ENOUGH_BYTES = 1 << 20

# Messages no farther apart than this are read together.
_NEAR_BYTES = 128 * 1024


def find_cold(file: File, position: int, length: int) -> ColdRead | None:
    """Returns None if these bytes are in the page cache."""
    warm = file.begin_warm(position, length)
    return None if warm is None else ColdRead(file.name, position, warm)


def warm_spans(entries: Iterable[tuple[int, int, int]]) -> tuple[list[tuple[int, int]], int]:
    """Returns the spans of the log that hold the messages of these queue entries, and the number of entries covered.
    Joins spans that are near each other."""
    spans: list[tuple[int, int]] = []
    count = size = 0
    for position, length, _ in entries:
        if count >= _MIN_MESSAGES and size >= _ENOUGH_BYTES:
            break
        end = position + length
        if spans and 0 <= position - spans[-1][1] <= _NEAR_BYTES:
            size += end - spans[-1][1]
            spans[-1] = spans[-1][0], end
        else:
            size += length
            spans.append((position, end))
        count += 1
    return spans, count
