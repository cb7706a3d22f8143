"""Searches the messages of a topic by tag. Messages have no index by tag: reads the consume queues, whose entries hold
the hash of the tag, and then the messages with this hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import merge
from math import inf
from operator import itemgetter

from trimq.core.commit_log.stream import MessageQueue
from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.properties import TAGS, find_property, tags_code
from trimq.formats.rocketmq_unit.unit import Unit

ENTRIES_PER_STEP = 512


def search_tag(queues: Sequence[MessageQueue], tag: str, begin_ms: int, end_ms: int) -> Iterator[Unit | None]:
    """Yields the messages with this tag that were stored between these times, newest first. Yields None after a bounded
    amount of work, so that the caller may continue later."""
    found = merge(*(_search_queue(queue, tag, begin_ms, end_ms) for queue in queues), key=itemgetter(0))
    return (unit for _, unit in found)


def _search_queue(queue: MessageQueue, tag: str, begin_ms: int, end_ms: int) -> Iterator[tuple[float, Unit | None]]:
    """Yields the messages of one queue, newest first, and None after each step, both with the negative log position
    reached: `merge` puts the queues in order by it. Does no work before the first step of each queue has its turn."""
    yield -inf, None
    code = tags_code(tag)
    first, at = queue.find_time(begin_ms), queue.find_time(end_ms + 1)
    while at > first:
        low = max(first, at - ENTRIES_PER_STEP)
        reached = inf
        for entry in reversed([*queue.entries(low, at - low)]):
            reached = entry.position
            if entry.code != code:
                continue
            with suppress(OffsetOutOfRange):
                unit = queue.unit(entry.offset)
                if find_property(unit.properties, TAGS) == tag:
                    yield -reached, unit
        at = low
        yield -reached, None
