"""Reads contents of a queue's segments, a window of neighbours at a time. Knows where the bytes are, never who asks;
what it keeps in memory is bounded, however long the queue is."""

from __future__ import annotations

from trimq.errors import DamagedSegment
from trimq.formats.content import FOOTER, Head, Stored, check, iterate, read_head, read_stored, record_bytes
from trimq.storage.queue_segment import QueueSegment

_WINDOW_BYTES = 128 * 1024


class Budget:
    """How many bytes of contents may be kept in memory, over all queues, for readers that keep up."""

    __slots__ = ("left",)

    def __init__(self, bytes: int) -> None:
        self.left = bytes


class Window:
    """Contents that lie beside the one that was asked for last: most readers go on from there."""

    __slots__ = ("_next_offset", "_next_position", "_segment", "_stored")

    def __init__(self) -> None:
        self._stored: dict[int, Stored] = {}
        self._segment: QueueSegment | None = None
        self._next_offset = -1
        self._next_position = 0

    def clear(self) -> None:
        """What was read may no longer be there."""
        self._stored = {}
        self._segment = None

    def read(self, segment: QueueSegment, offset: int) -> Stored:
        """DamagedSegment: its bytes are not what was written."""
        stored = self._stored.get(offset)
        if stored is None:
            self._fill(segment, offset)
            stored = self._stored.get(offset)
        if stored is None:
            raise DamagedSegment(segment.segment.file.name, segment.position_before(offset)[1])
        return stored

    def _fill(self, segment: QueueSegment, offset: int) -> None:
        if self._segment is segment and self._next_offset == offset:
            position = self._next_position
        else:
            position = find_position(segment, offset)
        self.clear()
        data = read_window(segment, position)
        at = 0
        while (found := read_stored(data, at)) is not None and not found[0].flags & FOOTER:
            stored, at = found
            self._stored[stored.offset] = stored
            self._next_offset = stored.offset + 1
        self._segment, self._next_position = segment, position + at


def read_window(segment: QueueSegment, position: int) -> bytes:
    """A window's worth of bytes, and the whole of the record at `position` at least."""
    data = segment.segment.read(position, _WINDOW_BYTES)
    needed = record_bytes(data, 0)
    if len(data) < needed <= segment.segment.size - position:
        data = segment.segment.read(position, needed)
    return data


def find_position(segment: QueueSegment, offset: int) -> int:
    """Where the record of `offset` begins, or would."""
    known, position = segment.position_before(offset)
    while known < offset:
        data = read_window(segment, position)
        at = 0
        head: Head | None = None
        while (following := read_head(data, at)) is not None and following.offset < offset:
            head, at = following, following.end
        if following is not None and following.offset >= offset:
            return position + at
        if head is None:
            raise DamagedSegment(segment.segment.file.name, position)
        known, position = head.offset + 1, position + at
        if position >= segment.indexed_to:
            segment.index(known, position)
    return position


def scan(segment: QueueSegment) -> list[tuple[int, Head]]:
    """Positions and heads of all whole records: of the messages, not of the footer."""
    data = segment.segment.view(0, segment.segment.size)
    return [(position, head) for position, head in iterate(data) if not head.flags & FOOTER]


def count_live_bytes(segment: QueueSegment) -> int:
    return sum(head.body_bytes for _, head in scan(segment) if segment.is_live(head.offset))


def first_damage(segment: QueueSegment) -> int | None:
    """Where the bytes of a sealed segment are not what was written. None: they are."""
    size = segment.segment.size
    data = segment.segment.view(0, size)
    position = 0
    while position < size:
        head = check(data, position)
        if head is None:
            return position
        position = head.end
    return None
