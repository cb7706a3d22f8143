"""Writes messages to topics of other layouts: translated once, when they are appended. What the layout cannot keep is
refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import WRITABLE, CommitLogTopic
from trimq.core.crossing.placement import find_place
from trimq.core.crossing.topics import ForeignTopic
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topic
from trimq.core.queues.arguments import priority_of_level
from trimq.core.queues.publisher import Publisher
from trimq.core.queues.queue import NO_PRIORITY, Publication, Queue
from trimq.core.security.access import Access, Action
from trimq.errors import Busy, ReadOnly, Refusal, UnknownStream
from trimq.formats.amqp_content.content import encode_content
from trimq.formats.amqp_content.property_list import PERSISTENT, read_property, replace
from trimq.formats.crossing import amqp, kafka, rocketmq
from trimq.formats.crossing.neutral import Neutral
from trimq.formats.rocketmq_unit.properties import tags_code, write_properties
from trimq.formats.rocketmq_unit.ttl import TTL_MS
from trimq.formats.rocketmq_unit.unit import UnitDraft
from trimq.model import SYSTEM, Caller, Record
from trimq.storage.commit_log.log import AppendedUnit
from trimq.storage.group_commit.passes import JointTicket, Ticket


class Placed(NamedTuple):
    """Messages that were appended in one pass, the first at `base_offset`. They are durable when the pass `number` is,
    and no ticket has a refusal."""

    base_offset: int
    tickets: Sequence[Ticket]
    append_time_ms: int = -1

    @property
    def number(self) -> int:
        """Number of the pass that decides."""
        return max((ticket.number for ticket in self.tickets), default=0)

    @property
    def refusal(self) -> Refusal | None:
        return next((ticket.refusal for ticket in self.tickets if ticket.refusal is not None), None)


class CommitLogDraft(NamedTuple):
    """Message for a queue of the commit log, with its code in the consume queue."""

    topic: CommitLogTopic
    stream: MessageQueue
    draft: UnitDraft
    code: int
    has_ttl: bool


AppendUnits = Callable[[Caller, Sequence[CommitLogDraft], bytes], Sequence[AppendedUnit]]
"""Appends messages to the commit log in one pass, all of them or none; the last argument is the broker's address."""


class PartitionWrites(Protocol):
    def __call__(self, stream: Stream, records: Sequence[Record]) -> _AppendedBatch: ...


class _AppendedBatch(Protocol):
    @property
    def base_offset(self) -> int: ...

    @property
    def ticket(self) -> Ticket: ...


_NO_HOST = bytes(8)


class ForeignTargets:
    """`append_records` appends to partition logs; `append_units` None: the commit log is closed. `store_host`: address
    of the broker, as messages of the commit log carry it."""

    def __init__(
        self,
        access: Access,
        append_records: PartitionWrites,
        append_units: AppendUnits | None,
        publisher: Publisher,
        admit: Callable[[int], None],
        pass_number: Callable[[], int],
    ) -> None:
        self._access = access
        self._append_records = append_records
        self._append_units = append_units
        self._publisher = publisher
        self._admit = admit
        self._pass_number = pass_number
        self.store_host: Callable[[], bytes] = lambda: _NO_HOST

    def append(self, caller: Caller, topic: ForeignTopic, number: int, messages: Sequence[Neutral]) -> Placed:
        """Appends messages to one stream in one pass: all of them or none. Raises AccessDenied unless the caller may
        write, UnknownStream, ReadOnly, and what the layout refuses."""
        self._access.require(caller, Action.WRITE, topic.resource)
        if topic.is_internal:
            raise ReadOnly(f"topic {topic.home_name}, which belongs to the broker,")
        home = topic.home
        if isinstance(home, Topic):
            return self._append_to_partition(home, number, messages)
        if isinstance(home, CommitLogTopic):
            return self._append_to_commit_log(caller, home, number, messages)
        if not 0 <= number < topic.stream_count:
            raise UnknownStream(topic.face_name, number)
        return self._append_to_queue(home, number, messages)

    def append_routed(self, topic: ForeignTopic, message: Neutral) -> Ticket:
        """Appends a message that an exchange has routed to the topic, whose writer names no stream."""
        count = topic.written_streams
        if not count:
            raise ReadOnly(f"topic {topic.home_name}")
        number = find_place(message, count, self._pass_number())
        tickets = self.append(SYSTEM, topic, number, (message,)).tickets
        return tickets[0] if len(tickets) == 1 else JointTicket(tickets)

    def _append_to_partition(self, topic: Topic, number: int, messages: Sequence[Neutral]) -> Placed:
        stream = topic.stream(number)
        appended = self._append_records(stream, [kafka.from_neutral(message) for message in messages])
        return Placed(appended.base_offset, (appended.ticket,))

    def _append_to_commit_log(
        self, caller: Caller, topic: CommitLogTopic, number: int, messages: Sequence[Neutral]
    ) -> Placed:
        definition = topic.definition
        if self._append_units is None or not definition.permissions & WRITABLE or number >= definition.write_streams:
            raise ReadOnly(f"queue {number} of topic {topic.name}")
        if topic.creation is not None:
            raise Busy(f"topic {topic.name} is being created")
        stream = topic.stream(number)
        drafts = []
        for message in messages:
            fields = rocketmq.from_neutral(message, may_cut=False)
            draft = UnitDraft(
                topic.raw_name,
                number,
                fields.body,
                write_properties(fields.properties),
                fields.flag,
                0,
                fields.born_ms,
                fields.born_host or _NO_HOST,
                fields.reconsume_times,
            )
            code = tags_code(fields.properties.get("TAGS", ""))
            drafts.append(CommitLogDraft(topic, stream, draft, code, TTL_MS in fields.properties))
        placed = self._append_units(caller, drafts, self.store_host())
        return Placed(placed[0].queue_offset, [each.ticket for each in placed])

    def _append_to_queue(self, queue: Queue, number: int, messages: Sequence[Neutral]) -> Placed:
        """`number` is the priority level. A queue that rejects messages when it is full takes all of them or none."""
        if queue.is_full and queue.settings.overflow != "drop-head":
            raise Busy(f"queue {queue.name} is full")
        priority = priority_of_level(number, queue.settings) if number else NO_PRIORITY
        publications = []
        for message in messages:
            content = amqp.from_neutral(message, queue.name)
            header = content.header
            if priority != NO_PRIORITY:
                header = replace(header, priority=priority)
            if read_property(header, "delivery_mode") is None:
                header = replace(header, delivery_mode=PERSISTENT)  # a message of Kafka or RocketMQ is durable
            options = self._publisher.options_of(header)
            content = content._replace(header=header, published_ms=max(content.published_ms, 0))
            sealed = encode_content(content)
            publications.append(
                Publication(sealed, options.is_transient, options.expiration_ms, max(priority, NO_PRIORITY))
            )
        self._admit(sum(len(each.sealed.content.body) + len(each.sealed.content.header) for each in publications))
        log = queue.numbered_logs().get(number)
        base_offset = 0 if log is None else log.end
        return Placed(base_offset, [queue.publish(each)[0] for each in publications])
