"""Finds units of the commit log by key, by time and by order. Indexes are hints: what they lead to is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from trimq.errors import OffsetOutOfRange
from trimq.formats.unit import FILLER_BYTES, Unit, filler_size
from trimq.formats.unit_properties import KEYS, UNIQUE_KEY, find_property, java_hash, key_hash, split_keys
from trimq.storage.commit_log import CommitLog
from trimq.storage.consume_queue import ConsumeQueue
from trimq.storage.key_index import KeyIndex


def find_key(log: CommitLog, keys: KeyIndex, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Unit]:
    """The units of a topic that have this key and were stored between these times, newest first."""
    seen = set()
    for position in keys.find(key_hash(java_hash(f"{topic}#"), key), begin_ms, end_ms):
        if position in seen:
            continue
        seen.add(position)
        with suppress(OffsetOutOfRange):
            unit = log.unit_at(position)
            if begin_ms <= unit.store_ms <= end_ms and _has_key(unit, topic, key):
                yield unit


def _has_key(unit: Unit, topic: str, key: str) -> bool:
    if unit.topic.decode("utf-8", "replace") != topic:
        return False
    keys = split_keys(find_property(unit.properties, KEYS) or "")
    return key in keys or find_property(unit.properties, UNIQUE_KEY) == key


def find_time(log: CommitLog, queue: ConsumeQueue, time_ms: int) -> int:
    """The first offset of a queue that was not stored before this time; its durable end if there is none."""
    low, high = queue.start, queue.durable_end
    while low < high:
        middle = (low + high) // 2
        if log.unit_at(queue.entry(middle).position).store_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


def units_between(log: CommitLog, position: int, end: int) -> Iterator[Unit]:
    """The units from a position on, one after the other. Those that go meanwhile are passed over. OffsetOutOfRange: one
    is damaged, or what begins there is none."""
    while (position := max(position, log.start)) < end:
        segment = log.journal.segments[log.journal.find(position)]
        skipped = filler_size(segment.view(position - segment.base, FILLER_BYTES))
        if skipped is not None:
            position += skipped
            continue
        unit = log.unit_at(position)
        yield unit
        position += unit.size
