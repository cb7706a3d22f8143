"""Foreign topics in the shape of RocketMQ's: queues that are pulled as message units. Tags and SQL filters look at the
properties that a unit is given here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trimq.core.commit_log.stream import MessageFilter, QueueReadResult
from trimq.core.commit_log.topics import READABLE, WRITABLE, CommitLogTopicDefinition
from trimq.core.crossing.streams import MESSAGES_AT_ONCE, ForeignStream
from trimq.core.crossing.topics import ForeignTopic
from trimq.core.scheduling.waiters import Watch
from trimq.errors import ColdRead, OffsetOutOfRange
from trimq.formats.crossing import rocketmq
from trimq.formats.crossing.neutral import Neutral
from trimq.formats.rocketmq_unit.properties import tags_code, write_properties
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft, encode_unit, read_unit
from trimq.model import Buffer, TopicName

FOREIGN_POSITION = 1 << 62
"""Positions from here on are no places in the commit log: they are made of queue and offset."""

_OFFSET_BITS = 48
_NO_HOST = bytes(8)


def foreign_position(number: int, offset: int) -> int:
    """Returns the position that stands for a message of another layout."""
    return FOREIGN_POSITION | number << _OFFSET_BITS | offset


class UnitQueue:
    """Foreign stream with the reading side of a `MessageQueue`."""

    is_gone = False

    def __init__(self, topic: bytes, stream: ForeignStream, store_host: bytes) -> None:
        self.id = stream.id
        self.gives_away = stream.gives_away
        self._topic = topic
        self._stream = stream
        self._store_host = store_host

    @property
    def start(self) -> int:
        return self._stream.start

    @property
    def readable_end(self) -> int:
        return self._stream.readable_end

    def find_cold(self, offset: int) -> ColdRead | None:
        """Returns the cold data that a read from `offset` on would wait for."""
        try:
            self._stream.read(offset, 1, 1, may_wait=False)
        except ColdRead as cold:
            return cold
        except OffsetOutOfRange:
            pass
        return None

    def read(
        self,
        offset: int,
        max_count: int,
        max_bytes: int,
        max_scanned: int,
        message_filter: MessageFilter | None = None,
    ) -> QueueReadResult:
        """As `MessageQueue.read`."""
        scanned = min(max_scanned, MESSAGES_AT_ONCE) if message_filter is not None else max_count
        found = self._stream.read(offset, scanned, max_bytes, may_wait=True)
        parts: list[Buffer] = []
        size = 0
        for place, message in found.messages:
            unit = self._unit(place, message, message_filter)
            if unit is None:
                continue
            if parts and (len(parts) >= max_count or size + len(unit) > max_bytes):
                return QueueReadResult(parts, len(parts), place)
            parts.append(unit)
            size += len(unit)
        return QueueReadResult(parts, len(parts), found.next_offset)

    def has_match(self, offset: int, message_filter: MessageFilter) -> bool:
        """Whether any message from `offset` on matches; true as well if there are too many to look at."""
        try:
            found = self._stream.read(offset, MESSAGES_AT_ONCE, 1 << 20, may_wait=True)
        except OffsetOutOfRange:
            return True
        if found.next_offset < self.readable_end:
            return True
        return any(self._unit(place, message, message_filter) is not None for place, message in found.messages)

    def _unit(self, offset: int, message: Neutral, message_filter: MessageFilter | None) -> bytes | None:
        fields = rocketmq.from_neutral(message)
        properties = write_properties(fields.properties)
        if message_filter is not None:
            wants, accepts = message_filter
            if wants is not None and not wants(tags_code(fields.properties.get("TAGS", ""))):
                return None
            if accepts is not None and not accepts(properties):
                return None
        number = self.id.number
        draft = UnitDraft(
            self._topic,
            number,
            fields.body,
            properties,
            fields.flag,
            0,
            fields.born_ms,
            fields.born_host or _NO_HOST,
            fields.reconsume_times,
        )
        return encode_unit(
            draft, offset, foreign_position(number, offset), max(message.timestamp_ms, 0), self._store_host
        )

    def find_time(self, time_ms: int) -> int:
        """First offset with this time or later; the end if there is none."""
        found = self._stream.find_time(time_ms)
        return self.readable_end if found is None else found.offset

    def first_time_ms(self) -> int:
        """Time of the first message, -1 if there is none."""
        found = self._stream.read(max(self.start, 0), 1, 1, may_wait=True).messages
        return found[0][1].timestamp_ms if found else -1

    def watch(self, callback: Callable[[], None]) -> Watch:
        return self._stream.watch(callback)


class UnitTopic:
    """Foreign topic in the shape of a `CommitLogTopic`. `store_host`: address of the broker, as messages carry it."""

    def __init__(self, topic: ForeignTopic, store_host: bytes) -> None:
        self.id = topic.id
        self.name = TopicName("", topic.face_name)
        self.resource = topic.resource
        self.gives_away = topic.gives_away
        count = topic.stream_count
        self.definition = CommitLogTopicDefinition("", topic.face_name, count, count, READABLE | WRITABLE)
        self.foreign = topic
        self.version = -1
        self._make = partial(_make_queue, topic, topic.face_name.encode(), store_host)

    def unit_at(self, position: int) -> Unit:
        """Returns the unit that `read` gave this position. Raises OffsetOutOfRange if the message is gone."""
        number, offset = position >> _OFFSET_BITS & 0x3FFF, position & (1 << _OFFSET_BITS) - 1
        queue = self.stream(number)
        found = queue.read(offset, 1, 1, 1)
        if found.next_offset != offset + 1 or not found.parts:
            raise OffsetOutOfRange(offset, queue.start, queue.readable_end)
        return read_unit(found.parts[0])

    def stream(self, number: int) -> UnitQueue:
        """Raises UnknownStream if there is none."""
        return self._make(number)


def _make_queue(topic: ForeignTopic, name: bytes, store_host: bytes, number: int) -> UnitQueue:
    return UnitQueue(name, topic.stream(number), store_host)
