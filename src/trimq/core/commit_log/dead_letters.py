"""Failed messages of the commit log. Each is stored in a dead-letter topic, and the ledger of failures has an entry
with its position, which is listed while the dead letter exists. Both are written in one pass; after a crash that kept
only one of them, the next start repairs the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import msgspec

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition, CommitLogTopics
from trimq.core.failures.ledger import FailureEntry, Origin, Reason, from_record
from trimq.core.failures.ledger_log import LedgerLog
from trimq.errors import InvalidRecords, OffsetOutOfRange, UnknownStream
from trimq.formats.rocketmq_unit.dead_letters import (
    DeadLetter,
    is_dead_letter_topic,
    read_dead_letter,
    resend_draft,
    was_dead_lettered_by_broker,
)
from trimq.formats.rocketmq_unit.properties import TAGS, find_property, tags_code
from trimq.formats.rocketmq_unit.records import from_record as unit_from_record
from trimq.formats.rocketmq_unit.records import to_record
from trimq.formats.rocketmq_unit.retries import RETRY_PREFIX
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft
from trimq.model import SYSTEM, Caller, Record, StreamId, TopicName
from trimq.storage.commit_log.log import AppendedUnit
from trimq.storage.group_commit.passes import JointTicket, Ticket

log = logging.getLogger(__name__)

_PLACE = "letter.place"
_STORE_HOST = "letter.store_host"
_UNKNOWN = -1

# Passes that were not yet durable when the broker crashed were begun at most this long apart.
_TORN_MS = 60_000

GiveUp = Callable[[Caller, Record, Reason, Origin, int], Ticket]
UnitAt = Callable[[int], Unit]


class DeadLetterPosition(NamedTuple):
    """Position of a dead letter, with enough detail to distinguish it from another one that was stored at the same
    offset after a crash. `resend_to`: topic for a redrive."""

    topic: str
    offset: int
    position: int
    store_ms: int
    resend_to: str
    again_queue: int


class CommitLogDeadLetters:
    """Records failed messages of the commit log in the ledger, and redrives them. `unit_at` returns the message at a
    log position. `give_up` appends an entry to `ledger`."""

    def __init__(self, topics: CommitLogTopics, unit_at: UnitAt, give_up: GiveUp, ledger: LedgerLog) -> None:
        self._topics = topics
        self._unit_at = unit_at
        self._give_up = give_up
        self._ledger = ledger

    def record_dead_letter(
        self,
        caller: Caller,
        topic: CommitLogTopic,
        placed: AppendedUnit,
        draft: UnitDraft | Unit,
        reason: Reason,
        resend_to: tuple[str, int] | None = None,
    ) -> None:
        """Records that the message just appended to `topic` failed. The entry becomes durable together with the
        message. `resend_to`: topic and queue for a redrive; by default the message's own properties decide."""
        letter = read_dead_letter(draft)
        place = DeadLetterPosition(
            topic.name.name, placed.queue_offset, placed.position, placed.store_ms, *(resend_to or letter.resend_to)
        )
        message = Record(None, timestamp_ms=draft.born_ms, extras={_PLACE: msgspec.msgpack.encode(place)})
        self._give_up(caller, message, reason, self._origin(topic, letter), letter.attempts)

    def _origin(self, topic: CommitLogTopic, letter: DeadLetter) -> Origin:
        name = TopicName(topic.name.namespace, letter.topic)
        origin = self._topics.find(name) or topic
        queue_id, offset = letter.queue_id, _UNKNOWN
        try:
            unit = self._unit_at(letter.origin_position)
            if unit.topic == letter.topic.encode():
                queue_id, offset = unit.queue_id, unit.queue_offset
        except OffsetOutOfRange:
            pass  # deleted by retention
        return Origin(name, StreamId(origin.id, queue_id), offset, letter.group)

    def record_removed_message(self, caller: Caller, unit: Unit, topic: str, queue_id: int, reason: Reason) -> None:
        """Records a message that fails and is deleted from the log: the entry holds the whole message. `topic` and
        `queue_id` are its destination."""
        name = TopicName(caller.namespace, topic)
        found = self._topics.find(name)
        stream = StreamId(UUID(int=0) if found is None else found.id, queue_id)
        record = to_record(unit)
        record = replace(record, extras={**record.extras, _STORE_HOST: unit.store_host})
        self._give_up(caller, record, reason, Origin(name, stream, _UNKNOWN), unit.reconsume_times)

    # -- LetterSource of the ledger

    def owns(self, entry: FailureEntry) -> bool:
        return is_from_commit_log(entry)

    def find(self, entry: FailureEntry) -> FailureEntry | None:
        """Returns the entry with its message. None: the dead letter is no longer stored."""
        if dead_letter_position(entry) is None:
            return entry
        unit = self._unit(entry)
        return None if unit is None else replace(entry, record=to_record(unit))

    def send_again(self, entry: FailureEntry) -> Ticket | None:
        """Sends the message to the topic and queue that its entry names. None: the dead letter is no longer stored."""
        if dead_letter_position(entry) is None:
            return self._send_kept(entry)
        unit = self._unit(entry)
        if unit is None:
            return None
        place = dead_letter_position(entry)
        assert place is not None, "`_unit` found a dead letter, so the entry has its position"
        name = TopicName(entry.origin.topic.namespace, place.resend_to)
        topic = self._topics.find(name)
        if topic is None:
            if not place.resend_to.startswith(RETRY_PREFIX):
                self._topics.get(name)  # raises: only retry topics are created here
            topic, _ = self._topics.create(CommitLogTopicDefinition(name.namespace, name.name, 1, 1))
        code = tags_code(find_property(unit.properties, TAGS) or "")
        draft = resend_draft(unit, (place.resend_to, place.again_queue))
        ticket = topic.stream(place.again_queue).append(draft, code, unit.store_host).ticket
        return ticket if topic.creation is None else JointTicket([topic.creation, ticket])

    def _send_kept(self, entry: FailureEntry) -> Ticket:
        """Sends a message that the entry itself holds to its original destination."""
        topic, number = self._topics.get(entry.origin.topic), entry.origin.stream.number
        stream = topic.stream(number)
        host = entry.record.extras.get(_STORE_HOST)
        assert isinstance(host, bytes), "record_removed_message stores the host"
        draft = resend_draft(unit_from_record(entry.record, topic.raw_name, number, host), (topic.name.name, number))
        code = tags_code(find_property(draft.properties, TAGS) or "")
        return stream.append(draft, code, host).ticket

    def _unit(self, entry: FailureEntry) -> Unit | None:
        place = dead_letter_position(entry)
        topic = place and self._topics.find(TopicName(entry.origin.topic.namespace, place.topic))
        if place is None or topic is None:
            return None
        try:
            unit = topic.stream(0).unit(place.offset)
        except (OffsetOutOfRange, UnknownStream):
            return None
        return unit if (unit.position, unit.store_ms) == (place.position, place.store_ms) else None

    # -- after a crash

    def start(self) -> None:
        """Adds the missing ledger entries of the newest dead letters. A damaged ledger does not prevent the start."""
        letters = [topic for topic in self._topics if is_dead_letter_topic(topic.name.name)]
        streams = [(topic, stream) for topic in letters for stream in topic.streams()[:1] if _has_any(stream)]
        newest_ms = max((stream.unit(stream.readable_end - 1).store_ms for _, stream in streams), default=0)
        since_ms = newest_ms - _TORN_MS
        try:
            known = self._known(since_ms) if streams else None
        except InvalidRecords as error:
            log.warning("dead letters: missing ledger entries are not restored (ledger damaged: %s)", error)
            return
        if known is None:
            return
        for topic, stream in streams:
            for unit in _newest(stream, since_ms):
                if (unit.position, unit.store_ms) not in known and was_dead_lettered_by_broker(unit):
                    reason = Reason.UNDECIDED if read_dead_letter(unit).is_half else Reason.DELIVERY_LIMIT
                    placed = AppendedUnit(unit.queue_offset, unit.position, unit.size, unit.store_ms, Ticket(0))
                    self.record_dead_letter(SYSTEM, topic, placed, unit, reason)

    def _known(self, since_ms: int) -> set[tuple[int, int]] | None:
        """Positions and store times of dead letters since this time that have an entry. None: the ledger has already
        deleted entries of that time."""
        if not self._ledger.covers_since(since_ms):
            return None
        entries = (from_record(record) for record in self._ledger.since(since_ms))
        places = (dead_letter_position(entry) for entry in entries if isinstance(entry, FailureEntry))
        return {(place.position, place.store_ms) for place in places if place is not None}


