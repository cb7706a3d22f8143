"""A topic of another layout as a queue from which AMQP clients take messages one by one, for one group: consume, get,
ack, requeue, reject, prefetch and delivery timeouts as for queues. Its state is a `Readership` for each stream, stored
with the committed offset of the group at most once in a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from trimq.core.crossing.placement import PARTITION
from trimq.core.crossing.streams import MESSAGES_AT_ONCE, ForeignStream
from trimq.core.crossing.topic_queue import OFFSET_HEADER
from trimq.core.crossing.topics import ForeignTopic
from trimq.core.failures.ledger import Reason
from trimq.core.metadata.cursors import Cursor
from trimq.core.queues.arguments import CLASSIC, QueueSettings
from trimq.core.queues.backlog import DeliveryCounts
from trimq.core.queues.consumers import Consumer, Subscription
from trimq.core.queues.queue import Publication, Queue, QueueDefinition, QueueServices
from trimq.core.queues.queue_timers import DELIVERY_TIMEOUT
from trimq.core.queues.unacked import Delivery, UnackedDeliveries
from trimq.core.readership import Readership, Taken
from trimq.core.scheduling.waiters import Watch
from trimq.errors import ColdRead, OffsetOutOfRange, Refusal
from trimq.formats.amqp_content.content import NEVER, StoredContent
from trimq.formats.amqp_content.field_tables import write_table
from trimq.formats.amqp_content.property_list import read_headers, replace
from trimq.formats.crossing import amqp
from trimq.formats.crossing.neutral import Neutral
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog

_BYTES_PER_TURN = 1 << 20

_consumer_of = attrgetter("consumer")
_number_of = attrgetter("number")


class TopicDelivery(Delivery):
    """Delivery of a message of stream `number`."""

    __slots__ = ("number",)

    number: int

    def drop_body(self) -> None:
        """Frees a long body once it is sent; the topic still has it."""
        size = len(self.stored.content.body)
        self._dropped_body_bytes = size
        self.stored = self.stored._replace(content=self.stored.content._replace(body=b""))

    @property
    def has_body(self) -> bool:
        return not self._dropped_body_bytes


class GroupCursors(NamedTuple):
    """Committed offsets of one group: `fetch(stream)`, and `commit(stream, offset, row)`."""

    fetch: Callable[[StreamId], Cursor | None]
    commit: Callable[[StreamId, int, str], object]


class TakenTopic(Queue):
    """`on_used` is called before a client takes messages, and raises GroupOfOtherProtocol if its group must not;
    `on_idle` when there are neither consumers nor deliveries left. `is_known`: whether the topic still exists."""

    def __init__(
        self,
        id: UUID,
        topic: ForeignTopic,
        group: str,
        services: QueueServices,
        cursors: GroupCursors,
        on_used: Callable[[TakenTopic], None],
        on_idle: Callable[[TakenTopic], None],
        is_known: Callable[[], bool],
    ) -> None:
        namespace, name = topic.home_name
        definition = QueueDefinition(namespace, name, True, False, write_table({}), 0)
        super().__init__(id, definition, QueueSettings(kind=CLASSIC), None, services)
        self.topic = topic
        self.group = group
        self._cursors = cursors
        self._on_used = on_used
        self._on_idle = on_idle
        self._is_known = is_known
        self._readers: dict[int, Readership] = {}
        self._watches: dict[int, Watch] = {}
        self._first = 0  # the stream that is read next
        self._is_store_due = False
        timers = services.queue_timers
        self.deliveries = UnackedDeliveries(
            self.consumer_timeout_ms, lambda due_ms: timers.set(id, DELIVERY_TIMEOUT, due_ms)
        )

    @property
    def is_idle(self) -> bool:
        return not len(self.consumers) and not len(self.deliveries)

    @property
    def logs(self) -> list[QueueLog]:
        return []

    @property
    def ready_count(self) -> int:
        """Number of offsets that this group has before it, gaps included."""
        streams = [self.topic.stream(number) for number in range(self.topic.stream_count)]
        return sum([self._reader(stream).lag(stream.readable_end) for stream in streams])

    def _reader(self, stream: ForeignStream) -> Readership:
        number = stream.id.number
        found = self._readers.get(number)
        if found is None:
            cursor = self._cursors.fetch(stream.id)
            found = Readership(stream.start) if cursor is None else Readership(cursor.offset, cursor.readership)
            self._readers[number] = found
        if found.start < stream.start:
            found.skip_to(stream.start)
            self._store_soon()
        return found

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        raise NotImplementedError("messages are routed to the topic, not to one of its groups")

    # -- consumers

    def subscribe(self, subscription: Subscription) -> Consumer:
        self._on_used(self)
        try:
            return super().subscribe(subscription)
        except Refusal:
            self._end_if_idle()
            raise

    def unsubscribe(self, consumer: Consumer) -> None:
        super().unsubscribe(consumer)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self.is_idle:
            for watch in self._watches.values():
                watch.cancel()
            self._watches = {}
            self._store()
            self._on_idle(self)

    # -- delivery

    def _dispatch(self, may_wait: bool) -> None:
        if not self._is_known():
            self._end_consumers()
            return
        batches: list[tuple[Consumer, list[Delivery]]] = []
        try:
            self._fill(batches, may_wait)
        finally:
            for consumer, batch in batches:
                self._cold_reads.reset()
                consumer.receiver.deliver(consumer, batch)

    def _fill(self, batches: list[tuple[Consumer, list[Delivery]]], may_wait: bool) -> None:
        left = MESSAGES_AT_ONCE
        in_order = self.consumers.is_channel_shared
        while left > 0:
            consumers, room = self.consumers.next(1 if in_order else left)
            if not consumers:
                return
            given = self._take(1 if in_order else min(left, len(consumers) * room), may_wait)
            if not given:
                return
            left -= len(given)
            for index, consumer in enumerate(consumers[: len(given)]):
                own = given[index :: len(consumers)]
                self._grant(own, consumer, consumer.no_ack)
                batches.append((consumer, own))
            self.consumers.served(consumers, len(given))
        self._services.dispatch.due(self)

    def _take(self, most: int, may_wait: bool) -> list[Delivery]:
        """Takes messages of one stream: those that came back first, else new ones, of the streams in turn."""
        count = self.topic.stream_count
        cold: list[ColdRead] = []
        for step in range(count):
            number = (self._first + step) % count
            stream = self.topic.stream(number)
            try:
                found = self._take_from(stream, self._reader(stream), most, may_wait)
            except ColdRead as each:
                cold.append(each)
                continue
            if found:
                self._first = (number + 1) % count
                return found
        if cold:
            raise ColdRead.joined(cold)
        return []

    def _take_from(self, stream: ForeignStream, reader: Readership, most: int, may_wait: bool) -> list[Delivery]:
        most = min(most, reader.room)
        found: list[Delivery] = []
        while reader.has_back and len(found) < most:
            found += self._take_back(stream, reader, may_wait)
        size = sum([len(each.stored.content.body) for each in found])
        while len(found) < most and size < _BYTES_PER_TURN:
            start = reader.next_new()
            self._watch(stream)
            if start >= stream.readable_end:
                break
            try:
                run = stream.read(start, most - len(found), _BYTES_PER_TURN - size, may_wait)
            except OffsetOutOfRange:
                reader.skip_to(max(stream.start, start))
                break
            except ColdRead:
                if found:
                    self._services.dispatch.due(self)
                    break
                raise
            if run.next_offset <= start:
                break
            messages = dict(run.messages)
            for taken in reader.take(list(messages), run.next_offset):
                found.append(self._delivery(stream.id.number, taken, messages[taken.offset]))
                size += len(messages[taken.offset].body or b"")
            if not run.messages:
                self._store_soon()
        return found

    def _take_back(self, stream: ForeignStream, reader: Readership, may_wait: bool) -> list[Delivery]:
        """Takes one message that came back. Settles it if it is gone: deleted by retention, or expired."""
        (taken,) = reader.take_back(1)
        try:
            message = _read_one(stream, taken.offset, may_wait)
        except ColdRead:
            reader.release(taken.offset, counts=False)
            raise
        if message is None:
            reader.settle([taken.offset])
            self._store_soon()
            return []
        return [self._delivery(stream.id.number, taken, message)]

    def _delivery(self, number: int, taken: Taken, message: Neutral) -> Delivery:
        content = amqp.from_neutral(message, self.name)
        offset = taken.offset
        headers = {**read_headers(content.header), OFFSET_HEADER: offset, PARTITION: number}
        header = replace(content.header, headers=headers)
        stored = StoredContent(offset, 0, NEVER, content._replace(header=header))
        counts = DeliveryCounts(taken.tries, taken.tries)
        delivery = TopicDelivery(self, None, stored, None, header, counts, self._services.now_ms())
        delivery.number = number
        return delivery

    def _grant(self, deliveries: list[Delivery], consumer: Consumer | None, no_ack: bool) -> None:
        for delivery in deliveries:
            delivery.consumer = consumer
        if no_ack:
            self._settle(deliveries)
            return
        self.deliveries.grant(deliveries)
        if consumer is not None:
            consumer.in_flight += len(deliveries)
            if consumer.shared_prefetch is not None:
                consumer.shared_prefetch.in_flight += len(deliveries)

    def _watch(self, stream: ForeignStream) -> None:
        number = stream.id.number
        if number not in self._watches:
            self._watches[number] = stream.watch(lambda: self._grown(number))

    def _grown(self, number: int) -> None:
        self._watches.pop(number, None)
        self._services.dispatch.due(self)

    def _end_consumers(self) -> None:
        self.is_deleted = True
        for delivery in self.deliveries:
            self.deliveries.settle(delivery)
        for consumer in list(self.consumers):
            self.consumers.remove(consumer)
            consumer.receiver.cancelled(consumer)
        self._end_if_idle()

    def cold_head(self) -> ColdRead | None:
        for number in range(self.topic.stream_count):
            stream = self.topic.stream(number)
            try:
                _read_one(stream, self._reader(stream).next_new(), may_wait=False)
            except ColdRead as cold:
                return cold
        return None

    def get(self, no_ack: bool) -> Delivery | None:
        """Takes the next message for basic.get. Reads cold data at once."""
        self._on_used(self)
        found = self._take(1, may_wait=True)
        if found:
            self._grant(found, None, no_ack)
        self._end_if_idle()
        return found[0] if found else None

    # -- ack, requeue, reject

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        settled = self.deliveries.settle_all(deliveries)
        for consumer, own in groupby(settled, _consumer_of):
            if consumer is not None:
                self._release_prefetch(consumer, len(list(own)))
        self._settle(settled)
        self._end_if_idle()

    def _settle(self, deliveries: Iterable[Delivery]) -> None:
        for number, own in groupby(deliveries, _number_of):
            if (reader := self._readers.get(number)) is not None:
                reader.settle([delivery.offset for delivery in own])
        self._store_soon()

    def requeue(self, delivery: Delivery, counts: bool) -> None:
        """As for classic queues there is no limit of deliveries."""
        if self._take_off(delivery) is None:
            return
        self._readers[_number_of(delivery)].release(delivery.offset)
        self._store_soon()
        self._services.dispatch.due(self)
        self._end_if_idle()

    def reject(self, delivery: Delivery, counts: bool) -> None:
        """Notes the message in the ledger of failed messages; the topic keeps it for other groups."""
        if (settled := self._take_off(delivery)) is None:
            return
        stored = settled.stored
        if not settled.has_body:
            message = _read_one(self.topic.stream(settled.number), stored.offset, may_wait=True)
            if message is not None:
                stored = stored._replace(content=stored.content._replace(body=message.body or b""))
        attempts = DeliveryCounts(delivery.delivery_counts.acquired + 1, delivery.delivery_counts.failed + 1)
        self._services.dead_letters.give_up(self, (stored,), Reason.REJECTED, attempts)
        self._settle([delivery])
        self._end_if_idle()

    def _take_off(self, delivery: Delivery) -> TopicDelivery | None:
        if not self.deliveries.settle(delivery):
            return None
        if delivery.consumer is not None:
            self._release_prefetch(delivery.consumer)
        return delivery if isinstance(delivery, TopicDelivery) else None

    def on_timer(self, kind: int) -> None:
        if kind != DELIVERY_TIMEOUT:
            super().on_timer(kind)
            return
        overdue: dict[Consumer, list[Delivery]] = {}
        for delivery in self.deliveries.overdue(self._services.now_ms()):
            consumer = delivery.consumer
            self.requeue(delivery, counts=True)
            if consumer is not None:
                overdue.setdefault(consumer, []).append(delivery)
        for consumer, deliveries in overdue.items():
            self.unsubscribe(consumer)
            consumer.receiver.timed_out(consumer, deliveries)

    # -- durable state

    def _store_soon(self) -> None:
        """Stores what has changed at the end of this turn. A lost ack only causes another delivery."""
        if not self._is_store_due:
            self._is_store_due = True
            self._services.passes.call_soon(self._store)

    def _store(self) -> None:
        self._is_store_due = False
        if self.is_deleted or not self._is_known():
            return
        for number, reader in self._readers.items():
            if reader.is_dirty:
                reader.is_dirty = False
                self._cursors.commit(StreamId(self.topic.id, number), reader.start, reader.row)


def _read_one(stream: ForeignStream, offset: int, may_wait: bool) -> Neutral | None:
    """Returns the message at this offset; None if there is none, or no visible one."""
    if offset >= stream.readable_end:
        return None
    try:
        found = stream.read(offset, 1, 1, may_wait).messages
    except OffsetOutOfRange:
        return None
    return found[0][1] if found and found[0][0] == offset else None
