"""The halves that no word decides yet: an index of two topics of the broker's own, one in which halves wait, one whose
words say which are decided. Both are the durable truth; where a restart begins to read them is kept beside. Knows no
producer."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from trimq.clock import Timeline
from trimq.core.api.commit_log import CommitLogApi, OutgoingMessage
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
"""So many halves, or bytes of them, are stored anew in one turn of the loop: every connection waits meanwhile."""

OPTIONAL_PROPERTIES = (*BROKER_PROPERTIES, WAIT)

_GROUP = "CID_RMQ_SYS_TRANS"
_DECIDED = "d"
_FOR_EVER_MS = 2**62

STRAGGLER_DISTANCE = 4096
"""A half that waits so far behind the newest is moved, or each start would read all that was decided since."""

CHECKPOINT_INTERVAL = 256
"""After so many decisions it is noted where a start has to begin."""


class HalfMessages:
    """Iterates over the offsets of those that wait, oldest first. `timeout_ms`: for how long one is left alone, because
    its producer may just be about to decide. `arrived` is called when some have come."""

    def __init__(
        self,
        commit_log_api: CommitLogApi,
        timeline: Timeline,
        identity: Identity,
        timeout_ms: Callable[[], int],
        arrived: Callable[[], None],
    ) -> None:
        self._commit_log_api = commit_log_api
        self._timeline = timeline
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._arrived = arrived
        self._waiting: dict[int, int] = {}  # offset in the half topic, and since when it waits
        self._resolving: set[int] = set()  # whose word is on its way to the disk
        self._moved: dict[int, int] = {}  # where a half stood first, and where it stands
        self._first: dict[int, int] = {}  # the other way round
        self._moving: dict[int, Appended] = {}  # where it will stand
        self._indexed_to = 0
        self._marks: deque[tuple[int, int]] = deque()
        """An offset in the half topic, and one in the other: no word before it is about that half or one behind it."""
        self._saved_checkpoint = (-1, -1)
        self._resolved_since = 0
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._waiting)

    # -- starting

    def start(self) -> None:
        """Find the halves that no word decides."""
        half_topic, halves = self.stream(HALF_TOPIC)
        op_topic, ops = self.stream(OP_TOPIC)
        cursors = [self._commit_log_api.cursor(SYSTEM, _GROUP, topic, 0) for topic in (half_topic, op_topic)]
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
        """Move nothing any more."""
        self._is_stopped = True

    def _find(self, halves: MessageQueue, decided: set[int]) -> None:
        """What is there already. A half that is stored anew tells what it was made of: a crash may have kept it and
        lost the word that the one before it does not count any more."""
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
        """The half that this one was made of, by the first of its log or by a broker that does not note that. -1:
        none."""
        times = parse_time_ms(find_property(unit.properties, CHECKED_TIMES))
        unique = find_property(unit.properties, UNIQUE_KEY)
        if not times or unique is None:
            return -1
        for each in self._commit_log_api.find_key(SYSTEM, HALF_TOPIC, unique, 0, _FOR_EVER_MS):
            if (
                each.position < unit.position
                and parse_time_ms(find_property(each.properties, CHECKED_TIMES)) == times - 1
            ):
                return each.queue_offset
        return -1

    def _is_already_resolved(self, unit: Unit) -> bool:
        """A crash may have kept what a half became, and lost the word that it was decided."""
        topics = (find_property(unit.properties, REAL_TOPIC) or "", SCHEDULE_TOPIC, WHEEL_TOPIC, CHECK_MAX_TOPIC)
        return any(self.has_copy_in(unit, topic) for topic in topics)

    def has_copy_in(self, unit: Unit, topic: str) -> bool:
        """Whether a message of this topic was."""
        unique = find_property(unit.properties, UNIQUE_KEY)
        if unique is None:
            return False
        found = self._commit_log_api.find_key(SYSTEM, topic, unique, unit.store_ms, _FOR_EVER_MS)
        return any(each.prepared_position == unit.position for each in found)

    def stream(self, name: str) -> tuple[CommitLogTopic, MessageQueue]:
        topic = self._commit_log_api.topic(SYSTEM, name)
        return topic, topic.stream(0)

    def _index(self) -> None:
        """Only what is durable is waited for."""
        self.stream(HALF_TOPIC)[1].watch(self._index)  # first: what comes later is looked at, whatever happens now
        self._index_new()

    def _index_new(self) -> None:
        halves = self.stream(HALF_TOPIC)[1]
        self._add_op_mark()
        try:
            for offset, _ in halves.codes(self._indexed_to):
                self._add_readable(halves, offset)
                self._indexed_to = offset + 1
        except OSError as error:
            log.warning("undecided transactions could not be looked for, it is tried again: %s", error)
            if not self._is_stopped:
                self._timeline.call_at(self._timeline.now_ms() + RETRY_MS, self._index_new)
        self._arrived()

    def _add_readable(self, halves: MessageQueue, offset: int) -> None:
        try:
            self._add(offset, halves.unit(offset))
        except Refusal as refusal:
            log.error("nobody will be asked about the undecided transaction %d: %s", offset, refusal)

    def _add_op_mark(self) -> None:
        """Before halves are found that no word was about yet."""
        offset, op_offset = self._marks[-1]
        word_end = self.stream(OP_TOPIC)[1].readable_end
        if self._indexed_to - offset >= CHECKPOINT_INTERVAL or word_end - op_offset >= CHECKPOINT_INTERVAL:
            self._marks.append((self._indexed_to, word_end))

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

    # -- those that wait

    def current_copy(self, unit: Unit) -> Unit | None:
        """A half that a producer knows, in the place in which it waits now. None: it is decided, or just being so."""
        offset = self._moved.get(unit.queue_offset, unit.queue_offset)
        moving = self._moving.get(offset)
        # A word about the new place is written with it or behind it, unless that was refused.
        if moving is not None and moving.ticket.refusal is None and moving.queue_offset not in self._resolving:
            return unit._replace(queue_offset=moving.queue_offset, position=moving.position)
        if self.since_ms(offset) is None:
            return None
        return unit if offset == unit.queue_offset else self.unit(offset)

    def since_ms(self, offset: int) -> int | None:
        """Since when it waits. None: it does not, or is just being decided."""
        return None if offset in self._resolving else self._waiting.get(offset)

    def unit(self, offset: int) -> Unit:
        return self.stream(HALF_TOPIC)[1].unit(offset)

    # -- and are decided

    def resolve(self, offset: int, becomes: OutgoingMessage | None) -> list[Appended]:
        """What the half becomes, if anything, and the word that it is decided: both, or none."""
        topic, stream = self.stream(OP_TOPIC)
        host = self._identity.store_host
        properties = write_properties({TAGS: _DECIDED})
        draft = UnitDraft(topic.raw_name, 0, b"%d," % offset, properties, 0, 0, self._timeline.now_ms(), host)
        op_offset = OutgoingMessage(topic, stream, draft, tags_code(_DECIDED))
        placed = self._commit_log_api.append_all(SYSTEM, [op_offset] if becomes is None else [becomes, op_offset], host)
        self._resolving.add(offset)
        self._commit_log_api.on_durable(placed[-1].ticket, lambda done: self._resolved(offset, done.refusal is None))
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
        """They are kept no longer."""
        for offset in offsets:
            self._drop(offset)
        self._save_checkpoint()

    def rewrite(self, unit: Unit, properties: dict[str, str]) -> OutgoingMessage:
        """A half, stored anew."""
        topic, halves = self.stream(HALF_TOPIC)
        return copy_half(topic, halves, unit, properties, tags_code(properties.get(TAGS, "")))

    # -- where a start begins

    def checkpoint(self) -> None:
        """Move what is far behind, and note where a start has to begin."""
        self._resolved_since = 0
        if not self._is_stopped:
            self._move_stragglers()
        self._save_checkpoint()

    def _move_stragglers(self) -> None:
        """So that a start need read neither what came since they came, nor what was decided since."""
        behind, now_ms, size = self._far_behind(), self._timeline.now_ms(), 0
        for offset in list(islice(self._waiting, TURN_MAX_HALVES)):
            if offset >= behind or size >= TURN_MAX_BYTES:
                break
            if offset in self._resolving or now_ms - self._waiting[offset] < self._timeout_ms():
                continue
            with suppress(Refusal):  # later, then
                size += self._move(offset)

    def _far_behind(self) -> int:
        """What stands before this offset is. Where many wait, those that came with the first are not: to move one past
        the others would make these the next to be moved, for ever."""
        limit = STRAGGLER_DISTANCE + 2 * len(self._waiting)
        op_offset = self.stream(OP_TOPIC)[1].readable_end - limit
        by_words = next((offset for offset, each in self._marks if each >= op_offset), self._indexed_to)
        return max(self._indexed_to - limit, by_words)

    def _move(self, offset: int) -> int:
        """Store a half anew as if nothing had happened to it. How long it is."""
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
        """No half before the oldest that waits matters to a start, nor a word about one."""
        oldest = next(iter(self._waiting), self._indexed_to)
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            self._marks.popleft()
        op_offset = self._marks[0][1] if self._waiting else self.stream(OP_TOPIC)[1].readable_end
        if self._saved_checkpoint == (oldest, op_offset):
            return
        self._saved_checkpoint = oldest, op_offset
        # In this order: a torn write that kept the second alone would bring decided halves back.
        for name, offset in ((HALF_TOPIC, oldest), (OP_TOPIC, op_offset)):
            self._commit_log_api.commit(SYSTEM, _GROUP, self.stream(name)[0], 0, offset)


def copy_half(
    topic: CommitLogTopic,
    stream: MessageQueue,
    unit: Unit,
    properties: dict[str, str],
    code: int,
    bits: int = 0,
) -> OutgoingMessage:
    """What a half becomes, wherever that goes. It tells what it was made of. `bits`: what
    its system flag says of a transaction."""
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
    """The properties of a half, without what only tells of its way as a half."""
    properties = read_properties(unit.properties)
    properties.pop(HALF_FIRST, None)
    return properties


def _offsets(body: bytes) -> list[int]:
    """The halves that a word is about."""
    return [int(op_offset) for op_offset in body.split(b",") if op_offset.isdigit() and len(op_offset) < 19]
