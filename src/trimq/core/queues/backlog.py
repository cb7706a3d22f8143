"""Ready messages of one queue, or of one priority of it: a read position in the queue log, and a heap of requeued
messages. Knows the log, not the consumers."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimq.errors import ColdRead, DamagedSegment
from trimq.formats.amqp_content.content import NEVER, Content, EncodedContent, StoredContent
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog

log = logging.getLogger(__name__)


class DeliveryCounts(NamedTuple):
    """Number of earlier deliveries of a requeued message, and of those that count as failed."""

    acquired: int = 0
    failed: int = 0


NEVER_DELIVERED = DeliveryCounts()


class Backlog:
    """Each message is ready, in flight, or acknowledged. `ready` includes messages that were appended and are not
    readable yet. `requeue_numbers`: requeued messages are delivered in the order of these numbers; None: of their
    offsets. `counts_properties`: the size of a message is that of its body and properties, as in RabbitMQ's quorum
    queues."""

    def __init__(
        self,
        log: QueueLog,
        level: int,
        requeue_numbers: Iterator[int] | None = None,
        counts_properties: bool = False,
    ) -> None:
        self._requeue_numbers = requeue_numbers
        self._counts_properties = counts_properties
        self.log = log
        self.level = level
        self.cursor = 0
        self.ready = log.live
        self.in_flight = 0
        self.ready_bytes = 0
        self.counts_bytes = False
        self.withheld: set[int] = set()  # in flight without a consumer: being dead-lettered or requeued later
        self.last_dispatched_end = 0  # `readable_end` when consumers were last served
        self._requeued: list[tuple[int, int]] = []  # heap of (position in the order, offset), before the cursor
        self._delivery_counts: dict[int, DeliveryCounts] = {}

    def append(self, sealed: EncodedContent, expires_ms: int, flags: int) -> Ticket:
        ticket = self.log.append(sealed, expires_ms, flags)
        self.ready += 1
        if self.counts_bytes:
            self.ready_bytes += self.size_of(sealed.content)
        return ticket

    def append_all(self, contents: Sequence[Content], expires_ms: int, flags: int) -> Ticket:
        """Fast path of `append` for one or more contents with equal properties."""
        first = self.log.end
        try:
            return self.log.append_all(contents, expires_ms, flags)
        finally:
            count = self.log.end - first  # fewer if the next segment file could not be created
            self.ready += count
            if self.counts_bytes:
                self.ready_bytes += sum(map(self.size_of, contents[:count]))

    def recount(self, in_flight_bytes: int) -> None:
        """Recounts after a pass failed: the messages that it appended are not stored. Those in flight stay in
        flight."""
        self.ready = self.log.live - self.in_flight
        if self.counts_bytes:
            self.count_bytes(in_flight_bytes)

    def count_bytes(self, in_flight_bytes: int) -> None:
        """Starts to keep `ready_bytes`; `in_flight_bytes` is the size of the messages in flight. May read the log."""
        self.counts_bytes = True
        self.ready_bytes = self.log.segments.live_bytes(self._counts_properties) - in_flight_bytes

    def size_of(self, content: Content) -> int:
        """Returns the size of a message, for the limit of the queue in bytes."""
        return len(content.body) + self.property_bytes(content)

    def property_bytes(self, content: Content) -> int:
        return len(content.header) if self._counts_properties else 0

    # -- taking and requeueing

    @property
    def readable(self) -> int:
        """The most messages that can be taken now."""
        return len(self._requeued) + max(self.log.readable_end - self.cursor, 0)

    @property
    def has_next(self) -> bool:
        return self._next() is not None

    def _next(self) -> int | None:
        if self._requeued:
            return self._requeued[0][1]
        offset = self.log.next_live(self.cursor)
        while offset is not None and offset in self.withheld:  # recovered dead letters are ahead of the cursor
            offset = self.log.next_live(offset + 1)
        return offset

    @property
    def first_requeued(self) -> int | None:
        """Position in the order of the first requeued message."""
        return self._requeued[0][0] if self._requeued else None

    def _skip(self, offset: int, damage: DamagedSegment) -> None:
        """Skips a damaged message. It stays unacknowledged: a restart with a repaired file delivers it."""
        log.warning(
            "%s: message skipped until its file is repaired and the broker restarted: %s", self.log.folder, damage
        )
        self._go_past(offset)
        self.ready -= 1
        self.in_flight += 1

    def _go_past(self, offset: int) -> None:
        if self._requeued:
            heapq.heappop(self._requeued)
        else:
            self.cursor = offset + 1

    def take(self, may_wait: bool) -> StoredContent | None:
        """Takes the next message, which is in flight until `settle` or `requeue`. ColdRead: it is cold data and
        `may_wait` is False; it stays ready."""
        while (offset := self._next()) is not None:
            try:
                stored = self.log.take(offset, may_wait)
            except DamagedSegment as damage:
                self._skip(offset, damage)
                continue
            self._go_past(offset)
            self.ready -= 1
            self.in_flight += 1
            if self.counts_bytes:
                self.ready_bytes -= self.size_of(stored.content)
            return stored
        return None

    def take_batch(self, most: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        """Fast path of `take` for messages in memory that were never delivered, up to `most` and about `max_bytes`;
        falls back (empty) when the next message is requeued, cold or expired."""
        batch = [] if self._requeued else self.log.take_batch(self.cursor, most, max_bytes, now_ms)
        self._mark_in_flight(batch)
        return batch

    def take_expired(self, most: int, max_bytes: int, now_ms: int) -> list[StoredContent]:
        """Does the same as `take_batch` for expired messages at the head."""
        batch = [] if self._requeued else self.log.take_expired(self.cursor, most, max_bytes, now_ms)
        self._mark_in_flight(batch)
        return batch

    def _mark_in_flight(self, batch: Sequence[StoredContent]) -> None:
        if batch:
            self.cursor = batch[-1].offset + 1
            self.ready -= len(batch)
            self.in_flight += len(batch)
            if self.counts_bytes:
                self.ready_bytes -= sum([self.size_of(stored[3]) for stored in batch])

    def cold_head(self) -> ColdRead | None:
        """Returns the cold read that `take` would need; None if the next message is in memory or there is none."""
        offset = self._next()
        try:
            if offset is not None:
                self.log.peek(offset, may_wait=False)
        except ColdRead as cold:
            return cold
        except DamagedSegment:
            pass  # `take` skips it
        return None

    def delivery_counts(self, offset: int) -> DeliveryCounts:
        return self._delivery_counts.get(offset, NEVER_DELIVERED)

    def recovered_delivery_counts(self, offset: int) -> DeliveryCounts:
        """Returns `delivery_counts`, or the counts stored before a restart."""
        if self._delivery_counts and (delivery_counts := self._delivery_counts.get(offset)) is not None:
            return delivery_counts
        failed = self.log.segments.attempts(offset)
        return DeliveryCounts(failed, failed) if failed else NEVER_DELIVERED

    def requeue(self, stored: StoredContent, delivery_counts: DeliveryCounts) -> None:
        """Makes a message in flight ready again, at its old position unless `requeue_numbers` sets the order."""
        self._delivery_counts[stored.offset] = delivery_counts
        if self._requeue_numbers is None and delivery_counts.acquired and not self.log.is_volatile:
            self.log.acks.note_attempts(
                stored.offset, delivery_counts.acquired
            )  # a restart delivers it with the redelivered flag, too
        place = stored.offset if self._requeue_numbers is None else next(self._requeue_numbers)
        heapq.heappush(self._requeued, (place, stored.offset))
        self.ready += 1
        self.in_flight -= 1
        if self.counts_bytes:
            self.ready_bytes += self.size_of(stored.content)

    def settle(self, offsets: Sequence[int]) -> None:
        """Acknowledges one or more messages in flight."""
        self.log.acks.ack_each(offsets)
        self.in_flight -= len(offsets)
        for offset in offsets if self._delivery_counts else ():
            self._delivery_counts.pop(offset, None)

    def purge(self, in_flight: set[int]) -> int:
        """Acknowledges all ready and readable messages; `in_flight` are offsets of messages that are not ready. Returns
        their number."""
        purged = self.log.acks.ack_range(0, self.log.readable_end, in_flight)
        self._requeued = []
        self._delivery_counts = {
            offset: delivery_counts for offset, delivery_counts in self._delivery_counts.items() if offset in in_flight
        }
        self.cursor = self.log.readable_end
        self.ready -= purged
        return purged

    def head_expiry_ms(self, may_wait: bool) -> int:
        """Returns the time of expiry of the next ready and readable message; NEVER if it has none or there is no
        message."""
        while (offset := self._next()) is not None:
            try:
                return self.log.expiry_ms(offset, may_wait)
            except DamagedSegment as damage:
                self._skip(offset, damage)
        return NEVER


def requeued_first(backlogs: list[Backlog]) -> list[Backlog]:
    """Returns the backlogs with requeued messages in the order of requeueing, followed by all backlogs."""
    returned = [(place, backlog) for backlog in backlogs if (place := backlog.first_requeued) is not None]
    return [*(backlog for _, backlog in sorted(returned, key=lambda pair: pair[0])), *backlogs]
