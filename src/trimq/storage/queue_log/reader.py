"""Reads contents of a queue's segments, a window of neighbours at a time. Knows where the bytes are, never who asks;
what it keeps in memory is bounded, however long the queue is."""

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

# What is read into memory off the loop at a time, when a reader comes to bytes that are on disk only.
_WARM_BYTES = 1024 * 1024


class MemoryBudget:
    """How many bytes of contents may be kept in memory, over all queues, for readers that keep up."""

    __slots__ = ("left",)

    def __init__(self, bytes: int) -> None:
        self.left = bytes


# What a content takes in memory besides its bytes.
OBJECT_BYTES = 300


class RecentContents(dict[int, StoredContent]):
    """Contents of one log that are kept in memory, by their offsets. Whoever adds one takes it from the budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget

    def keep(self, offset: int, flags: int, expires_ms: int, contents: Sequence[Content], size: int) -> None:
        """Contents that follow one another, if there is room for all of them: they are `size` bytes long."""
        size += OBJECT_BYTES * len(contents)
        if self._budget.left > size:
            self._budget.left -= size
            for content in contents:
                self[offset] = _new_tuple(StoredContent, (offset, flags, expires_ms, content))
                offset += 1

    def take(self, offset: int) -> StoredContent | None:
        """It need not be kept any longer."""
        stored = self.pop(offset, None)
        if stored is not None:
            exchange, key, header, body, _ = stored.content
            size = HEAD_BYTES + len(exchange) + len(key) + len(header) + len(body)
            self._budget.left += size + OBJECT_BYTES
        return stored

    def take_batch(self, first: int, end: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        batch = _take_batch(self, first, end, most_bytes, now_ms, 0)
        self._refund_budget(batch)
        return batch

    def take_expired(self, first: int, end: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        batch = _take_expired(self, first, end, most_bytes, now_ms, 0)
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
    source: dict[int, StoredContent], first: int, end: int, most_bytes: int, now_ms: int, unwanted_flags: int
) -> list[StoredContent]:
    """Take out those that lie there one after the other: up to the first that is expired or has such flags, or until
    they are so long together."""
    batch: list[StoredContent] = []
    size = 0
    for offset in range(first, end):
        stored = source.get(offset)
        if stored is None or size >= most_bytes:
            break
        _, flags, expires_ms, content = stored
        if flags & unwanted_flags or 0 <= expires_ms <= now_ms:
            break
        del source[offset]
        size += len(content[3])
        batch.append(stored)
    return batch


def _take_expired(
    source: dict[int, StoredContent], first: int, end: int, most_bytes: int, now_ms: int, unwanted_flags: int
) -> list[StoredContent]:
    """As `_take_batch`, up to the first that is not expired."""
    batch: list[StoredContent] = []
    size = 0
    for offset in range(first, end):
        stored = source.get(offset)
        if stored is None or size >= most_bytes:
            break
        if stored[1] & unwanted_flags or not 0 <= stored[2] <= now_ms:
            break
        del source[offset]
        size += len(stored[3].body)
        batch.append(stored)
    return batch


class ReadWindow:
    """Contents that lie beside the one that was asked for last: most readers go on from there."""

    __slots__ = ("_next_offset", "_next_position", "_segment", "_stored")

    def __init__(self) -> None:
        self._stored: dict[int, StoredContent] = {}
        self._segment: QueueSegment | None = None
        self._next_offset = -1
        self._next_position = 0

    def clear(self) -> None:
        """What was read may no longer be there."""
        self._stored = {}
        self._segment = None

    def read(self, segment: QueueSegment, offset: int, may_wait: bool = True) -> StoredContent:
        """DamagedSegment: its bytes are not what was written. ColdRead: they are on disk only, and the caller may not
        wait."""
        stored = self._stored.get(offset)
        if stored is None:
            position = self._fill(segment, offset, may_wait)
            stored = self._stored.get(offset)
            if stored is None:
                raise DamagedSegment(segment.segment.file.name, position)
        return stored

    def take_batch(self, first: int, end: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        """What was read already, but for contents whose bodies are elsewhere."""
        return _take_batch(self._stored, first, end, most_bytes, now_ms, SHARED)

    def take_expired(self, first: int, end: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        return _take_expired(self._stored, first, end, most_bytes, now_ms, SHARED)

    def forget(self, offset: int) -> None:
        """It was taken: most are not read again, and a reader that stops half way leaves little behind."""
        self._stored.pop(offset, None)

    def _fill(self, segment: QueueSegment, offset: int, may_wait: bool) -> int:
        """Where the record of `offset` begins, or would."""
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
    """A window's worth of bytes, and the whole of the record at `position` at least."""
    data = _read(segment, position, _WINDOW_BYTES, may_wait)
    needed = record_bytes(data, 0)
    if len(data) < needed <= segment.segment.size - position:
        data = _read(segment, position, needed, may_wait)
    return data


def _read(segment: QueueSegment, position: int, length: int, may_wait: bool) -> bytes:
    """ColdRead: it would wait for the disk."""
    file, left = segment.segment.file, segment.segment.size - position
    try:
        if not may_wait and left > 0 and (warm := file.begin_warm(position, min(length, left))) is not None:
            raise ColdRead(file.name, position, _warm_more(warm, file, position + length, left - length))
        return segment.segment.read(position, length)
    except OSError as error:
        raise DamagedSegment(file.name, position) from error


def _warm_more(warm: Callable[[], None], file: File, position: int, left: int) -> Callable[[], None]:
    """Most readers go on from here."""
    more = file.begin_warm(position, min(_WARM_BYTES, left)) if left > 0 else None

    def warm_both() -> None:
        try:
            warm()
        finally:
            if more is not None:
                more()

    return warm_both


def find_position(segment: QueueSegment, offset: int, may_wait: bool = True) -> int:
    """Where the record of `offset` begins, or would."""
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
    """The offsets from `first` up to `end` that are in the file, and when each expires: in long steps, and from the
    heads alone, whose checksums are not looked at. DamagedSegment: the file cannot be followed further."""
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
    """Positions and heads of all whole records: of the messages, not of the footer."""
    data = segment.segment.view(0, segment.segment.size)
    return [(position, head) for position, head in iterate_heads(data) if not head.flags & FOOTER]


def count_live_bytes(segment: QueueSegment) -> int:
    return sum(head.body_bytes for _, head in scan(segment) if segment.is_live(head.offset))


def first_damage(segment: QueueSegment) -> int | None:
    """Where the bytes of a sealed segment are not what was written. None: they are."""
    size = segment.segment.size
    data = segment.segment.view(0, size)
    position = 0
    while position < size:
        head = check_record(data, position)
        if head is None:
            return position
        position = head.end
    return None
