"""Index of undecided half messages over two system topics: the half topic, in which they wait, and the op topic, whose
markers say which are decided. Both topics are the durable state; a checkpoint says where a restart begins to read them.
Knows no producer."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from trimq.clock import Timeline
from trimq.core.api.commit_log_groups import CommitLogGroupApi
from trimq.core.api.commit_log_lookup import CommitLogLookupApi
from trimq.core.api.commit_log_messages import CommitLogMessageApi, OutgoingMessage
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.commit_log.stream import Appended, MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.scheduling.timers import RETRY_MS
from trimq.errors import OffsetOutOfRange, Refusal
from trimq.formats.rocketmq_unit.copies import BROKER_PROPERTIES, WAIT, copied_properties
from trimq.formats.rocketmq_unit.dead_letters import CHECK_MAX_TOPIC, CHECKED_TIMES, HALF_FIRST, REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import (
    TAGS,
    UNIQUE_KEY,
    find_property,
    read_properties,
    tags_code,
    write_properties,
)
from trimq.formats.rocketmq_unit.schedule import SCHEDULE_TOPIC, WHEEL_TOPIC, parse_time_ms
from trimq.formats.rocketmq_unit.unit import TRANSACTION_BITS, Unit, UnitDraft
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.state.system_topics import HALF_TOPIC, OP_TOPIC

log = logging.getLogger(__name__)

TURN_MAX_HALVES = 256
TURN_MAX_BYTES = 1 << 20
"""Maximum number, and bytes, of half messages copied in one turn of the loop, since every connection waits
meanwhile."""

OPTIONAL_PROPERTIES = (*BROKER_PROPERTIES, WAIT)

_GROUP = "CID_RMQ_SYS_TRANS"
_DECIDED = "d"
_FOR_EVER_MS = 2**62

STRAGGLER_DISTANCE = 4096
"""A half message this far behind the newest is copied to the end; otherwise each start would read everything decided
since."""

CHECKPOINT_INTERVAL = 256
"""A checkpoint is written after this many decisions."""


class HalfMessages:
    """Iterates over the offsets of undecided half messages, oldest first. `timeout_ms`: age before which a half message
    is left alone, because its producer may be about to decide it. `arrived` is called when new ones were added."""

    def __init__(
        self,
        topic_api: CommitLogTopicApi,
        message_api: CommitLogMessageApi,
        lookup_api: CommitLogLookupApi,
        group_api: CommitLogGroupApi,
        timeline: Timeline,
        identity: Identity,
        timeout_ms: Callable[[], int],
        arrived: Callable[[], None],
    ) -> None:
        self._topic_api = topic_api
        self._message_api = message_api
        self._lookup_api = lookup_api
        self._group_api = group_api
        self._timeline = timeline
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._arrived = arrived
        self._waiting: dict[int, int] = {}  # offset in the half topic -> time it was first stored
        self._resolving: set[int] = set()  # offsets whose op marker is not durable yet
        self._moved: dict[int, int] = {}  # first offset of a copied half message -> current offset
        self._first: dict[int, int] = {}  # current offset -> first offset
        self._moving: dict[int, Appended] = {}  # offset -> copy that is not durable yet
        self._indexed_to = 0
        self._marks: deque[tuple[int, int]] = deque()
        """Pairs of offsets (half topic, op topic): no marker before the second is about a half message at or behind the
        first."""
        self._saved_checkpoint = (-1, -1)
        self._resolved_since = 0
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._waiting)

    # -- starting

    def start(self) -> None:
        """Loads the undecided half messages."""
        half_topic, halves = self.stream(HALF_TOPIC)
        op_topic, ops = self.stream(OP_TOPIC)
        cursors = [self._group_api.cursor(SYSTEM, _GROUP, topic, 0) for topic in (half_topic, op_topic)]
        half_start, op_start = (0 if cursor is None else cursor.offset for cursor in cursors)
        self._marks.append((half_start, op_start))
        self._indexed_to = max(half_start, halves.start)
        decided = {offset for record in ops.records(op_start) for offset in _offsets(record.body or b"")}
        self._find(halves, decided)
        for offset in list(self._waiting):
            if self._is_already_resolved(halves.unit(offset)):
                self._drop(offset)
        self._index()

    def stop(self) -> None:
        """Stops copying."""
        self._is_stopped = True

    def _find(self, halves: MessageQueue, decided: set[int]) -> None:
        """Indexes the stored half messages. A copy names its source: a crash may have kept the copy and lost the marker
        that the source is decided."""
        offsets: dict[int, int] = {}
        for offset, _ in halves.codes(self._indexed_to):
            unit = halves.unit(offset)
            offsets[unit.position] = offset
            if unit.prepared_position or find_property(unit.properties, HALF_FIRST) is not None:
                self._drop(offsets.get(unit.prepared_position, -1))
            else:
                self._drop(self._previous_copy(unit))
            if offset not in decided:
                self._add(offset, unit)
            self._indexed_to = offset + 1

    def _previous_copy(self, unit: Unit) -> int:
        """Offset of the source of a copy that does not name it: the source is at log position 0, or the broker that
        wrote the copy does not record it. -1: none."""
        times = parse_time_ms(find_property(unit.properties, CHECKED_TIMES))
        unique = find_property(unit.properties, UNIQUE_KEY)
        if not times or unique is None:
            return -1
        for each in self._lookup_api.find_key(SYSTEM, HALF_TOPIC, unique, 0, _FOR_EVER_MS):
            if (
                each.position < unit.position
                and parse_time_ms(find_property(each.properties, CHECKED_TIMES)) == times - 1
            ):
                return each.queue_offset
        return -1

    def _is_already_resolved(self, unit: Unit) -> bool:
        """Whether the half message was committed or discarded. A crash may have kept the resulting message and lost the
        op marker."""
        topics = (find_property(unit.properties, REAL_TOPIC) or "", SCHEDULE_TOPIC, WHEEL_TOPIC, CHECK_MAX_TOPIC)
        return any(self.has_copy_in(unit, topic) for topic in topics)

    def has_copy_in(self, unit: Unit, topic: str) -> bool:
        """Whether this topic has a message copied from the half message."""
        unique = find_property(unit.properties, UNIQUE_KEY)
        if unique is None:
            return False
        found = self._lookup_api.find_key(SYSTEM, topic, unique, unit.store_ms, _FOR_EVER_MS)
        return any(each.prepared_position == unit.position for each in found)

    def stream(self, name: str) -> tuple[CommitLogTopic, MessageQueue]:
        topic = self._topic_api.get(SYSTEM, name)
        return topic, topic.stream(0)

    def _index(self) -> None:
        """Indexes only durable half messages."""
        self.stream(HALF_TOPIC)[1].watch(self._index)  # first: later appends are indexed even if this fails
        self._index_new()

    def _index_new(self) -> None:
        halves = self.stream(HALF_TOPIC)[1]
        self._add_op_mark()
        try:
            for offset, _ in halves.codes(self._indexed_to):
                self._add_readable(halves, offset)
                self._indexed_to = offset + 1
        except OSError as error:
            log.warning("half messages: reading new ones failed, will be retried (%s)", error)
            if not self._is_stopped:
                self._timeline.call_at(self._timeline.now_ms() + RETRY_MS, self._index_new)
        self._arrived()

    def _add_readable(self, halves: MessageQueue, offset: int) -> None:
        try:
            self._add(offset, halves.unit(offset))
        except Refusal as refusal:
            log.error("half message at offset %d: unreadable, no check-back (%s)", offset, refusal)

    def _add_op_mark(self) -> None:
        """Adds a pair before half messages are indexed that no op marker can be about yet."""
        offset, op_offset = self._marks[-1]
        op_end = self.stream(OP_TOPIC)[1].readable_end
        if self._indexed_to - offset >= CHECKPOINT_INTERVAL or op_end - op_offset >= CHECKPOINT_INTERVAL:
            self._marks.append((self._indexed_to, op_end))

    def _add(self, offset: int, unit: Unit) -> None:
        first = find_property(unit.properties, HALF_FIRST)
        if first is None:
            self._waiting[offset] = unit.store_ms
            return
        was_at, _, since_ms = first.partition(",")
        self._waiting[offset] = parse_time_ms(since_ms)
        self._first[offset] = parse_time_ms(was_at)
        self._moved[parse_time_ms(was_at)] = offset

    def _drop(self, offset: int) -> None:
        self._waiting.pop(offset, None)
        first = self._first.pop(offset, -1)
        if self._moved.get(first) == offset:
            del self._moved[first]

    # -- undecided half messages

    def current_copy(self, unit: Unit) -> Unit | None:
        """Returns a half message that a producer refers to, at its current offset. None: it is decided, or its decision
        is not durable yet."""
        offset = self._moved.get(unit.queue_offset, unit.queue_offset)
        moving = self._moving.get(offset)
        # A marker for the new offset is written with the copy or after it, unless the copy was refused.
        if moving is not None and moving.ticket.refusal is None and moving.queue_offset not in self._resolving:
            return unit._replace(queue_offset=moving.queue_offset, position=moving.position)
        if self.since_ms(offset) is None:
            return None
        return unit if offset == unit.queue_offset else self.unit(offset)

    def since_ms(self, offset: int) -> int | None:
        """Time the half message was first stored. None: it is decided, or its decision is not durable yet."""
        return None if offset in self._resolving else self._waiting.get(offset)

    def unit(self, offset: int) -> Unit:
        return self.stream(HALF_TOPIC)[1].unit(offset)

    # -- decisions

    def resolve(self, offset: int, becomes: OutgoingMessage | None) -> list[Appended]:
        """Appends the message that the half message becomes, if any, and the op marker that it is decided: both or
        none."""
        topic, stream = self.stream(OP_TOPIC)
        host = self._identity.store_host
        properties = write_properties({TAGS: _DECIDED})
        draft = UnitDraft(topic.raw_name, 0, b"%d," % offset, properties, 0, 0, self._timeline.now_ms(), host)
        op_offset = OutgoingMessage(topic, stream, draft, tags_code(_DECIDED))
        placed = self._message_api.append_all(SYSTEM, [op_offset] if becomes is None else [becomes, op_offset], host)
        self._resolving.add(offset)
        self._message_api.on_durable(placed[-1].ticket, lambda done: self._resolved(offset, done.refusal is None))
        return placed

    def _resolved(self, offset: int, is_durable: bool) -> None:
        self._resolving.discard(offset)
        self._moving.pop(offset, None)
        if not is_durable:
            return
        self._drop(offset)
        self._resolved_since += 1
        if not self._waiting or self._resolved_since >= CHECKPOINT_INTERVAL:
            self.checkpoint()

    def forget(self, offsets: Iterable[int]) -> None:
        """Forgets half messages that retention has deleted."""
        for offset in offsets:
            self._drop(offset)
        self._save_checkpoint()

    def rewrite(self, unit: Unit, properties: dict[str, str]) -> OutgoingMessage:
        """Returns a copy of a half message for the half topic."""
        topic, halves = self.stream(HALF_TOPIC)
        return copy_half(topic, halves, unit, properties, tags_code(properties.get(TAGS, "")))

    # -- checkpoints

    def checkpoint(self) -> None:
        """Copies half messages that are far behind, and saves where a start begins to read."""
        self._resolved_since = 0
        if not self._is_stopped:
            self._move_stragglers()
        self._save_checkpoint()

    def _move_stragglers(self) -> None:
        """Copies old half messages to the end, so that a start need not read everything stored and decided since."""
        behind, now_ms, size = self._far_behind(), self._timeline.now_ms(), 0
        for offset in list(islice(self._waiting, TURN_MAX_HALVES)):
            if offset >= behind or size >= TURN_MAX_BYTES:
                break
            if offset in self._resolving or now_ms - self._waiting[offset] < self._timeout_ms():
                continue
            with suppress(Refusal):  # retried at the next checkpoint
                size += self._move(offset)

    def _far_behind(self) -> int:
        """Offset before which a half message is far behind. The distance grows with the number of undecided ones:
        otherwise copying one past the others would make those the next to be copied, for ever."""
        limit = STRAGGLER_DISTANCE + 2 * len(self._waiting)
        op_offset = self.stream(OP_TOPIC)[1].readable_end - limit
        by_ops = next((offset for offset, each in self._marks if each >= op_offset), self._indexed_to)
        return max(self._indexed_to - limit, by_ops)

    def _move(self, offset: int) -> int:
        """Copies a half message unchanged to the end of the half topic. Returns its size."""
        try:
            unit = self.unit(offset)
        except OffsetOutOfRange:
            self._drop(offset)
            return 0
        properties = read_properties(unit.properties)
        properties[HALF_FIRST] = f"{self._first.get(offset, offset)},{self._waiting[offset]}"
        self._moving[offset] = self.resolve(offset, self.rewrite(unit, properties))[0]
        return unit.size

    def _save_checkpoint(self) -> None:
        """Saves the offset of the oldest undecided half message, and the offset in the op topic before which no marker
        matters."""
        oldest = next(iter(self._waiting), self._indexed_to)
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            self._marks.popleft()
        op_offset = self._marks[0][1] if self._waiting else self.stream(OP_TOPIC)[1].readable_end
        if self._saved_checkpoint == (oldest, op_offset):
            return
        self._saved_checkpoint = oldest, op_offset
        # In this order: a torn write that kept only the second would make decided half messages undecided again.
        for name, offset in ((HALF_TOPIC, oldest), (OP_TOPIC, op_offset)):
            self._group_api.commit(SYSTEM, _GROUP, self.stream(name)[0], 0, offset)


def copy_half(
    topic: CommitLogTopic,
    stream: MessageQueue,
    unit: Unit,
    properties: dict[str, str],
    code: int,
    bits: int = 0,
) -> OutgoingMessage:
    """Returns the message that a half message becomes, in any topic. It names its source. `bits`: transaction bits of
    its system flag."""
    draft = UnitDraft(
        topic.raw_name,
        stream.id.number,
        unit.body,
        copied_properties(properties, OPTIONAL_PROPERTIES),
        unit.flag,
        unit.sys_flag & ~TRANSACTION_BITS | bits,
        unit.born_ms,
        unit.born_host,
        unit.reconsume_times,
        unit.position,
    )
    return OutgoingMessage(topic, stream, draft, code)


def read_half(unit: Unit) -> dict[str, str]:
    """Properties of a half message, without those of its copies."""
    properties = read_properties(unit.properties)
    properties.pop(HALF_FIRST, None)
    return properties


def _offsets(body: bytes) -> list[int]:
    """Offsets of the half messages that an op marker decides."""
    return [int(op_offset) for op_offset in body.split(b",") if op_offset.isdigit() and len(op_offset) < 19]
