"""Messages that are due together and want nothing but to come into their topics: read, copied and stored in one step,
which takes a tenth of the time. Whatever is special about one is left to `delays`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimq.core.shared_streams import AppendedRun, Entry, SharedStream
from trimq.core.shared_topics import SharedTopic
from trimq.core.sharing import CopiedRun, Sharing
from trimq.core.timers import TimerEntry
from trimq.errors import Refusal
from trimq.formats.unit import LONGEST_PROPERTIES
from trimq.formats.unit_copies import read_original
from trimq.formats.unit_letters import REAL_QUEUE, REAL_TOPIC
from trimq.formats.unit_properties import KEYS, TAGS, UNIQUE_KEY, VALUE_ENDS, read_plain_properties, tags_code
from trimq.formats.unit_runs import Copied, Lane
from trimq.formats.unit_schedule import TIMER_OUT_MS, read_time
from trimq.model import SYSTEM, StreamId

RECALLED = "TIMER_DEL_UNIQKEY"
ENQUEUED_MS, DEQUEUED_MS = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"

# A word that takes another message back is none itself; what has waited before is told anew when it came.
_SPECIAL = frozenset((RECALLED, ENQUEUED_MS, DEQUEUED_MS))

# Longer ones gain nothing by company, and many of them would make a turn long.
_LONGEST_BODY = 16 * 1024

_V4_BYTES = 8
_ENDS = VALUE_ENDS.encode()


class DueRow:
    """Takes messages until one is special; then `deliver` stores them. `recalled`: what was taken back, and where that
    is said."""

    def __init__(self, sharing: Sharing, store_host: bytes, now_ms: int, recalled: Mapping[str, int]) -> None:
        self._sharing = sharing
        self._store_host = store_host
        self._now_ms = now_ms
        self._recalled = recalled
        self._longest = min(_LONGEST_BODY, sharing.message_bytes)
        self._ways: dict[tuple[str, str], tuple[SharedTopic, SharedStream, Lane]] = {}
        self._messages: list[Copied] = []
        self._keys: list[str] = []
        self._more_keys: dict[int, str] = {}
        self._told = (-1, b"")
        self.entries: list[TimerEntry] = []

    def take(self, entry: TimerEntry, unit: memoryview) -> bool:
        """Whether the message is one of those that may come together."""
        original = read_original(unit)
        if original is None:
            return False
        crc, flag, sys_flag, born_ms, born_host, store_ms, times, body, written = original
        properties = _read_plain(written)
        if properties is None or not _SPECIAL.isdisjoint(properties) or len(body) > self._longest:
            return False
        topic, queue, unique = map(properties.get, (REAL_TOPIC, REAL_QUEUE, UNIQUE_KEY))
        if topic is None or queue is None or unique is None:
            return False
        if TIMER_OUT_MS in properties:
            if self._recalled and self._recalled.get(f"{topic}+{unique}", -1) > entry.position:
                return False
            written += self._tell(store_ms)
        way = self._ways.get((topic, queue)) or self._find_way(topic, queue)
        if way is None or len(written) > LONGEST_PROPERTIES:
            return False
        if KEYS in properties:
            self._more_keys[len(self.entries)] = properties[KEYS]
        code = tags_code(properties[TAGS]) if TAGS in properties else 0
        self._messages.append((way[2], body, written, flag, sys_flag, born_ms, times, code, crc, born_host))
        self._keys.append(unique)
        self.entries.append(entry)
        return True

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
        run = CopiedRun(self._ways.values(), self._messages, self._keys, self._more_keys)
        return self._sharing.append_copies(SYSTEM, run, self._store_host)


def _read_plain(written: bytes) -> dict[str, str] | None:
    """The properties of a message to which others may be added behind them. None: they must be written anew."""
    if not written.endswith(_ENDS):
        return None
    try:
        return read_plain_properties(written.decode())
    except UnicodeDecodeError:
        return None


class DueUnits:
    """Finds the messages of a row where they stand: most follow each other in their queue."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._following: dict[StreamId, Iterator[Entry]] = {}

    def view(self, stream: SharedStream, offset: int) -> memoryview | None:
        """None: it is not there, or cannot be read."""
        try:
            found = next(self._following.get(stream.id, iter(())), None)
            if found is None or found.offset != offset:
                self._following[stream.id] = entries = stream.entries(offset, self._most)
                found = next(entries, None)
            return None if found is None or found.offset != offset else stream.view(found)
        except Refusal:
            return None
