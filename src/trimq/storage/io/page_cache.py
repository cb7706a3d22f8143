"""What a reader would have to wait for the disk for, and what it will most likely want next."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.errors import ColdRead
from trimq.storage.io.files import File

# At least so many messages, for as many are read at a time, and then up to so much that disks like it.
_LEAST_MESSAGES = 32
_ENOUGH_BYTES = 1 << 20

# Messages that are no farther apart are read together.
_NEAR_BYTES = 128 * 1024


def find_cold(file: File, position: int, length: int) -> ColdRead | None:
    """None: these bytes are in memory."""
    warm = file.begin_warm(position, length)
    return None if warm is None else ColdRead(file.name, position, warm)


def warm_spans(entries: Iterable[tuple[int, int, int]]) -> tuple[list[tuple[int, int]], int]:
    """Where the messages of these entries of a queue stand in the log, those near each other together, and of how many
    of the entries."""
    spans: list[tuple[int, int]] = []
    count = size = 0
    for position, length, _ in entries:
        if count >= _LEAST_MESSAGES and size >= _ENOUGH_BYTES:
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
