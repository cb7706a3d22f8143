"""Reads contents of queue segments, a window of consecutive records at a time, and caches recent ones in bounded
memory. Knows positions of bytes, not consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from trimq.errors import ColdRead, DamagedSegment
from trimq.formats.amqp_content.content import (
    FOOTER,
    HEAD_BYTES,
    SHARED,
    Content,
    RecordHead,
    StoredContent,
    check_record,
    iterate_heads,
    read_head,
    read_stored,
    record_bytes,
)
from trimq.storage.io.files import File
from trimq.storage.queue_log.segment import QueueSegment

_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor, for every message

_WINDOW_BYTES = 128 * 1024

# Bytes of cold data that are warmed at a time, off the event loop.
_WARM_BYTES = 1024 * 1024


class MemoryBudget:
    """Bytes of contents that may still be kept in memory, for all queues together, for consumers that keep up."""

    __slots__ = ("left",)

    def __init__(self, bytes: int) -> None:
        self.left = bytes


# Memory of a content in addition to its bytes.
OBJECT_BYTES = 300


class RecentContents(dict[int, StoredContent]):
    """Recently appended contents of one log, by offset. Their memory is taken from the budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget

    def keep(self, offset: int, flags: int, expires_ms: int, contents: Sequence[Content], size: int) -> None:
        """Keeps contents with consecutive offsets if the budget has room for all of them; `size` is their total
        length."""
        size += OBJECT_BYTES * len(contents)
        if self._budget.left > size:
            self._budget.left -= size
            for content in contents:
                self[offset] = _new_tuple(StoredContent, (offset, flags, expires_ms, content))
                offset += 1

    def take(self, offset: int) -> StoredContent | None:
        """Removes a content and returns its memory to the budget."""
        stored = self.pop(offset, None)
        if stored is not None:
            exchange, key, header, body, _ = stored.content
            size = HEAD_BYTES + len(exchange) + len(key) + len(header) + len(body)
            self._budget.left += size + OBJECT_BYTES
        return stored

    def take_batch(self, first: int, end: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        batch = _take_batch(self, first, end, max_bytes, now_ms, 0)
        self._refund_budget(batch)
        return batch

    def take_expired(self, first: int, end: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        batch = _take_expired(self, first, end, max_bytes, now_ms, 0)
        self._refund_budget(batch)
        return batch

    def _refund_budget(self, batch: Sequence[StoredContent]) -> None:
        size = (HEAD_BYTES + OBJECT_BYTES) * len(batch)
        for stored in batch:
            exchange, key, header, body, _ = stored[3]
            size += len(exchange) + len(key) + len(header) + len(body)
        self._budget.left += size

    def forget(self, first: int, end: int, but: AbstractSet[int] = frozenset()) -> None:
        for offset in [offset for offset in self if first <= offset < end and offset not in but]:
            self.take(offset)


def _take_batch(
    source: dict[int, StoredContent], first: int, end: int, max_bytes: int, now_ms: int, unwanted_flags: int
) -> list[StoredContent]:
    """Removes and returns contents with consecutive offsets, up to the first that is missing, expired or has one of the
    unwanted flags, or until their bodies have `max_bytes`."""
    batch: list[StoredContent] = []
    size = 0
    for offset in range(first, end):
        stored = source.get(offset)
        if stored is None or size >= max_bytes:
            break
        _, flags, expires_ms, content = stored
        if flags & unwanted_flags or 0 <= expires_ms <= now_ms:
            break
        del source[offset]
        size += len(content[3])
        batch.append(stored)
    return batch


def _take_expired(
    source: dict[int, StoredContent], first: int, end: int, max_bytes: int, now_ms: int, unwanted_flags: int
) -> list[StoredContent]:
    """Does the same as `_take_batch` for expired contents, up to the first that is not expired."""
    batch: list[StoredContent] = []
    size = 0
    for offset in range(first, end):
        stored = source.get(offset)
        if stored is None or size >= max_bytes:
            break
        if stored[1] & unwanted_flags or not 0 <= stored[2] <= now_ms:
            break
        del source[offset]
        size += len(stored[3].body)
        batch.append(stored)
    return batch


class ReadWindow:
    """Contents next to the one that was read last: most consumers read sequentially."""

    __slots__ = ("_next_offset", "_next_position", "_segment", "_stored")

    def __init__(self) -> None:
        self._stored: dict[int, StoredContent] = {}
        self._segment: QueueSegment | None = None
        self._next_offset = -1
        self._next_position = 0

    def clear(self) -> None:
        """Drops all contents: the file was changed, or its log is removed."""
        self._stored = {}
        self._segment = None

    def read(self, segment: QueueSegment, offset: int, may_wait: bool = True) -> StoredContent:
        """Returns the content with this offset. DamagedSegment: its stored bytes are corrupt. ColdRead: it is cold data
        and `may_wait` is False."""
        stored = self._stored.get(offset)
        if stored is None:
            position = self._fill(segment, offset, may_wait)
            stored = self._stored.get(offset)
            if stored is None:
                raise DamagedSegment(segment.segment.file.name, position)
        return stored

    def take_batch(self, first: int, end: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        """Takes contents that are in the window, up to the first with a shared body."""
        return _take_batch(self._stored, first, end, max_bytes, now_ms, SHARED)

    def take_expired(self, first: int, end: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        return _take_expired(self._stored, first, end, max_bytes, now_ms, SHARED)

    def forget(self, offset: int) -> None:
        """Drops a content that was taken. Most are never read again, so a window holds little after a consumer
        stops."""
        self._stored.pop(offset, None)

    def _fill(self, segment: QueueSegment, offset: int, may_wait: bool) -> int:
        """Fills the window from the record of `offset` on. Returns its position, or where it would be."""
        if self._segment is segment and self._next_offset == offset:
            position = self._next_position
        else:
            position = find_position(segment, offset, may_wait)
        data = read_window(segment, position, may_wait)
        self.clear()
        at = 0
        while (found := read_stored(data, at)) is not None and not found[0].flags & FOOTER:
            stored, at = found
            self._stored[stored.offset] = stored
            self._next_offset = stored.offset + 1
        self._segment, self._next_position = segment, position + at
        return position


def read_window(segment: QueueSegment, position: int, may_wait: bool = True) -> bytes:
    """Returns the bytes of one window; more if the record at `position` is longer."""
    data = _read(segment, position, _WINDOW_BYTES, may_wait)
    needed = record_bytes(data, 0)
    if len(data) < needed <= segment.segment.size - position:
        data = _read(segment, position, needed, may_wait)
    return data


def _read(segment: QueueSegment, position: int, length: int, may_wait: bool) -> bytes:
    """Reads bytes of a segment. ColdRead: they are cold data and `may_wait` is False."""
    file, left = segment.segment.file, segment.segment.size - position
    try:
        if not may_wait and left > 0 and (warm := file.begin_warm(position, min(length, left))) is not None:
            raise ColdRead(file.name, position, _warm_more(warm, file, position + length, left - length))
        return segment.segment.read(position, length)
    except OSError as error:
        raise DamagedSegment(file.name, position) from error


def _warm_more(warm: Callable[[], None], file: File, position: int, left: int) -> Callable[[], None]:
    """Extends a warm-up by the bytes that follow: most consumers read sequentially."""
    more = file.begin_warm(position, min(_WARM_BYTES, left)) if left > 0 else None

    def warm_both() -> None:
        try:
            warm()
        finally:
            if more is not None:
                more()

    return warm_both


def find_position(segment: QueueSegment, offset: int, may_wait: bool = True) -> int:
    """Returns the position of the record of `offset`, or where it would be."""
    known, position = segment.position_before(offset)
    while known < offset:
        data = read_window(segment, position, may_wait)
        at = 0
        head: RecordHead | None = None
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


def read_expiries(segment: QueueSegment, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the offsets from `first` up to `end` that are in the file, and their times of expiry. Reads large blocks,
    and only record heads, without verifying checksums. DamagedSegment: the next record cannot be found."""
    position = find_position(segment, first)
    while first < end:
        data = _read(segment, position, _WARM_BYTES, may_wait=True)
        if record_bytes(data, 0) > len(data):
            data = read_window(segment, position)
        at = 0
        while first < end and (head := read_head(data, at)) is not None and not head.flags & FOOTER:
            if head.offset < first:
                break
            if position + at >= segment.indexed_to:
                segment.index(head.offset, position + at)
            yield head.offset, head.expires_ms
            first, at = head.offset + 1, head.end
        if not at:
            raise DamagedSegment(segment.segment.file.name, position)
        position += at


def scan(segment: QueueSegment) -> list[tuple[int, RecordHead]]:
    """Returns positions and heads of all complete message records, without the footer."""
    data = segment.segment.view(0, segment.segment.size)
    return [(position, head) for position, head in iterate_heads(data) if not head.flags & FOOTER]


def count_live_bytes(segment: QueueSegment, with_properties: bool) -> int:
    live = [head for _, head in scan(segment) if segment.is_live(head.offset)]
    return sum([head.body_bytes + (head.property_bytes if with_properties else 0) for head in live])


def first_damage(segment: QueueSegment) -> int | None:
    """Returns the position of the first corrupt record of a sealed segment; None if there is none."""
    size = segment.segment.size
    data = segment.segment.view(0, size)
    position = 0
    while position < size:
        head = check_record(data, position)
        if head is None:
            return position
        position = head.end
    return None