class ClosedCommitLog:
    """Ledger source while the commit log is not open: its dead letters cannot be read."""

    def owns(self, entry: FailureEntry) -> bool:
        return is_from_commit_log(entry)

    def find(self, entry: FailureEntry) -> FailureEntry | None:
        return entry if dead_letter_position(entry) is None else None

    def send_again(self, entry: FailureEntry) -> None:
        return None


def is_from_commit_log(entry: FailureEntry) -> bool:
    """Whether the message failed in the commit log."""
    return dead_letter_position(entry) is not None or _STORE_HOST in entry.record.extras


def dead_letter_position(entry: FailureEntry) -> DeadLetterPosition | None:
    """Position of the entry's dead letter. None: the entry holds the message itself."""
    packed = entry.record.extras.get(_PLACE)
    return None if not isinstance(packed, bytes) else msgspec.msgpack.decode(packed, type=DeadLetterPosition)


def _has_any(stream: MessageQueue) -> bool:
    return stream.readable_end > stream.start


def _newest(stream: MessageQueue, since_ms: int) -> Iterator[Unit]:
    """Messages stored since this time, oldest first."""
    first = stream.readable_end
    while first > stream.start and stream.unit(first - 1).store_ms >= since_ms:
        first -= 1
    return (stream.unit(offset) for offset in range(first, stream.readable_end))
