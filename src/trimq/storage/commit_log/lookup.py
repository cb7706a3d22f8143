"""Finds units of the commit log by key, by time and by order. Treats indexes as hints and checks each unit they point
to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.properties import KEYS, UNIQUE_KEY, find_property, java_hash, key_hash, split_keys
from trimq.formats.rocketmq_unit.unit import FILLER_BYTES, Unit, filler_size
from trimq.storage.commit_log.consume_queue import ConsumeQueue
from trimq.storage.commit_log.key_index import KeyIndex
from trimq.storage.commit_log.log import CommitLog

# Limits of work before other tasks get their turn, one or two milliseconds: this many units or bytes.
_UNITS_AT_ONCE = 128
_BYTES_AT_ONCE = 1 << 20


def find_key(log: CommitLog, keys: KeyIndex, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Unit]:
    """Yields the units of a topic that have this key and were stored between these times, newest first."""
    return (unit for unit in search_key(log, keys, topic, key, begin_ms, end_ms) if unit is not None)


def search_key(
    log: CommitLog, keys: KeyIndex, topic: str, key: str, begin_ms: int, end_ms: int
) -> Iterator[Unit | None]:
    """Like `find_key`, but also yields None after a bounded amount of work, so that the caller may pause and continue
    later. The results are the same, except for units deleted in between."""
    seen = set()
    count = size = 0
    for position in keys.find(key_hash(java_hash(f"{topic}#"), key), begin_ms, end_ms):
        if position is None or count >= _UNITS_AT_ONCE or size >= _BYTES_AT_ONCE:
            count = size = 0
            yield None
        if position is None or position in seen:
            continue
        seen.add(position)
        count += 1
        with suppress(OffsetOutOfRange):
            unit = log.unit_at(position)
            size += unit.size
            if begin_ms <= unit.store_ms <= end_ms and _has_key(unit, topic, key):
                yield unit


def _has_key(unit: Unit, topic: str, key: str) -> bool:
    if unit.topic.decode("utf-8", "replace") != topic:
        return False
    keys = split_keys(find_property(unit.properties, KEYS) or "")
    return key in keys or find_property(unit.properties, UNIQUE_KEY) == key


def find_time(log: CommitLog, queue: ConsumeQueue, time_ms: int) -> int:
    """Returns the first offset of a queue stored at or after this time; its durable end if there is none."""
    low, high = queue.start, queue.durable_end
    while low < high:
        middle = (low + high) // 2
        if log.unit_at(queue.entry(middle).position).store_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


def units_between(log: CommitLog, position: int, end: int) -> Iterator[Unit]:
    """Yields the units from a position on. Skips units that are removed in the meantime. Raises OffsetOutOfRange if a
    unit is damaged, or if no unit begins at a position."""
    while (position := max(position, log.start)) < end:
        segment = log.journal.segments[log.journal.find(position)]
        skipped = filler_size(segment.view(position - segment.base, FILLER_BYTES))
        if skipped is not None:
            position += skipped
            continue
        unit = log.unit_at(position)
        yield unit
        position += unit.size
