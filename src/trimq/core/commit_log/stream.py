"""One message queue of a commit-log topic: its offsets, its messages, and waiters for new messages. Knows a consume
queue (positions in the log), no protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from trimq.core.commit_log.message_ttl import MessageTtl
from trimq.core.scheduling.waiters import Waiters, Watch
from trimq.errors import ColdRead, OffsetOutOfRange
from trimq.formats.rocketmq_unit.batch_encoder import QueueTarget
from trimq.formats.rocketmq_unit.records import to_record
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft, read_unit
from trimq.model import Buffer, Record, StreamId
from trimq.storage.commit_log.consume_queue import ENTRY
from trimq.storage.commit_log.log import AppendedUnit, AppendedUnits, Span
from trimq.storage.commit_log.lookup import find_time
from trimq.storage.commit_log.store import CommitStore
from trimq.storage.io.page_cache import warm_spans

# Messages that `records` reads at a time.
_RECORDS_AT_ONCE = 100

Appended = AppendedUnit
AppendedBatch = AppendedUnits

Wants = Callable[[int], bool]
"""Decides by the code in the consume queue (tag hash or delivery time) whether a reader wants a message, without
reading the message."""


class MessageFilter(NamedTuple):
    """Filter of a reader: first by the message's code, then by its properties, which costs a read of the message. None:
    no restriction."""

    code: Wants | None = None
    properties: Callable[[bytes], bool] | None = None


class QueueEntry(NamedTuple):
    """Entry of a message in the consume queue. The message itself is not read yet."""

    offset: int
    position: int
    size: int
    code: int


class QueueReadResult(NamedTuple):
    """Messages in their log format, and the offset to continue from: behind the last message scanned."""

    parts: list[Buffer]
    messages: int
    next_offset: int


_EVERYTHING = MessageFilter()

# Messages that a reader gets, or a filter scans, at a time.
_WARMED_ENTRIES = 800


class MessageQueue:
    """Offsets: `end` (appended) >= `durable_end` (synced on this node) >= `readable_end` (visible to consumers)."""

    is_gone = False
    """Set when the topic is deleted: no more messages are appended."""

    def __init__(self, id: StreamId, store: CommitStore, topic: str, ttl: MessageTtl) -> None:
        self.id = id
        self._store = store
        self._ttl = ttl
        self.queue = store.queue(topic, id.number)
        self.queue.on_durable_end = self._settled
        self._waiters: Waiters | None = None
        self._lane: QueueTarget | None = None
        self._warm = range(0)

    @property
    def start(self) -> int:
        return self.queue.start

    @property
    def end(self) -> int:
        return self.queue.end

    @property
    def readable_end(self) -> int:
        """With one replica, every durable message is readable."""
        return self.queue.durable_end

    def append(self, draft: UnitDraft, code: int, store_host: bytes) -> AppendedUnit:
        return self._store.append(self.queue, draft, code, store_host)

    @property
    def lane(self) -> QueueTarget:
        """Precomputed fields shared by all messages of this queue, for batch appends."""
        if self._lane is None:
            self._lane = self._store.lane(self.queue)
        return self._lane

    def read(
        self,
        offset: int,
        max_count: int,
        max_bytes: int,
        max_scanned: int,
        message_filter: MessageFilter | None = None,
        include_expired: bool = False,
    ) -> QueueReadResult:
        """Reads matching messages from `offset` on; expired ones only with `include_expired`. Returns at least one
        message if any scanned message matches, even if it is larger than `max_bytes`."""
        end = self.readable_end
        if not self.start <= offset <= end:
            raise OffsetOutOfRange(offset, self.start, end)
        wants, accepts = message_filter or _EVERYTHING
        all_fresh = include_expired or not self._ttl.is_on
        if all_fresh and wants is None and accepts is None:
            return self._read_all(offset, min(end, offset + max_count), max_bytes)
        found = _Collected()
        stop = min(end, offset + max_scanned)
        while offset < stop:
            for position, size, code in ENTRY.iter_unpack(self.queue.entries(offset, stop - offset)):
                if (
                    (wants is None or wants(code))
                    and (accepts is None or accepts(self._properties(position, size)))
                    and (all_fresh or not self._ttl.has_expired(self._unit(position, size)))
                ):
                    if found.places and (len(found.places) >= max_count or found.size + size > max_bytes):
                        return self._fetched(found.places, offset)
                    found.add(position, size)
                offset += 1
        return self._fetched(found.places, offset)

    def find_cold(self, offset: int) -> ColdRead | None:
        """Returns the cold data that a read from `offset` on would probably wait for. None: the messages were written
        recently, or the last check found them in the page cache."""
        queue = self.queue
        if offset >= queue.stored_end or offset in self._warm or not self.start <= offset < self.readable_end:
            return None
        count = min(_WARMED_ENTRIES, self.readable_end - offset)
        if (cold := queue.find_cold(offset, count)) is not None:
            return cold
        spans, found = warm_spans(ENTRY.iter_unpack(queue.entries(offset, count)))
        colds = [cold for begin, end in spans if (cold := self._store.log.find_cold(begin, end)) is not None]
        if colds:
            return ColdRead.joined(colds)
        self._warm = range(offset, offset + found)
        return None

    def _read_all(self, offset: int, stop: int, max_bytes: int) -> QueueReadResult:
        """Fast path of `read` without filter and TTL check."""
        places: list[Span] = []
        while offset < stop:
            for position, size, _ in ENTRY.iter_unpack(self.queue.entries(offset, stop - offset)):
                max_bytes -= size
                if max_bytes < 0 and places:
                    return self._fetched(places, offset)
                places.append((position, size))
                offset += 1
        return self._fetched(places, offset)

    def _fetched(self, places: list[Span], next_offset: int) -> QueueReadResult:
        return QueueReadResult(self._store.log.gather(places) if places else [], len(places), next_offset)

    def entries(self, offset: int, count: int) -> Iterator[QueueEntry]:
        """Up to `count` readable entries from `offset` on."""
        offset = max(offset, self.start)
        stop = min(self.readable_end, offset + count)
        while offset < stop:
            for position, size, code in ENTRY.iter_unpack(self.queue.entries(offset, stop - offset)):
                yield QueueEntry(offset, position, size, code)
                offset += 1

    def codes(self, offset: int) -> Iterator[tuple[int, int]]:
        """Offset and code of each readable message from `offset` on."""
        offset = max(offset, self.start)
        while offset < self.readable_end:
            for entry in self.entries(offset, self.readable_end - offset):
                yield entry.offset, entry.code
                offset = entry.offset + 1

    def has_match(self, offset: int, message_filter: MessageFilter) -> bool:
        """Whether any message from `offset` on matches."""
        return any(
            self.matches_filter(entry, message_filter) for entry in self.entries(offset, self.readable_end - offset)
        )

    def matches_filter(self, entry: QueueEntry, message_filter: MessageFilter | None) -> bool:
        """Whether the message passes the filter and has not expired."""
        wants, accepts = message_filter or _EVERYTHING
        if wants is not None and not wants(entry.code):
            return False
        if accepts is not None and not accepts(self._properties(entry.position, entry.size)):
            return False
        return not (self._ttl.is_on and self._ttl.has_expired(self._unit(entry.position, entry.size)))

    def view(self, entry: QueueEntry) -> memoryview:
        """Message in its log format, without a copy."""
        return self._store.log.view(entry.position, entry.size)

    def views(self, entries: Sequence[QueueEntry]) -> list[memoryview]:
        """As `view`, for several entries. Entries in log order are read together."""
        places = [(position, size) for _, position, size, _ in entries]
        if len(places) < 2 or sorted(places) != places:
            return [self.view(entry) for entry in entries]
        parts = [memoryview(part) for part in self._store.log.gather(places)]
        if len(parts) == len(places):
            return parts
        (joined,) = parts
        ends = accumulate([size for _, size in places])
        return [joined[end - size : end] for end, (_, size) in zip(ends, places, strict=True)]

    def _properties(self, position: int, size: int) -> bytes:
        return self._unit(position, size).properties

    def _unit(self, position: int, size: int) -> Unit:
        return read_unit(self._store.log.view(position, size))

    def unit(self, offset: int) -> Unit:
        """Returns one message. Raises OffsetOutOfRange if it is not stored."""
        if not self.start <= offset < self.readable_end:
            raise OffsetOutOfRange(offset, self.start, self.readable_end)
        entry = self.queue.entry(offset)
        return read_unit(self._store.log.view(entry.position, entry.size))

    def records(self, offset: int) -> Iterator[Record]:
        """Readable messages from `offset` on, including expired ones."""
        offset = max(offset, self.start)
        while offset < self.readable_end:
            found = self.read(offset, _RECORDS_AT_ONCE, 1 << 20, _RECORDS_AT_ONCE, include_expired=True)
            for part in found.parts:
                at = 0
                while at < len(part):
                    unit = read_unit(part, at)
                    yield to_record(unit)
                    at += unit.size
            offset = found.next_offset

    def find_time(self, time_ms: int) -> int:
        """First offset stored at or after this time; the end if there is none."""
        return find_time(self._store.log, self.queue, time_ms)

    # -- waiters

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Calls back once, when `readable_end` has grown or the topic is deleted."""
        if self._waiters is None:
            self._waiters = Waiters()
        return self._waiters.watch(callback)

    def mark_deleted(self) -> None:
        """Marks the topic as deleted and wakes all waiters."""
        self.is_gone = True
        self._settled()

    def _settled(self) -> None:
        if self._waiters is not None:
            self._waiters.wake()


class _Collected:
    """Log spans of the selected messages and their total size."""

    def __init__(self) -> None:
        self.places: list[Span] = []
        self.size = 0

    def add(self, position: int, size: int) -> None:
        self.places.append((position, size))
        self.size += size
