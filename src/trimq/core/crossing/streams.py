"""Streams of each layout, read by cursor as neutral messages: nothing is taken from anybody. Knows the layouts, no
protocol. A read costs up to 10 µs a message, so readers bound their reads (`MESSAGES_AT_ONCE`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.partitions.stream import Stream
from trimq.core.queues.queue import Queue
from trimq.core.queues.stream_offsets import find_time
from trimq.core.scheduling.waiters import Watch
from trimq.errors import ColdRead, InvalidRecords, OffsetOutOfRange
from trimq.formats.crossing import amqp, kafka, rocketmq
from trimq.formats.crossing.neutral import Neutral
from trimq.formats.kafka_batch.header import BadBatch, BatchHeader, walk
from trimq.formats.kafka_batch.records import INLINE_RECORDS, to_records
from trimq.formats.rocketmq_unit.unit import read_unit
from trimq.model import Buffer, Record, StreamId
from trimq.storage.queue_log.log import QueueLog

MESSAGES_AT_ONCE = 500
"""Messages of one read, about 5 ms of work."""

# Messages that a search by time looks at from the first candidate on.
_SEARCHED = 500

# Compressed batches up to this size are opened on the event loop.
_INLINE_COMPRESSED_BYTES = 16 * 1024

_BATCHES_KEPT = 16
_BATCH_BYTES_KEPT = 1 << 20


class Run(NamedTuple):
    """Messages with their offsets, and the offset to continue from: behind the last one that was looked at."""

    messages: list[tuple[int, Neutral]]
    next_offset: int


class FoundMessage(NamedTuple):
    offset: int
    timestamp_ms: int


class ForeignStream(Protocol):
    """`start` may grow at any time where consumers settle messages (`gives_away`): reads below it are served from the
    first message that is left."""

    id: StreamId
    gives_away: bool

    @property
    def start(self) -> int: ...

    @property
    def readable_end(self) -> int:
        """End of what any reader may see: committed and durable."""

    def read(self, offset: int, max_count: int, max_bytes: int, may_wait: bool) -> Run:
        """Returns visible messages from `offset` on; at least one if there is any, even if larger than `max_bytes`.
        Raises OffsetOutOfRange; ColdRead if the data is cold and `may_wait` is False."""

    def find_time(self, time_ms: int) -> FoundMessage | None:
        """Returns the first message with this time or later."""

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Calls back once, when `readable_end` has grown or the topic was deleted."""


class CommitLogView:
    """Queue of a RocketMQ topic. Expired messages are skipped."""

    gives_away = False

    def __init__(self, stream: MessageQueue, max_expanded_bytes: int) -> None:
        self.id = stream.id
        self._stream = stream
        self._max_expanded_bytes = max_expanded_bytes
        self.watch = stream.watch

    @property
    def start(self) -> int:
        return self._stream.start

    @property
    def readable_end(self) -> int:
        return self._stream.readable_end

    def read(self, offset: int, max_count: int, max_bytes: int, may_wait: bool) -> Run:
        stream = self._stream
        if not may_wait and (cold := stream.find_cold(offset)) is not None:
            raise cold
        found = stream.read(offset, max_count, max_bytes, max_count)
        messages: list[tuple[int, Neutral]] = []
        for part in found.parts:
            at = 0
            while at < len(part):
                unit = read_unit(part, at)
                at += unit.size
                try:
                    messages.append((unit.queue_offset, rocketmq.to_neutral(unit, self._max_expanded_bytes)))
                except InvalidRecords:  # the body stays as it is: a reader is never blocked by a message
                    plain = unit._replace(sys_flag=unit.sys_flag & ~rocketmq.COMPRESSION_BITS)
                    messages.append((unit.queue_offset, rocketmq.to_neutral(plain)))
        return Run(messages, found.next_offset)

    def find_time(self, time_ms: int) -> FoundMessage | None:
        """Searches by store time, then forward to the first message that was born at this time or later."""
        offset = self._stream.find_time(time_ms)
        for entry in self._stream.entries(offset, _SEARCHED):
            born_ms = read_unit(self._stream.view(entry)).born_ms
            if born_ms >= time_ms:
                return FoundMessage(entry.offset, born_ms)
        return None


