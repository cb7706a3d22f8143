"""Start offset (`x-stream-offset`) and filter (`x-stream-filter`) of a stream consumer. Pure, except that it reads the
log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimq.core.queues.arguments import read_age_ms
from trimq.errors import DamagedSegment
from trimq.formats.amqp_content.content import Content
from trimq.formats.amqp_content.field_tables import BadField, Timestamp, Value
from trimq.formats.amqp_content.property_list import read_headers
from trimq.storage.queue_log.log import QueueLog

_FILTER_VALUE = "x-stream-filter-value"


def find_start_offset(log: QueueLog, requested: Value, now_ms: int) -> int:
    """Returns the first offset to read. `requested`: a valid `x-stream-offset`."""
    if requested == "first":
        return log.segments[0].base
    if requested == "last":
        return max(log.end - 1, log.segments[0].base)
    if isinstance(requested, Timestamp):
        return find_time(log, int(requested) * 1000)
    if isinstance(requested, int) and not isinstance(requested, bool):
        return max(int(requested), 0)
    if isinstance(requested, str) and (age_ms := read_age_ms(requested)) is not None:
        return find_time(log, now_ms - age_ms)
    return log.end


def find_time(log: QueueLog, time_ms: int) -> int:
    """Returns the offset of the first message published at this time or later. Searches the segments, then does a
    binary search: reading a million messages would block the event loop. The result is approximate where the system
    clock was set back."""
    segment = next((segment for segment in log.segments if segment.newest_ms >= time_ms), None)
    if segment is None:
        return log.end
    low, high = segment.base, segment.end
    while low < high:
        middle = (low + high) // 2
        offset = _next_readable(log, middle, high)
        if offset is None or log.peek(offset).content.published_ms >= time_ms:
            high = middle
        else:
            low = offset + 1
    found = log.next_live(low)
    return log.end if found is None else found


def _next_readable(log: QueueLog, offset: int, end: int) -> int | None:
    found = log.next_live(offset)
    while found is not None and found < end:
        try:
            log.peek(found)
        except DamagedSegment:
            found = log.next_live(found + 1)  # it is never delivered
        else:
            return found
    return None


class StreamFilter:
    """Filter values of a consumer; without any, all messages match."""

    def __init__(self, arguments: Mapping[str, Value]) -> None:
        requested = arguments.get("x-stream-filter")
        self._values: set[str] = set()
        if isinstance(requested, str):
            self._values = {requested}
        elif isinstance(requested, Sequence) and not isinstance(requested, bytes):
            self._values = {value for value in requested if isinstance(value, str)}
        self._takes_unfiltered = arguments.get("x-stream-match-unfiltered") is True

    def matches(self, content: Content) -> bool:
        if not self._values:
            return True
        try:
            value = read_headers(content.header).get(_FILTER_VALUE)
        except BadField:
            value = None
        return self._takes_unfiltered if value is None else value in self._values
