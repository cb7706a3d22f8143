"""A stream of a topic whose streams share one log: its ends, its messages, and those who wait for it to grow. Knows a
queue of places in the log, no protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trimq.core.waiters import Waiters, Watch
from trimq.errors import OffsetOutOfRange
from trimq.formats.unit import Draft, Unit, read_unit
from trimq.formats.unit_records import to_record
from trimq.model import Record, StreamId
from trimq.storage.commit_log import Placed
from trimq.storage.commit_lookup import find_time
from trimq.storage.commit_store import CommitStore
from trimq.storage.consume_queue import ENTRY

# How many messages `records` looks up at a time.
_RECORDS_AT_ONCE = 100

Appended = Placed

Wants = Callable[[int], bool]
"""Whether a reader wants messages with this code, before it has seen them."""


class Fetched(NamedTuple):
    """Messages as they stand in the log, and where to go on: behind the last that was looked at."""

    parts: list[memoryview]
    messages: int
    next_offset: int


class SharedStream:
    """`end` (appended) >= `durable_end` (synced here) >= `readable_end` (what consumers may see)."""

    def __init__(self, id: StreamId, store: CommitStore, topic: str) -> None:
        self.id = id
        self._store = store
        self._queue = store.queue(topic, id.number)
        self._queue.settled = self._settled
        self._waiters: Waiters | None = None

    @property
    def start(self) -> int:
        return self._queue.start

    @property
    def end(self) -> int:
        return self._queue.end

    @property
    def readable_end(self) -> int:
        """With one replica, what is durable here may be read."""
        return self._queue.durable_end

    def append(self, draft: Draft, code: int, store_host: bytes) -> Placed:
        return self._store.append(self._queue, draft, code, store_host)

    def read(
        self, offset: int, max_count: int, max_bytes: int, max_scanned: int, wants: Wants | None = None
    ) -> Fetched:
        """Messages from `offset` on that are wanted: one at least if there is any among those that are looked at, even
        if it is larger than `max_bytes`."""
        end = self.readable_end
        if not self.start <= offset <= end:
            raise OffsetOutOfRange(offset, self.start, end)
        found = _Collected(self._store)
        stop = min(end, offset + max_scanned)
        while offset < stop:
            for position, size, code in ENTRY.iter_unpack(self._queue.entries(offset, stop - offset)):
                if wants is None or wants(code):
                    if found.count and (found.count >= max_count or found.size + size > max_bytes):
                        return Fetched(found.views(), found.count, offset)
                    found.add(position, size)
                offset += 1
        return Fetched(found.views(), found.count, offset)

    def codes(self, offset: int) -> Iterator[tuple[int, int]]:
        """Offset and code of each readable message from `offset` on."""
        offset = max(offset, self.start)
        while offset < self.readable_end:
            data = self._queue.entries(offset, self.readable_end - offset)
            for _, _, code in ENTRY.iter_unpack(data):
                yield offset, code
                offset += 1

    def has_wanted(self, offset: int, wants: Wants) -> bool:
        """Whether any message from `offset` on is wanted."""
        end = self.readable_end
        while offset < end:
            for _, _, code in ENTRY.iter_unpack(self._queue.entries(max(offset, self.start), end - offset)):
                if wants(code):
                    return True
                offset += 1
        return False

    def unit(self, offset: int) -> Unit:
        """One message. OffsetOutOfRange: it is not there."""
        if not self.start <= offset < self.readable_end:
            raise OffsetOutOfRange(offset, self.start, self.readable_end)
        entry = self._queue.entry(offset)
        return read_unit(self._store.log.view(entry.position, entry.size))

    def records(self, offset: int) -> Iterator[Record]:
        """The readable records from `offset` on, whoever they were meant for."""
        offset = max(offset, self.start)
        while offset < self.readable_end:
            found = self.read(offset, _RECORDS_AT_ONCE, 1 << 20, _RECORDS_AT_ONCE)
            for part in found.parts:
                at = 0
                while at < len(part):
                    unit = read_unit(part, at)
                    yield to_record(unit)
                    at += unit.size
            offset = found.next_offset

    def find_time(self, time_ms: int) -> int:
        """The first offset that was not stored before this time; the end if there is none."""
        return find_time(self._store.log, self._queue, time_ms)

    # -- those who wait

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Call back once, when `readable_end` has grown."""
        if self._waiters is None:
            self._waiters = Waiters()
        return self._waiters.watch(callback)

    def _settled(self) -> None:
        if self._waiters is not None:
            self._waiters.wake()


class _Collected:
    """Places in the log; neighbours become one."""

    def __init__(self, store: CommitStore) -> None:
        self._store = store
        self._places: list[list[int]] = []
        self.count = 0
        self.size = 0

    def add(self, position: int, size: int) -> None:
        log = self._store.log
        last = self._places[-1] if self._places else None
        if last is not None and last[0] + last[1] == position and position % log.file_bytes:
            last[1] += size
        else:
            self._places.append([position, size])
        self.count += 1
        self.size += size

    def views(self) -> list[memoryview]:
        return [self._store.log.view(position, size) for position, size in self._places]
