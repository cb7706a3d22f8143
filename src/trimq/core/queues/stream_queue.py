"""Stream queues: each consumer reads at its own offset, and messages stay until retention deletes them. An ack only
frees prefetch."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from trimq.core.queues.arguments import QueueSettings
from trimq.core.queues.backlog import DeliveryCounts
from trimq.core.queues.consumers import Consumer, Subscription
from trimq.core.queues.queue import Publication, Queue, QueueDefinition, QueueServices
from trimq.core.queues.stream_offsets import StreamFilter, find_start_offset
from trimq.core.queues.unacked import Delivery
from trimq.errors import ColdRead, DamagedSegment
from trimq.errors.queues import AcknowledgementNeeded, PrefetchNeeded
from trimq.formats.amqp_content.content import NEVER, StoredContent
from trimq.formats.amqp_content.field_tables import BadField
from trimq.formats.amqp_content.private_headers import without_private_headers
from trimq.formats.amqp_content.property_list import PERSISTENT, TRANSIENT, is_persistent, read_headers, replace
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog

_MESSAGES_PER_TURN = 1000
_BYTES_PER_TURN = 1 << 20
_NEVER_DELIVERED = DeliveryCounts()


class StreamQueue(Queue):
    def __init__(
        self, id: UUID, definition: QueueDefinition, settings: QueueSettings, services: QueueServices, log: QueueLog
    ) -> None:
        super().__init__(id, definition, settings, None, services)
        self._log = log
        self._filters: dict[Consumer, StreamFilter] = {}
        log.on_readable = self._log_grown
        self._usual_segment_bytes = log.segment_bytes
        log.segment_bytes = settings.segment_bytes or self._usual_segment_bytes

    def change_settings(self, settings: QueueSettings) -> None:
        self._log.segment_bytes = settings.segment_bytes or self._usual_segment_bytes
        super().change_settings(settings)

    def _log_grown(self) -> None:
        self.trim()
        self._services.dispatch.due(self)

    @property
    def logs(self) -> list[QueueLog]:
        return [self._log]

    @property
    def ready_count(self) -> int:
        """Number of stored messages."""
        return self._log.live

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        return self._log.append(publication.sealed, NEVER, publication.flags), True

    # -- consumers

    def subscribe(self, subscription: Subscription) -> Consumer:
        consumer = super().subscribe(subscription)
        requested = subscription.arguments.get("x-stream-offset", "next")
        consumer.position = find_start_offset(self._log, requested, self._services.now_ms())
        self._filters[consumer] = StreamFilter(subscription.arguments)
        return consumer

    def _check_subscription(self, subscription: Subscription) -> None:
        """Raises PrefetchNeeded or AcknowledgementNeeded. Reading a stream takes no messages from other consumers, so
        that `exclusive` is ignored, as in RabbitMQ."""
        if not subscription.prefetch:
            raise PrefetchNeeded(self.name, self.namespace)
        if subscription.no_ack:
            raise AcknowledgementNeeded(self.name, self.namespace)

    def unsubscribe(self, consumer: Consumer) -> None:
        self._filters.pop(consumer, None)
        super().unsubscribe(consumer)

    # -- delivery

    def _dispatch(self, may_wait: bool) -> None:
        cold: list[ColdRead] = []
        for consumer in reversed(list(self.consumers)):  # as in RabbitMQ; seen by two consumers of one channel
            batch: list[Delivery] = []
            try:
                self._fill(consumer, batch, may_wait)
            except ColdRead as found:
                cold.append(found)
            if batch:
                self._cold_reads.reset()
                consumer.in_flight += len(batch)
                if consumer.shared_prefetch is not None:
                    consumer.shared_prefetch.in_flight += len(batch)
                consumer.receiver.deliver(consumer, batch)
        if cold:
            raise ColdRead.joined(cold)

    def _fill(self, consumer: Consumer, batch: list[Delivery], may_wait: bool) -> None:
        now_ms = self._services.now_ms()
        size = seen = 0
        wanted = self._filters[consumer]
        while len(batch) < consumer.room and (offset := self._log.next_live(consumer.position)) is not None:
            if seen >= _MESSAGES_PER_TURN or size >= _BYTES_PER_TURN:
                self._services.dispatch.due(self)
                break
            seen += 1
            try:
                stored = self._log.peek(offset, may_wait)
            except DamagedSegment:
                consumer.position = offset + 1
                continue  # skip the damaged message, deliver the others
            consumer.position = offset + 1
            if wanted.matches(stored.content):
                size += len(stored.content.body)
                batch.append(Delivery(self, None, stored, consumer, _with_offset(stored), _NEVER_DELIVERED, now_ms))

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

    # -- retention

    def trim(self) -> None:
        """Deletes whole segments: those older than `x-max-age`, and the oldest while `max-length-bytes` is exceeded."""
        settings = self.settings
        segments = self._log.segments
        excess = 0
        if settings.max_bytes is not None:
            excess = sum(segment.segment.size for segment in segments) - settings.max_bytes
        for segment in segments[:-1]:
            is_old = (
                settings.max_age_ms is not None and segment.newest_ms < self._services.now_ms() - settings.max_age_ms
            )
            if excess <= 0 and not is_old:
                break
            if segment.end > self._log.readable_end:
                break
            excess -= segment.segment.size
            self._log.acks.ack_range(segment.base, segment.end)


def _with_offset(stored: StoredContent) -> bytes:
    """Returns the properties with the offset. As in RabbitMQ, the delivery mode is 1 unless it is 2."""
    header = without_private_headers(stored.content.header)
    mode = PERSISTENT if is_persistent(header) else TRANSIENT
    try:
        return replace(header, headers={**read_headers(header), "x-stream-offset": stored.offset}, delivery_mode=mode)
    except BadField:
        return header
