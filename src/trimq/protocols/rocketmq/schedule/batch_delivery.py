"""Messages that are due together and want nothing but to come into their topics: read, copied and stored in one step,
which takes a tenth of the time. Whatever is special about one is left to `delays`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from trimq.core.api.commit_log import Sharing
from trimq.core.commit_log.stream import AppendedRun, SharedStream
from trimq.core.commit_log.topics import SharedTopic
from trimq.core.scheduling.timers import TimerEntry
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.batch_encoder import Lane, Message
from trimq.formats.rocketmq_unit.copies import read_original
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
from trimq.formats.rocketmq_unit.schedule import TIMER_OUT_MS, read_time
from trimq.formats.rocketmq_unit.unit import LONGEST_PROPERTIES
from trimq.model import SYSTEM

RECALLED = "TIMER_DEL_UNIQKEY"
ENQUEUED_MS, DEQUEUED_MS = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"

# A word that takes another message back is none itself; what has waited before is told anew when it came.
_SPECIAL = frozenset((RECALLED, ENQUEUED_MS, DEQUEUED_MS))

# Longer ones gain nothing by company, and many of them would make a turn long.
_LONGEST_BODY = 16 * 1024

_V4_BYTES = 8
_ENDS = VALUE_ENDS.encode()
_KEY = f"{UNIQUE_KEY}{NAME_ENDS}".encode()
_LATER_KEY = _ENDS + _KEY

_READ_BYTES = 4 << 20


class _Kind(NamedTuple):
    """What is known of messages whose properties differ in their unique keys alone."""

    lane: Lane
    topic: str
    code: int
    keys: str
    is_timed: bool


class DueRow:
    """Takes messages of `row` until one is special; then `deliver` stores them, and it goes on behind that one. What is
    read for the first stretch of them is not read again for the next.

    `recalled`: what was taken back, and where that is said. `suspects`: the keys of those that must be asked for."""

    def __init__(
        self,
        row: Sequence[TimerEntry],
        sharing: Sharing,
        store_host: bytes,
        now_ms: int,
        recalled: Mapping[str, int],
        suspects: Collection[str],
    ) -> None:
        self.row = row
        self._sharing = sharing
        self._store_host = store_host
        self._now_ms = now_ms
        self._recalled = recalled
        self._suspects = suspects
        self._longest = min(_LONGEST_BODY, sharing.message_bytes)
        self._ways: dict[tuple[str, str], tuple[SharedTopic, SharedStream, Lane]] = {}
        self._kinds: dict[bytes, _Kind | None] = {}
        self._messages: list[Message] = []
        self._keys: list[str] = []
        self._more_keys: dict[int, str] = {}
        self._told = (-1, b"")
        self.entries: list[TimerEntry] = []
        # The stretch that was looked at last, and what is being read of it: from which number on, and up to which.
        self._stretch = range(0)
        self._units: Iterator[memoryview] = iter(())
        self._next = self._read_to = 0

    def stretch_end(self, begin: int) -> int:
        """Behind those of the row that stand one after the other in one queue."""
        if begin not in self._stretch:
            stream, first = self.row[begin]
            end = begin + 1
            while end < len(self.row) and self.row[end] == (stream, first + end - begin):
                end += 1
            self._stretch = range(begin, end)
        return self._stretch.stop

    def take_stretch(self, stream: SharedStream, begin: int, end: int) -> bool:
        """Whether all of the row between these numbers, which stand one after the other in this stream, may come
        together. False: those up to one that is special were taken."""
        before = len(self.entries)
        try:
            self._read_from(stream, begin)
            is_plain = all(map(self.take, self.row[begin:end], self._units))
        except OSError:  # of a file that cannot be opened now; whoever is next will tell
            self._read_to = 0
            return False
        count = len(self.entries) - before
        self._next = begin + count + (not is_plain)
        if is_plain and count < end - begin:  # one could not be read
            self._read_to = 0
            return False
        return is_plain

    def _read_from(self, stream: SharedStream, begin: int) -> None:
        if not self._next <= begin < self._read_to:
            self._read_to = self.stretch_end(begin)
            self._units = units_at(stream, self.row[begin].position, self._read_to - begin)
            self._next = begin
        for _ in islice(self._units, begin - self._next):
            pass

    def take(self, entry: TimerEntry, unit: memoryview) -> bool:
        """Whether the message is one of those that may come together."""
        original = read_original(unit)
        if original is None:
            return False
        crc, flag, sys_flag, born_ms, born_host, store_ms, times, body, written = original
        unique, rest = _without_key(written)
        if not unique or len(body) > self._longest or unique in self._suspects:
            return False
        # Most of those that are due together differ in their keys alone.
        kind = self._kinds.get(rest)
        if kind is None:
            if rest in self._kinds or (kind := self._find_kind(rest)) is None:
                self._kinds[rest] = None
                return False
            self._kinds[rest] = kind
        if kind.is_timed:
            if self._recalled and self._recalled.get(f"{kind.topic}+{unique}", -1) > entry.position:
                return False
            written += self._tell(store_ms)
        if len(written) > LONGEST_PROPERTIES:
            return False
        if kind.keys:
            self._more_keys[len(self.entries)] = kind.keys
        self._messages.append((kind.lane, body, written, flag, sys_flag, born_ms, times, kind.code, crc, born_host))
        self._keys.append(unique)
        self.entries.append(entry)
        return True

    def _find_kind(self, rest: bytes) -> _Kind | None:
        """None: `delays` must look at it more closely."""
        properties = _read_plain(rest)
        if properties is None or not _SPECIAL.isdisjoint(properties):
            return None
        topic, queue = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE, "")
        way = self._ways.get((topic, queue)) or self._find_way(topic, queue)
        if way is None:
            return None
        code = tags_code(properties[TAGS]) if TAGS in properties else 0
        return _Kind(way[2], topic, code, properties.get(KEYS, ""), TIMER_OUT_MS in properties)

    def _tell(self, store_ms: int) -> bytes:
        """When it came to wait, and when it waited no longer; many that wait came together."""
        if self._told[0] != store_ms:
            self._told = store_ms, b"%s\x01%d\x02%s\x01%d\x02" % (
                ENQUEUED_MS.encode(), store_ms, DEQUEUED_MS.encode(), self._now_ms,
            )  # fmt: skip
        return self._told[1]

    def _find_way(self, topic: str, queue: str) -> tuple[SharedTopic, SharedStream, Lane] | None:
        """None: `delays` finds out what is wrong with it."""
        if len(self._store_host) != _V4_BYTES:
            return None
        try:
            found = self._sharing.find(SYSTEM, topic)
            if found is None:
                return None
            stream = found.kept_stream(read_time(queue))
        except Refusal:
            return None
        self._ways[topic, queue] = way = found, stream, stream.lane
        return way

    def deliver(self) -> AppendedRun:
        return self._sharing.append_run(
            SYSTEM, self._ways.values(), self._messages, self._keys, self._more_keys, self._store_host
        )

    def go_on(self) -> None:
        """With none taken: others of the row follow."""
        self._messages, self._keys, self._more_keys, self.entries = [], [], {}, []


def _without_key(written: bytes) -> tuple[str, bytes]:
    """The unique key of a message, and its properties without that. An empty one: it is not there, or unlike those that
    clients make."""
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
    """The properties of a message without its key, for which a "?" stands, and to which others may be added. None: they
    must be written anew."""
    if not rest.endswith(_ENDS):
        return None
    at = rest.find(_KEY)
    try:
        return read_plain_properties(f"{rest[:at].decode()}{UNIQUE_KEY}\x01?{rest[at + len(_KEY) :].decode()}")
    except UnicodeDecodeError:
        return None


def units_at(stream: SharedStream, offset: int, count: int) -> Iterator[memoryview]:
    """The messages that stand there one after the other, up to one that is not there or cannot be read."""
    end = offset + count
    try:
        while offset < end:
            found = stream.read(offset, end - offset, _READ_BYTES, end - offset, with_old=True)
            if found.next_offset == offset:
                return
            offset = found.next_offset
            for each in found.parts:
                part, at = memoryview(each), 0
                while at < len(part):
                    # A size of 0 is damage, at which the rest is given: it would never end.
                    size = int.from_bytes(part[at : at + 4], "big") or len(part)
                    yield part[at : at + size]
                    at += size
    except Refusal:
        return
