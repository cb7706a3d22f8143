"""Reads streams of every layout from any offset on, in the layout's own format, without affecting consumers. Knows the
layouts, no protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from trimq.core.api.broker import Broker
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.metadata.cluster import Address
from trimq.core.partitions.topics import Topic
from trimq.core.queues.arguments import STREAM
from trimq.core.queues.queue import Queue
from trimq.core.queues.stream_offsets import find_time
from trimq.errors import ColdRead, OffsetOutOfRange, Refusal, UnknownStream, UnknownTopic
from trimq.formats.amqp_content.content import SHARED, encode, encode_content
from trimq.model import Buffer, Caller, Layout
from trimq.storage.queue_log.log import QueueLog

# Messages scanned by one read, in layouts that read them one by one.
_MESSAGES_AT_ONCE = 2000

# Messages sampled to estimate the size of a stream that does not record it.
_MEASURED = 50


class StreamRange(NamedTuple):
    """Readable range of a stream; all transactions before `stable_end` are decided. `bytes`: approximate size."""

    number: int
    start: int
    end: int
    stable_end: int
    bytes: int


class StreamEnds(NamedTuple):
    """First readable offset of a stream and the offset after the last one."""

    number: int
    start: int
    end: int


class ReadResult(NamedTuple):
    """Messages in their layout's format, and the offset to continue from. `aborted`: producer ids and first offsets of
    aborted transactions, for readers of committed messages to skip."""

    parts: Sequence[Buffer]
    next_offset: int
    aborted: Sequence[tuple[int, int]] = ()


class ReadPosition(NamedTuple):
    """Offset and maximum size of a read. It returns at least one message, and whole batches in layouts that store
    batches."""

    number: int
    offset: int
    max_bytes: int
    is_committed: bool = False


class ReadableTopic(Protocol):
    """One topic or queue of any layout. `gives_away`: acknowledged messages are deleted, so a start offset that has
    grown is no data loss."""

    id: UUID
    name: str
    layout: Layout
    gives_away: bool

    def numbers(self) -> Sequence[int]:
        """Numbers of the streams, in order."""

    def ends(self, number: int) -> StreamEnds:
        """As `span`, without the size, which may have to be measured. Raises UnknownStream if there is none."""

    def span(self, number: int) -> StreamRange:
        """Raises UnknownStream if there is none."""

    def find_time(self, number: int, time_ms: int) -> int:
        """First offset at or after this time; the end if there is none."""

    def read(self, place: ReadPosition, may_wait: bool) -> ReadResult:
        """Raises OffsetOutOfRange if the offset is not stored, ColdRead if the data is cold and `may_wait` is False."""


class _PartitionTopic:
    layout = Layout.PARTITION_LOG
    gives_away = False

    def __init__(self, topic: Topic, max_expanded_bytes: int) -> None:
        self.id = topic.id
        self.name = topic.name.name
        self._topic = topic
        self._max_expanded_bytes = max_expanded_bytes

    def numbers(self) -> Sequence[int]:
        return range(len(self._topic.streams))

    def ends(self, number: int) -> StreamEnds:
        stream = self._topic.stream(number)
        return StreamEnds(number, stream.start, stream.readable_end)

    def span(self, number: int) -> StreamRange:
        stream = self._topic.stream(number)
        return StreamRange(number, stream.start, stream.readable_end, stream.stable_end, stream.log.size_bytes)

    def find_time(self, number: int, time_ms: int) -> int:
        stream = self._topic.stream(number)
        found = stream.find_time(time_ms, self._max_expanded_bytes)
        return stream.readable_end if found is None else found.offset

    def read(self, place: ReadPosition, may_wait: bool) -> ReadResult:
        stream = self._topic.stream(place.number)
        limit = stream.stable_end if place.is_committed else None
        found = stream.read(place.offset, place.max_bytes, limit, may_wait)
        aborted: list[tuple[int, int]] = []
        if place.is_committed and found.parts:
            listed = stream.aborted(place.offset, found.next_offset)
            aborted = [(each.producer_id, each.first_offset) for each in listed]
        return ReadResult(found.parts, found.next_offset, aborted)


class _CommitLogTopic:
    layout = Layout.COMMIT_LOG
    gives_away = False

    def __init__(self, topic: CommitLogTopic) -> None:
        self.id = topic.id
        self.name = topic.name.name
        self._topic = topic

    def numbers(self) -> Sequence[int]:
        return range(self._topic.stream_count)

    def ends(self, number: int) -> StreamEnds:
        stream = self._topic.stream(number)
        return StreamEnds(number, stream.start, stream.readable_end)

    def span(self, number: int) -> StreamRange:
        stream = self._topic.stream(number)
        seen = [entry.size for entry in stream.entries(stream.start, _MEASURED)]
        count = stream.readable_end - stream.start
        size = sum(seen) * count // len(seen) if seen else 0
        return StreamRange(number, stream.start, stream.readable_end, stream.readable_end, size)

    def find_time(self, number: int, time_ms: int) -> int:
        return self._topic.stream(number).find_time(time_ms)

    def read(self, place: ReadPosition, may_wait: bool) -> ReadResult:
        stream = self._topic.stream(place.number)
        found = stream.read(place.offset, _MESSAGES_AT_ONCE, place.max_bytes, _MESSAGES_AT_ONCE)
        return ReadResult(found.parts, found.next_offset)


class _AmqpQueue:
    """Browses an AMQP queue without consuming; each priority is a stream. Acknowledged messages are skipped."""

    layout = Layout.QUEUE_LOG

    def __init__(self, queue: Queue) -> None:
        self.id = queue.id
        self.name = queue.name
        self.gives_away = queue.kind != STREAM
        self._logs = queue.numbered_logs()

    def numbers(self) -> Sequence[int]:
        return sorted(self._logs)

    def ends(self, number: int) -> StreamEnds:
        log = self._log(number)
        return StreamEnds(number, log.segments[0].base, log.readable_end)

    def span(self, number: int) -> StreamRange:
        log = self._log(number)
        size = sum(segment.segment.size for segment in log.segments)
        return StreamRange(number, log.segments[0].base, log.readable_end, log.readable_end, size)

    def _log(self, number: int) -> QueueLog:
        if number not in self._logs:
            raise UnknownStream(self.name, number)
        return self._logs[number]

    def find_time(self, number: int, time_ms: int) -> int:
        log = self._log(number)
        return min(find_time(log, time_ms), log.readable_end)

    def read(self, place: ReadPosition, may_wait: bool) -> ReadResult:
        log = self._log(place.number)
        # Consumers may be whole segments ahead of this reader: acknowledged segments are skipped, as messages within a
        # segment are.
        start, end = 0 if self.gives_away else log.segments[0].base, log.readable_end
        if not start <= place.offset <= end:
            raise OffsetOutOfRange(place.offset, start, end)
        parts: list[Buffer] = []
        size = 0
        offset: int | None = place.offset
        while offset is not None and (offset := log.next_live(offset)) is not None:
            if parts and (size >= place.max_bytes or len(parts) >= _MESSAGES_AT_ONCE):
                return ReadResult(parts, offset)
            stored = log.peek(offset)
            part = encode(encode_content(stored.content), stored.offset, stored.expires_ms, stored.flags & ~SHARED)
            parts.append(part)
            size += len(part)
            offset += 1
        return ReadResult(parts, end)


class RecordsApi:
    """Finds topics of all layouts. Each operation checks the caller's rights."""

    def __init__(self, broker: Broker, commit_log: CommitLogApi | None) -> None:
        self._broker = broker
        self._commit_log = commit_log
        self._max_expanded_bytes = broker.settings.limits.batch_expansion_bytes

    def iterate(self, caller: Caller) -> Iterator[ReadableTopic | None]:
        """Topics of the caller's namespace that the caller may see, without exclusive queues. One at a time: the broker
        may work meanwhile. Yields None for each that is left out."""
        for topic in self._broker.topics.iterate(caller):
            yield None if topic is None else _PartitionTopic(topic, self._max_expanded_bytes)
        if self._commit_log is not None:
            for shared in self._commit_log.topics.all(caller):
                yield _CommitLogTopic(shared)
        for queue in self._broker.queues.iterate(caller):
            yield None if queue is None or queue.owner is not None else _AmqpQueue(queue)

    def topic(self, caller: Caller, name: str) -> ReadableTopic:
        """Raises UnknownTopic if no layout has it."""
        if self._broker.queues.find(caller, name) is not None:
            return _AmqpQueue(self._broker.queues.readable_queue(caller, name))
        shared = None if self._commit_log is None else self._commit_log.topics.find(caller, name)
        if shared is not None and self._commit_log is not None:
            self._commit_log.messages.readable(caller, shared, 0)
            return _CommitLogTopic(shared)
        topic = self._broker.topics.get(caller, name)
        if topic.layout is not Layout.PARTITION_LOG:
            raise UnknownTopic(name)
        self._broker.partitions.readable(caller, topic, 0)
        return _PartitionTopic(topic, self._max_expanded_bytes)

    def find_topic(self, caller: Caller, id: UUID) -> ReadableTopic | None:
        """Topic of any layout by its id. None: it is deleted, the caller may not see it, or it is an exclusive
        queue."""
        try:
            return _PartitionTopic(self._broker.topics.by_id(caller, id), self._max_expanded_bytes)
        except UnknownTopic:
            pass
        except Refusal:
            return None
        if self._commit_log is not None:
            shared = self._commit_log.group_admin.find_topic(caller, id)
            if shared is not None:
                return _CommitLogTopic(shared)
        queue = self._broker.queues.find_by_id(caller, id)
        return None if queue is None or queue.owner is not None else _AmqpQueue(queue)

    def find_partition_topic(self, caller: Caller, name: str) -> ReadableTopic | None:
        """Topic on partition logs by its name. None: there is none, or the caller may not see it."""
        try:
            topic = self._broker.topics.get(caller, name, Layout.PARTITION_LOG)
        except Refusal:
            return None
        return _PartitionTopic(topic, self._max_expanded_bytes)

    def addresses(self) -> Mapping[str, Address]:
        """Addresses of this broker by protocol."""
        return self._broker.cluster.me.addresses

    def warm(self, cold: ColdRead, done: Callable[[BaseException | None], None]) -> None:
        self._broker.partitions.warm(cold, done)
