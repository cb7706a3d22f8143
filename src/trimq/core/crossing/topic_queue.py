"""A topic of another layout as a queue that AMQP clients publish to, and that they read by offset (`x-stream-offset`):
as observers, which take nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trimq.core.crossing.placement import PARTITION
from trimq.core.crossing.streams import MESSAGES_AT_ONCE, ForeignStream
from trimq.core.crossing.topics import ForeignTopic
from trimq.core.queues.arguments import STREAM, QueueSettings, read_age_ms
from trimq.core.queues.backlog import DeliveryCounts
from trimq.core.queues.consumers import Consumer, Subscription
from trimq.core.queues.queue import Publication, Queue, QueueDefinition, QueueServices
from trimq.core.queues.unacked import Delivery
from trimq.core.scheduling.waiters import Watch
from trimq.errors import ColdRead, OffsetOutOfRange
from trimq.errors.queues import AcknowledgementNeeded, OffsetNeeded, PrefetchNeeded
from trimq.formats.amqp_content.content import NEVER, StoredContent
from trimq.formats.amqp_content.field_tables import Timestamp, Value, write_table
from trimq.formats.amqp_content.property_list import read_headers, replace
from trimq.formats.crossing import amqp
from trimq.formats.crossing.neutral import Neutral
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog

_BYTES_PER_TURN = 1 << 20
_NEVER_DELIVERED = DeliveryCounts()

OFFSET_HEADER = "x-stream-offset"


AppendRouted = Callable[[Neutral], Ticket]
"""Appends a message that was routed to the topic."""


class TopicQueue(Queue):
    """`is_known`: whether the topic still exists."""

    is_topic = True

    def __init__(
        self,
        topic: ForeignTopic,
        services: QueueServices,
        append: AppendRouted,
        is_known: Callable[[], bool],
    ) -> None:
        namespace, name = topic.home_name
        definition = QueueDefinition(namespace, name, True, False, write_table({"x-queue-type": STREAM}), 0)
        super().__init__(topic.id, definition, QueueSettings(kind=STREAM), None, services)
        self.topic = topic
        self._append = append
        self._is_known = is_known
        self._positions: dict[Consumer, list[int]] = {}
        self._first: dict[Consumer, int] = {}  # the stream that a consumer reads next
        self._watches: dict[int, Watch] = {}

    @property
    def logs(self) -> list[QueueLog]:
        return []

    @property
    def ready_count(self) -> int:
        """Number of stored messages, gaps included."""
        streams = [self.topic.stream(number) for number in range(self.topic.stream_count)]
        return sum(max(stream.readable_end - stream.start, 0) for stream in streams)

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        """Raises the refusal of a message that the topic cannot keep. It is durable whatever its delivery mode."""
        message = amqp.to_neutral(publication.sealed.content, self.name, is_stored=False)
        return self._append(message), True

    # -- consumers

    def subscribe(self, subscription: Subscription) -> Consumer:
        consumer = super().subscribe(subscription)
        requested = subscription.arguments[OFFSET_HEADER]
        streams = [self.topic.stream(number) for number in range(self.topic.stream_count)]
        self._positions[consumer] = [_start_offset(each, requested, self._services.now_ms()) for each in streams]
        self._first[consumer] = 0
        return consumer

    def _check_subscription(self, subscription: Subscription) -> None:
        """Raises OffsetNeeded, PrefetchNeeded or AcknowledgementNeeded."""
        if OFFSET_HEADER not in subscription.arguments:
            raise OffsetNeeded(self.name, self.namespace)
        if not subscription.prefetch:
            raise PrefetchNeeded(self.name, self.namespace)
        if subscription.no_ack:
            raise AcknowledgementNeeded(self.name, self.namespace)

    def unsubscribe(self, consumer: Consumer) -> None:
        self._positions.pop(consumer, None)
        self._first.pop(consumer, None)
        super().unsubscribe(consumer)
        if not len(self.consumers):
            self._cancel_watches()

    def _cancel_watches(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        self._watches = {}

    # -- delivery

    def _dispatch(self, may_wait: bool) -> None:
        if not self._is_known():
            self._end_consumers()
            return
        cold: list[ColdRead] = []
        left = MESSAGES_AT_ONCE
        for consumer in list(self.consumers):
            batch: list[Delivery] = []
            try:
                left -= self._fill(consumer, batch, min(left, consumer.room), may_wait)
            except ColdRead as found:
                cold.append(found)
            if batch:
                self._cold_reads.reset()
                consumer.in_flight += len(batch)
                if consumer.shared_prefetch is not None:
                    consumer.shared_prefetch.in_flight += len(batch)
                consumer.receiver.deliver(consumer, batch)
            if left <= 0:
                self._services.dispatch.due(self)
                break
        if cold:
            raise ColdRead.joined(cold)

    def _fill(self, consumer: Consumer, batch: list[Delivery], room: int, may_wait: bool) -> int:
        """Reads the streams in turn. Returns the number of offsets that were looked at."""
        positions = self._positions[consumer]
        count = min(len(positions), self.topic.stream_count)
        now_ms = self._services.now_ms()
        size = looked_at = 0
        for step in range(count):
            if room <= len(batch) or size >= _BYTES_PER_TURN:
                break
            number = (self._first[consumer] + step) % count
            stream = self.topic.stream(number)
            self._watch(number, stream)
            if positions[number] >= stream.readable_end:
                continue
            try:
                found = stream.read(positions[number], room - len(batch), _BYTES_PER_TURN, may_wait)
            except OffsetOutOfRange:
                positions[number] = stream.start
                self._services.dispatch.due(self)
                continue
            looked_at += max(found.next_offset - positions[number], 1) if not found.messages else len(found.messages)
            positions[number] = found.next_offset
            for offset, message in found.messages:
                batch.append(self._delivery(consumer, number, offset, message, now_ms))
                size += len(message.body or b"")
            if found.next_offset < stream.readable_end:
                self._services.dispatch.due(self)
        self._first[consumer] = (self._first[consumer] + 1) % max(count, 1)
        return min(looked_at, MESSAGES_AT_ONCE)

    def _delivery(self, consumer: Consumer, number: int, offset: int, message: Neutral, now_ms: int) -> Delivery:
        content = amqp.from_neutral(message, self.name)
        headers = {**read_headers(content.header), OFFSET_HEADER: offset, PARTITION: number}
        header = replace(content.header, headers=headers)
        stored = StoredContent(offset, 0, NEVER, content._replace(header=header))
        return Delivery(self, None, stored, consumer, header, _NEVER_DELIVERED, now_ms)

    def _watch(self, number: int, stream: ForeignStream) -> None:
        if number not in self._watches:
            self._watches[number] = stream.watch(lambda: self._grown(number))

    def _grown(self, number: int) -> None:
        self._watches.pop(number, None)
        self._services.dispatch.due(self)

    def _end_consumers(self) -> None:
        self.is_deleted = True
        for consumer in list(self.consumers):
            self.consumers.remove(consumer)
            consumer.receiver.cancelled(consumer)
        self._positions.clear()
        self._cancel_watches()

    # -- ack, requeue, reject: each frees prefetch, the message stays

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            self._settle(delivery)

    def requeue(self, delivery: Delivery, counts: bool) -> None:
        self._settle(delivery)

    def reject(self, delivery: Delivery, counts: bool) -> None:
        self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        consumer = delivery.consumer
        if consumer is not None and delivery.header:
            delivery.header = b""  # a delivery frees prefetch only once
            self._release_prefetch(consumer)


def _start_offset(stream: ForeignStream, requested: Value, now_ms: int) -> int:
    """Returns the first offset to read. `requested`: a valid `x-stream-offset`."""
    start, end = stream.start, stream.readable_end
    if requested == "first":
        return start
    if requested == "last":
        return max(end - 1, start)
    time_ms = None
    if isinstance(requested, Timestamp):
        time_ms = int(requested) * 1000
    elif isinstance(requested, int) and not isinstance(requested, bool):
        return min(max(int(requested), start), end)
    elif isinstance(requested, str) and (age_ms := read_age_ms(requested)) is not None:
        time_ms = now_ms - age_ms
    if time_ms is None:
        return end
    found = stream.find_time(time_ms)
    return end if found is None else found.offset
