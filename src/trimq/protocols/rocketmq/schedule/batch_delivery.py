"""Batch delivery of delayed messages that are due together: reads, copies and appends them in one step, in a tenth of
the time. Messages that need special treatment are left to `scheduler`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from trimq.core.api.commit_log_messages import CommitLogMessageApi
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.commit_log.stream import AppendedBatch, MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.scheduling.timers import TimerEntry
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, QueueTarget
from trimq.formats.rocketmq_unit.copies import read_copy_source
from trimq.formats.rocketmq_unit.dead_letters import REAL_QUEUE, REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import (
    KEYS,
    NAME_ENDS,
    TAGS,
    UNIQUE_KEY,
    VALUE_ENDS,
    read_plain_properties,
    tags_code,
)
from trimq.formats.rocketmq_unit.schedule import TIMER_OUT_MS, parse_time_ms
from trimq.formats.rocketmq_unit.unit import LONGEST_PROPERTIES
from trimq.model import SYSTEM

RECALLED = "TIMER_DEL_UNIQKEY"
ENQUEUED_MS, DEQUEUED_MS = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"

# A recall marker is not delivered itself. A message that has already waited once gets new times of enqueue and dequeue.
_SPECIAL = frozenset((RECALLED, ENQUEUED_MS, DEQUEUED_MS))

# Larger bodies gain nothing from batching, and many of them would make a turn of the loop long.
_LONGEST_BODY = 16 * 1024

_V4_BYTES = 8
_ENDS = VALUE_ENDS.encode()
_KEY = f"{UNIQUE_KEY}{NAME_ENDS}".encode()
_LATER_KEY = _ENDS + _KEY

_READ_BYTES = 4 << 20


class _Template(NamedTuple):
    """Common part of messages whose properties differ only in their unique keys."""

    lane: QueueTarget
    topic: str
    code: int
    keys: str
    is_timed: bool


class DueBatch:
    """Collects messages of `fired` up to one that needs special treatment; then `deliver` appends them, and collection
    continues behind that one. Data read for one range is reused for the next.

    `recalled`: recalled messages and the offsets of their recall markers. `suspect_keys`: keys that must be looked up
    in the key index."""

    def __init__(
        self,
        fired: Sequence[TimerEntry],
        topic_api: CommitLogTopicApi,
        message_api: CommitLogMessageApi,
        store_host: bytes,
        now_ms: int,
        recalled: Mapping[str, int],
        suspect_keys: Collection[str],
    ) -> None:
        self.fired = fired
        self._topic_api = topic_api
        self._message_api = message_api
        self._store_host = store_host
        self._now_ms = now_ms
        self._recalled = recalled
        self._suspects = suspect_keys
        self._max_body_bytes = min(_LONGEST_BODY, message_api.message_bytes)
        self._targets: dict[tuple[str, str], tuple[CommitLogTopic, MessageQueue, QueueTarget]] = {}
        self._templates: dict[bytes, _Template | None] = {}
        self._messages: list[BatchMessage] = []
        self._keys: list[str] = []
        self._more_keys: dict[int, str] = {}
        self._timer_times = (-1, b"")
        self.entries: list[TimerEntry] = []
        # Last range checked, and the state of reading it: index of the next message, and end of the range being read.
        self._range = range(0)
        self._units: Iterator[memoryview] = iter(())
        self._next = self._read_to = 0

    def range_end(self, begin: int) -> int:
        """End of the range from `begin` on whose messages have consecutive offsets in one queue."""
        if begin not in self._range:
            stream, first = self.fired[begin]
            end = begin + 1
            while end < len(self.fired) and self.fired[end] == (stream, first + end - begin):
                end += 1
            self._range = range(begin, end)
        return self._range.stop

    def take_range(self, stream: MessageQueue, begin: int, end: int) -> bool:
        """Collects the messages in this range of consecutive offsets. Returns whether all of them could be batched; if
        not, those in front of the first special or unreadable one are collected."""
        before = len(self.entries)
        try:
            self._read_from(stream, begin)
            is_plain = all(map(self.take, self.fired[begin:end], self._units))
        except OSError:  # a file cannot be opened now; the next read reports it
            self._read_to = 0
            return False
        count = len(self.entries) - before
        self._next = begin + count + (not is_plain)
        if is_plain and count < end - begin:  # a message could not be read
            self._read_to = 0
            return False
        return is_plain

    def _read_from(self, stream: MessageQueue, begin: int) -> None:
        if not self._next <= begin < self._read_to:
            self._read_to = self.range_end(begin)
            self._units = units_at(stream, self.fired[begin].position, self._read_to - begin)
            self._next = begin
        for _ in islice(self._units, begin - self._next):
            pass

    def take(self, entry: TimerEntry, unit: memoryview) -> bool:
        """Collects the message if it can be batched. Returns whether it was."""
        original = read_copy_source(unit)
        if original is None:
            return False
        crc, flag, sys_flag, born_ms, born_host, store_ms, times, body, written = original
        unique, rest = _without_key(written)
        if not unique or len(body) > self._max_body_bytes or unique in self._suspects:
            return False
        # Most messages that are due together differ only in their keys.
        template = self._templates.get(rest)
        if template is None:
            if rest in self._templates or (template := self._find_template(rest)) is None:
                self._templates[rest] = None
                return False
            self._templates[rest] = template
        if template.is_timed:
            if self._recalled and self._recalled.get(f"{template.topic}+{unique}", -1) > entry.position:
                return False
            written += self._timer_properties(store_ms)
        if len(written) > LONGEST_PROPERTIES:
            return False
        if template.keys:
            self._more_keys[len(self.entries)] = template.keys
        self._messages.append(
            (template.lane, body, written, flag, sys_flag, born_ms, times, template.code, crc, born_host)
        )
        self._keys.append(unique)
        self.entries.append(entry)
        return True

    def _find_template(self, rest: bytes) -> _Template | None:
        """Returns None if `scheduler` must handle these messages one by one."""
        properties = _read_plain(rest)
        if properties is None or not _SPECIAL.isdisjoint(properties):
            return None
        topic, queue = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE, "")
        target = self._targets.get((topic, queue)) or self._find_target(topic, queue)
        if target is None:
            return None
        code = tags_code(properties[TAGS]) if TAGS in properties else 0
        return _Template(target[2], topic, code, properties.get(KEYS, ""), TIMER_OUT_MS in properties)

    def _timer_properties(self, store_ms: int) -> bytes:
        """Properties with the times of enqueue and dequeue. Cached, since many delayed messages were stored
        together."""
        if self._timer_times[0] != store_ms:
            self._timer_times = store_ms, b"%s\x01%d\x02%s\x01%d\x02" % (
                ENQUEUED_MS.encode(), store_ms, DEQUEUED_MS.encode(), self._now_ms,
            )  # fmt: skip
        return self._timer_times[1]

    def _find_target(self, topic: str, queue: str) -> tuple[CommitLogTopic, MessageQueue, QueueTarget] | None:
        """Returns None if the destination is unusable; `scheduler` then finds the reason."""
        if len(self._store_host) != _V4_BYTES:
            return None
        try:
            found = self._topic_api.find(SYSTEM, topic)
            if found is None:
                return None
            stream = found.stream_or_retired(parse_time_ms(queue))
        except Refusal:
            return None
        self._targets[topic, queue] = target = found, stream, stream.lane
        return target

    def deliver(self) -> AppendedBatch:
        return self._message_api.append_batch(
            SYSTEM, self._targets.values(), self._messages, self._keys, self._more_keys, self._store_host
        )

    def reset(self) -> None:
        """Clears the collected messages before collection continues."""
        self._messages, self._keys, self._more_keys, self.entries = [], [], {}, []


def _without_key(written: bytes) -> tuple[str, bytes]:
    """Returns the unique key of a message and its properties without the key. The key is empty if it is missing or not
    alphanumeric, unlike those that clients generate."""
    begin = 0 if written.startswith(_KEY) else written.find(_LATER_KEY) + 1
    if not begin and not written.startswith(_KEY):
        return "", written
    begin += len(_KEY)
    end = written.find(_ENDS, begin)
    key = written[begin:end]
    if not key.isalnum():
        return "", written
    return key.decode(), written[:begin] + written[end:]


def _read_plain(rest: bytes) -> dict[str, str] | None:
    """Returns the properties, with "?" in place of the unique key, if further properties can simply be appended. None:
    they must be encoded again."""
    if not rest.endswith(_ENDS):
        return None
    at = rest.find(_KEY)
    try:
        return read_plain_properties(f"{rest[:at].decode()}{UNIQUE_KEY}\x01?{rest[at + len(_KEY) :].decode()}")
    except UnicodeDecodeError:
        return None


def units_at(stream: MessageQueue, offset: int, count: int) -> Iterator[memoryview]:
    """Messages at consecutive offsets, up to the first that is missing or unreadable."""
    end = offset + count
    try:
        while offset < end:
            found = stream.read(offset, end - offset, _READ_BYTES, end - offset, include_expired=True)
            if found.next_offset == offset:
                return
            offset = found.next_offset
            for each in found.parts:
                part, at = memoryview(each), 0
                while at < len(part):
                    # A size of 0 is damage: yield the rest as one unit, otherwise the loop would never end.
                    size = int.from_bytes(part[at : at + 4], "big") or len(part)
                    yield part[at : at + size]
                    at += size
    except Refusal:
        return
