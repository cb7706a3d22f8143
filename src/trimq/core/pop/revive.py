"""Handles popped messages whose lease expired without an ack: returns them to the group, or dead-letters them after the
last retry."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.commit_log.retry_topics import RetryTopics
from trimq.core.commit_log.topics import CommitLogTopics
from trimq.core.failures.ledger import Reason
from trimq.core.pop.in_flight import InFlightQueue, InFlightTable
from trimq.errors import OffsetOutOfRange, Refusal
from trimq.formats.rocketmq_unit.retries import can_be_retried
from trimq.storage.group_commit.passes import Ticket

_AGAIN_MS = 1000

OnDurable = Callable[[Ticket, Callable[[Ticket], object]], None]
RetryLimit = Callable[[str], int]
"""Maximum number of retries of a message, by group."""

Wake = Callable[[str, UUID], None]
"""Wakes consumers of a group that wait for messages of a topic."""

AckedInOrder = Callable[[InFlightQueue, Refusal | None], None]


class Reviver:
    def __init__(
        self,
        queues: InFlightTable,
        topics: CommitLogTopics,
        own: RetryTopics,
        on_durable: OnDurable,
        timeline: Timeline,
        retry_limit: RetryLimit,
        wake: Wake,
        acked_in_order: AckedInOrder,
    ) -> None:
        self._queues = queues
        self._topics = topics
        self._retry_topics = own
        self._on_durable = on_durable
        self._timeline = timeline
        self._retry_limit = retry_limit
        self._wake = wake
        self._acked_in_order = acked_in_order

    def expire(self, queue: InFlightQueue, offset: int) -> None:
        """Called when the lease of the message at `offset` has expired."""
        in_flight = queue.in_flight[offset]
        topic = self._topics.find_id(queue.stream.topic)
        if topic is None:
            self._queues.ack(queue, offset)
            return
        limit = self._retry_limit(queue.group)
        if in_flight.is_ordered and in_flight.tries < limit:
            self._queues.requeue(queue, offset)
            if not queue.in_flight_offsets:
                self._wake(queue.group, topic.id)
            return
        try:
            unit = topic.stream_or_retired(queue.stream.number).unit(offset)
        except OffsetOutOfRange:
            self._queues.ack(queue, offset)  # deleted by retention
            return
        is_dead = in_flight.is_ordered or unit.reconsume_times >= limit or not can_be_retried(unit)
        if in_flight.is_recovered and self._retry_topics.was_already_stored(
            queue.group, topic, unit, in_flight.pop_time_ms, is_dead
        ):
            self._queues.ack(queue, offset)  # returned before the restart
            return
        own = (
            self._retry_topics.make_dead_letter_topic(queue.group, topic)
            if is_dead
            else self._retry_topics.make_retry_topic(queue.group, topic)
        )
        if own.creation is not None:
            self._on_durable(own.creation, lambda done: self._made(queue, offset, done.refusal))
            return
        if is_dead:
            ticket = self._retry_topics.append_dead_letter(
                own, queue.group, topic, unit, Reason.DELIVERY_LIMIT, in_flight.is_ordered
            )
        else:
            ticket = self._retry_topics.append_retry(own, queue.group, unit, in_flight.pop_time_ms)
        self._on_durable(ticket, lambda done: self._stored(queue, offset, topic.id, done.refusal))

    def _made(self, queue: InFlightQueue, offset: int, refusal: Refusal | None) -> None:
        """Continues once the creation of the retry or dead-letter topic is durable or refused."""
        in_flight = queue.in_flight.get(offset)
        if in_flight is None or in_flight.lease is not None:
            return  # its group is deleted, or it is in flight again
        try:
            if refusal is None:
                self.expire(queue, offset)
                return
        except Refusal:
            pass  # as if the topic's creation had been refused
        self._queues.postpone_return(queue, offset, self._timeline.now_ms() + _AGAIN_MS)

    def _stored(self, queue: InFlightQueue, offset: int, topic: UUID, refusal: Refusal | None) -> None:
        in_flight = queue.in_flight.get(offset)
        if in_flight is None or in_flight.lease is not None:
            return  # its group is deleted or was reset, or it is in flight again
        if refusal is not None:
            self._queues.postpone_return(queue, offset, self._timeline.now_ms() + _AGAIN_MS)
            return
        is_ordered = in_flight.is_ordered
        ticket = self._queues.ack(queue, offset)
        if is_ordered:
            self._on_durable(ticket, lambda done: self._acked_in_order(queue, done.refusal))
        else:
            self._wake(queue.group, topic)