class QueueView:
    """Log of one priority of an AMQP queue. An observer sees what is not settled yet. None: the queue has no messages
    of this priority."""

    def __init__(self, queue: Queue, number: int, gives_away: bool, now_ms: Callable[[], int]) -> None:
        self.id = StreamId(queue.id, number)
        self.gives_away = gives_away
        self._queue = queue
        self._log: QueueLog | None = queue.numbered_logs().get(number)
        self._now_ms = now_ms
        self.watch = queue.watch

    @property
    def start(self) -> int:
        log = self._log
        if log is None:
            return 0
        if not self.gives_away:
            return log.segments[0].base
        first = log.next_live(log.segments[0].base)
        return log.readable_end if first is None else first

    @property
    def readable_end(self) -> int:
        return 0 if self._log is None else self._log.readable_end

    def read(self, offset: int, max_count: int, max_bytes: int, may_wait: bool) -> Run:
        log, end = self._log, self.readable_end
        start = 0 if self.gives_away or log is None else log.segments[0].base
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        messages: list[tuple[int, Neutral]] = []
        now_ms = self._now_ms()
        found: int | None = offset
        looked_at = 0
        while log is not None and found is not None and (found := log.next_live(found)) is not None:
            if looked_at >= max_count or (messages and max_bytes <= 0):
                return Run(messages, found)
            try:
                stored = log.peek(found, may_wait)
            except ColdRead:
                if messages:
                    return Run(messages, found)
                raise
            looked_at += 1
            found += 1
            if 0 <= stored.expires_ms <= now_ms:
                continue
            content = stored.content
            max_bytes -= len(content.body) + len(content.header)
            messages.append((stored.offset, amqp.to_neutral(content, self._queue.name)))
        return Run(messages, end)

    def find_time(self, time_ms: int) -> FoundMessage | None:
        if self._log is None:
            return None
        first = min(find_time(self._log, time_ms), self.readable_end)
        for offset, message in self.read(first, _SEARCHED, 1 << 30, may_wait=True).messages:
            if message.timestamp_ms >= time_ms:
                return FoundMessage(offset, message.timestamp_ms)
        return None


class OpenedBatches:
    """Batches that were opened last: a reader with small reads must not open a batch again for each of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[StreamId, int, int], Sequence[Record]] = OrderedDict()

    def get(self, stream: StreamId, header: BatchHeader) -> Sequence[Record] | None:
        return self._kept.get((stream, header.base_offset, header.crc))

    def keep(self, stream: StreamId, header: BatchHeader, records: Sequence[Record]) -> None:
        self._kept[stream, header.base_offset, header.crc] = records
        while len(self._kept) > _BATCHES_KEPT:
            self._kept.popitem(last=False)


class PartitionView:
    """Partition of a Kafka topic. Committed records only; markers and aborted records are gaps."""

    gives_away = False

    def __init__(self, stream: Stream, opened: OpenedBatches, max_expanded_bytes: int) -> None:
        self.id = stream.id
        self._stream = stream
        self._opened = opened
        self._max_expanded_bytes = max_expanded_bytes
        self.watch = stream.watch

    @property
    def start(self) -> int:
        return self._stream.start

    @property
    def readable_end(self) -> int:
        return self._stream.stable_end

    def read(self, offset: int, max_count: int, max_bytes: int, may_wait: bool) -> Run:
        stream = self._stream
        end = stream.stable_end
        messages: list[tuple[int, Neutral]] = []
        left = max_bytes
        while offset < end and len(messages) < max_count and (left > 0 or not messages):
            try:
                found = stream.read(offset, max(left, 0), end, may_wait)
                aborted = stream.aborted(offset, found.next_offset)
                for part in found.parts:
                    for position, header in walk(part, 0, len(part)):
                        if header.is_control or header.next_offset <= offset:
                            offset = max(offset, header.next_offset)
                            continue
                        for record in self._records(part, position, header, may_wait):
                            if record.offset < offset:
                                continue
                            if len(messages) >= max_count or (messages and left <= 0):
                                return Run(messages, record.offset)
                            offset = record.offset + 1
                            if header.is_transactional and any(
                                each.producer_id == header.producer_id
                                and each.first_offset <= record.offset <= each.last_offset
                                for each in aborted
                            ):
                                continue
                            left -= len(record.body or b"") + 50
                            messages.append((record.offset, kafka.to_neutral(record)))
                        offset = max(offset, header.next_offset)
            except ColdRead:
                if messages:
                    return Run(messages, offset)
                raise
            offset = max(offset, found.next_offset)
        if not messages and not stream.start <= offset <= end:
            raise OffsetOutOfRange(offset, stream.start, end)
        return Run(messages, offset)

    def _records(self, part: Buffer, position: int, header: BatchHeader, may_wait: bool) -> Sequence[Record]:
        """Records of one batch. A large one is opened in a thread, as cold data is loaded, unless `may_wait`. One that
        cannot be opened has no records: a reader is never blocked by a message."""
        known = self._opened.get(self.id, header)
        if known is not None:
            return known
        is_small = header.size <= (_INLINE_COMPRESSED_BYTES if header.codec else _BATCH_BYTES_KEPT)
        if may_wait or (is_small and header.record_count <= INLINE_RECORDS):
            records = _open_batch(part, position, self._max_expanded_bytes)
            if header.record_count > 1:
                self._opened.keep(self.id, header, records)
            return records
        batch = bytes(memoryview(part)[position : position + header.size])
        raise ColdRead(self._stream.topic, header.base_offset, partial(self._open_off_loop, batch, header))

    def _open_off_loop(self, batch: bytes, header: BatchHeader) -> None:
        self._opened.keep(self.id, header, _open_batch(batch, 0, self._max_expanded_bytes))

    def find_time(self, time_ms: int) -> FoundMessage | None:
        found = self._stream.find_time(time_ms, self._max_expanded_bytes, self._stream.stable_end)
        return None if found is None else FoundMessage(found.offset, found.timestamp_ms)


def _open_batch(part: Buffer, position: int, max_expanded_bytes: int) -> Sequence[Record]:
    try:
        return to_records(part, position, max_expanded_bytes)
    except BadBatch:
        return ()
