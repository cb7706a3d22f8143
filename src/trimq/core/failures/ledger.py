"""Ledger of failed messages: the reason, the origin and the number of attempts of each. Owns the format of an entry.
Other modules store the ledger and decide whether a message is also dead-lettered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol
from uuid import UUID

import msgspec

from trimq.clock import Timeline
from trimq.errors import Changed, InvalidRecords, UnknownFailure
from trimq.metrics import Metrics
from trimq.model import Caller, Headers, Record, StreamId, TopicName
from trimq.storage.group_commit.passes import Ticket

FailureId = int


class Reason(Enum):
    EXPIRED = "expired"
    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery-limit"
    OVERFLOW = "overflow"
    UNDECIDED = "undecided"


@dataclass(slots=True, frozen=True)
class Origin:
    """Position of the message when it failed. `group` is empty if no group was reading it."""

    topic: TopicName
    stream: StreamId
    offset: int
    group: str = ""


@dataclass(slots=True, frozen=True)
class FailureEntry:
    """One failed message. `principal` is that of the caller that failed it."""

    record: Record
    reason: Reason
    origin: Origin
    attempts: int
    time_ms: int
    principal: str


@dataclass(slots=True, frozen=True)
class RedrivenEntry:
    """Mark that the message of an earlier entry was sent again."""

    failure: FailureId
    time_ms: int
    principal: str


LedgerEntry = FailureEntry | RedrivenEntry


@dataclass(slots=True, frozen=True)
class Failure:
    """Entry with its id in the ledger."""

    id: FailureId
    entry: FailureEntry
    is_redriven: bool


class LetterSource(Protocol):
    """Layout with failed messages in the ledger: finds the message of an entry and sends it again."""

    def owns(self, entry: FailureEntry) -> bool:
        """Returns whether the message of this entry failed in this layout."""

    def find(self, entry: FailureEntry) -> FailureEntry | None:
        """Returns the entry with its message, or None if the message is no longer stored."""

    def send_again(self, entry: FailureEntry) -> Ticket | None:
        """Sends the message to the queue or group where it failed. Returns None if the message is no longer stored."""


AppendEntry = Callable[[LedgerEntry], Ticket]
ReadLedger = Callable[[int], Iterable[Record]]
OnDurable = Callable[[Ticket, Callable[[Ticket], None]], None]


class FailedMessageLedger:
    """`append_entry` appends an entry in the format of `to_record` to the ledger. `read` returns the ledger's records
    from an offset on, or from its start if that is later; a record's offset is the id of its entry. `on_durable` calls
    back when the pass of a ticket is durable or refused."""

    def __init__(
        self, timeline: Timeline, metrics: Metrics, append_entry: AppendEntry, read: ReadLedger, on_durable: OnDurable
    ) -> None:
        self._timeline = timeline
        self._append_entry = append_entry
        self._read = read
        self._counters = metrics.counters("failures", "Messages that failed, by reason.", ["reason"])
        self._on_durable = on_durable
        self._sources: list[LetterSource] = []
        self._redriven: set[FailureId] = set()
        self._marks_read_to = 0

    def give_up(self, caller: Caller, message: Record, reason: Reason, origin: Origin, attempts: int) -> Ticket:
        """Adds a failed message. Every path that fails a message calls this: dead letter, expiry, overflow, delivery
        limit."""
        now_ms = self._timeline.now_ms()
        ticket = self._append_entry(FailureEntry(message, reason, origin, attempts, now_ms, caller.principal))
        self.count(reason)
        return ticket

    def count(self, reason: Reason, number: int = 1) -> None:
        """Counts failed messages with entries that are written in batches."""
        self._counters.labelled(reason.value).add(number)

    def add_source(self, source: LetterSource) -> None:
        """Registers a layout. An entry belongs to the first source that owns it, in the order of registration."""
        self._sources.append(source)

    def all(self, from_id: FailureId = 0) -> Iterator[Failure]:
        """Yields the failures from `from_id` on, oldest first, except those with messages that are no longer stored."""
        for failure in self._entries(from_id):
            source = self._source(failure.entry)
            found = None if source is None else source.find(failure.entry)
            if found is not None:
                yield failure if found is failure.entry else replace(failure, entry=found)

    def _entries(self, from_id: FailureId) -> Iterator[Failure]:
        self._read_marks()
        for record in self._read(from_id):
            entry = from_record(record)
            if isinstance(entry, FailureEntry):
                yield Failure(record.offset, entry, record.offset in self._redriven)

    def _source(self, entry: FailureEntry) -> LetterSource | None:
        return next((source for source in self._sources if source.owns(entry)), None)

    def get(self, id: FailureId) -> Failure:
        found = next(self._entries(id), None) if id >= 0 else None
        if found is None or found.id != id:
            raise UnknownFailure(id)
        return found

    def redrive(self, caller: Caller, id: FailureId) -> Ticket:
        """Sends the message again to where it failed, and marks its entry once that is durable. Raises `Changed` if it
        was redriven already, `UnknownFailure` if the message is no longer stored. A crash between the send and the mark
        loses only the mark: the message may then be sent once more, but is never lost."""
        failure = self.get(id)
        if failure.is_redriven:
            raise Changed(f"failure {id}")
        source = self._source(failure.entry)
        ticket = None if source is None else source.send_again(failure.entry)
        if ticket is None:
            raise UnknownFailure(id)
        self._redriven.add(id)
        self._on_durable(ticket, lambda done: self._mark(caller, id, done))
        return ticket

    def _mark(self, caller: Caller, id: FailureId, sent: Ticket) -> None:
        if sent.refusal is None:
            self._append_entry(RedrivenEntry(id, self._timeline.now_ms(), caller.principal))
        else:
            self._redriven.discard(id)

    def _read_marks(self) -> None:
        """Loads the marks of redriven entries. A mark is stored after its entry, so a listing needs all of them. The
        first call reads the whole ledger, later calls only new records."""
        for record in self._read(self._marks_read_to):
            entry = from_record(record)
            if isinstance(entry, RedrivenEntry):
                self._redriven.add(entry.failure)
            self._marks_read_to = record.offset + 1


# -- format of an entry: the message's key, body and headers, with one header of ours before them. Ours comes first, so
# that a message is decoded correctly if it carries such a header itself, from an earlier entry in a ledger.

_FAILURE_HEADER = "trimq.failure"
_REDRIVEN_HEADER = "trimq.redriven"


class _FailureHead(msgspec.Struct, frozen=True):
    reason: str
    namespace: str
    topic: str
    topic_id: str
    stream: int
    offset: int
    group: str
    attempts: int
    time_ms: int
    principal: str
    message_time_ms: int
    message_offset: int
    extras: dict[str, Any] = {}  # strings, numbers and bytes, which msgpack distinguishes


class _RedrivenHead(msgspec.Struct, frozen=True):
    failure: int
    time_ms: int
    principal: str


_encode = msgspec.msgpack.encode


def to_record(entry: LedgerEntry) -> Record:
    """Encodes an entry as a record of the ledger."""
    if isinstance(entry, RedrivenEntry):
        mark = _encode(_RedrivenHead(entry.failure, entry.time_ms, entry.principal))
        return Record(body=None, headers=((_REDRIVEN_HEADER, mark),), timestamp_ms=entry.time_ms)
    record, origin = entry.record, entry.origin
    head = _FailureHead(
        reason=entry.reason.value,
        namespace=origin.topic.namespace,
        topic=origin.topic.name,
        topic_id=origin.stream.topic.hex,
        stream=origin.stream.number,
        offset=origin.offset,
        group=origin.group,
        attempts=entry.attempts,
        time_ms=entry.time_ms,
        principal=entry.principal,
        message_time_ms=record.timestamp_ms,
        message_offset=record.offset,
        extras=record.extras,
    )
    headers: Headers = ((_FAILURE_HEADER, _encode(head)), *record.headers)
    return Record(body=record.body, key=record.key, headers=headers, timestamp_ms=entry.time_ms)


def from_record(record: Record) -> LedgerEntry:
    """Decodes a record that `to_record` encoded. Raises InvalidRecords if the record is damaged or not an entry."""
    name, value = record.headers[0] if record.headers else ("", None)
    try:
        if name == _REDRIVEN_HEADER and value is not None:
            mark = msgspec.msgpack.decode(value, type=_RedrivenHead)
            return RedrivenEntry(mark.failure, mark.time_ms, mark.principal)
        if name == _FAILURE_HEADER and value is not None:
            return _to_failure(record, msgspec.msgpack.decode(value, type=_FailureHead))
    except ValueError as error:  # raised by msgspec, UUID or Reason
        raise InvalidRecords(f"the failure ledger has a damaged entry at {record.offset}: {error}") from error
    raise InvalidRecords(f"the failure ledger has a record of an unknown kind at {record.offset}")


def _to_failure(record: Record, head: _FailureHead) -> FailureEntry:
    message = Record(
        body=record.body,
        key=record.key,
        headers=record.headers[1:],
        timestamp_ms=head.message_time_ms,
        offset=head.message_offset,
        extras=head.extras,
    )
    stream = StreamId(UUID(head.topic_id), head.stream)
    origin = Origin(TopicName(head.namespace, head.topic), stream, head.offset, head.group)
    return FailureEntry(message, Reason(head.reason), origin, head.attempts, head.time_ms, head.principal)
