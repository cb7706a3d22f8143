"""What waits in one queue, or in one priority of it: a cursor over its log, and what came back in the order of its
offsets. Knows the log; not who gets the messages."""

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
    """How often a message that came back was taken, and how often that counted as a failure."""

    taken: int = 0
    failed: int = 0


NEVER_DELIVERED = DeliveryCounts()


class Backlog:
    """A message is ready, out, or settled. `ready` counts what was appended too and is not readable yet.
    `requeue_numbers` numbers what comes back, which then stands in that order; None: in that of the offsets."""

    def __init__(self, log: QueueLog, level: int, requeue_numbers: Iterator[int] | None = None) -> None:
        self._requeue_numbers = requeue_numbers
        self.log = log
        self.level = level
        self.cursor = 0
        self.ready = log.live
        self.in_flight = 0
        self.ready_bytes = 0
        self.counts_bytes = False
        self.withheld: set[int] = set()  # out, and settled when their next place has them
        self.last_dispatched_end = 0  # what lies behind it has become readable since consumers were last served
        self._requeued: list[tuple[int, int]] = []  # a heap of places and offsets, of what is before the cursor
        self._delivery_counts: dict[int, DeliveryCounts] = {}

    def append(self, sealed: EncodedContent, expires_ms: int, flags: int) -> Ticket:
        ticket = self.log.append(sealed, expires_ms, flags)
        self.ready += 1
        if self.counts_bytes:
            self.ready_bytes += len(sealed.content.body)
        return ticket

    def append_all(self, contents: Sequence[Content], expires_ms: int, flags: int) -> Ticket:
        """As `append` of each, at least one."""
        first = self.log.end
        try:
            return self.log.append_all(contents, expires_ms, flags)
        finally:
            count = self.log.end - first  # fewer, if a file for the rest could not be made
            self.ready += count
            if self.counts_bytes:
                self.ready_bytes += sum(len(content.body) for content in contents[:count])

    def recount(self, in_flight_bytes: int) -> None:
        """A pass was undone: what it appended is not there. All that was out before still is."""
        self.ready = self.log.live - self.in_flight
        if self.counts_bytes:
            self.count_bytes(in_flight_bytes)

    def count_bytes(self, in_flight_bytes: int) -> None:
        """From now on, know how many bytes of bodies are ready; those that are out have so many. May read the log."""
        self.counts_bytes = True
        self.ready_bytes = self.log.segments.live_bytes() - in_flight_bytes

    # -- out and back

    @property
    def readable(self) -> int:
        """How many can be taken, at most."""
        return len(self._requeued) + max(self.log.readable_end - self.cursor, 0)

    def _next(self) -> int | None:
        if self._requeued:
            return self._requeued[0][1]
        offset = self.log.next_live(self.cursor)
        while offset is not None and offset in self.withheld:  # since before the broker was started
            offset = self.log.next_live(offset + 1)
        return offset

    @property
    def first_requeued(self) -> int | None:
        """The place of the first that came back."""
        return self._requeued[0][0] if self._requeued else None

    def _skip(self, offset: int, damage: DamagedSegment) -> None:
        """It is never served, and not settled either: whoever mends the file has it again after a restart."""
        log.warning("a message of %s is left out until its file is mended: %s", self.log.folder, damage)
        self._go_past(offset)
        self.ready -= 1
        self.in_flight += 1

    def _go_past(self, offset: int) -> None:
        if self._requeued:
            heapq.heappop(self._requeued)
        else:
            self.cursor = offset + 1

    def take(self, may_wait: bool) -> StoredContent | None:
        """The next one, which is out until it is settled or given back. ColdRead: it is on disk only, stays, and the
        caller may not wait for it."""
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
                self.ready_bytes -= len(stored.content.body)
            return stored
        return None

    def take_batch(self, most: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        """As `take`, of several that are at hand: up to so many, and about so many bytes. Empty: the next one is a
        special case, or there is none."""
        batch = [] if self._requeued else self.log.take_batch(self.cursor, most, most_bytes, now_ms)
        self._mark_in_flight(batch)
        return batch

    def take_expired(self, most: int, most_bytes: int, now_ms: int) -> list[StoredContent]:
        """As `take_batch`, of those at the head that have expired."""
        batch = [] if self._requeued else self.log.take_expired(self.cursor, most, most_bytes, now_ms)
        self._mark_in_flight(batch)
        return batch

    def _mark_in_flight(self, batch: Sequence[StoredContent]) -> None:
        if batch:
            self.cursor = batch[-1].offset + 1
            self.ready -= len(batch)
            self.in_flight += len(batch)
            if self.counts_bytes:
                self.ready_bytes -= sum([len(stored[3].body) for stored in batch])

    def cold_head(self) -> ColdRead | None:
        """None: there is no next one, or it can be had at once."""
        offset = self._next()
        try:
            if offset is not None:
                self.log.peek(offset, may_wait=False)
        except ColdRead as cold:
            return cold
        except DamagedSegment:
            pass  # it is left out when it is taken
        return None

    def delivery_counts(self, offset: int) -> DeliveryCounts:
        return self._delivery_counts.get(offset, NEVER_DELIVERED)

    def recovered_delivery_counts(self, offset: int) -> DeliveryCounts:
        """As `delivery_counts`, and what was kept over a restart."""
        if self._delivery_counts and (delivery_counts := self._delivery_counts.get(offset)) is not None:
            return delivery_counts
        failed = self.log.segments.attempts(offset)
        return DeliveryCounts(failed, failed) if failed else NEVER_DELIVERED

    def requeue(self, stored: StoredContent, delivery_counts: DeliveryCounts) -> None:
        """It goes to where it was."""
        self._delivery_counts[stored.offset] = delivery_counts
        if self._requeue_numbers is None and delivery_counts.taken and not self.log.is_volatile:
            # After a restart, too, it is marked as redelivered.
            self.log.acks.note_attempts(stored.offset, delivery_counts.taken)
        place = stored.offset if self._requeue_numbers is None else next(self._requeue_numbers)
        heapq.heappush(self._requeued, (place, stored.offset))
        self.ready += 1
        self.in_flight -= 1
        if self.counts_bytes:
            self.ready_bytes += len(stored.content.body)

    def settle(self, offsets: Sequence[int]) -> None:
        """Those that are out are done with, at least one."""
        self.log.acks.ack_each(offsets)
        self.in_flight -= len(offsets)
        for offset in offsets if self._delivery_counts else ():
            self._delivery_counts.pop(offset, None)

    def purge(self, in_flight: set[int]) -> int:
        """All that are ready and readable are done with; `in_flight` are those that are not ready."""
        purged = self.log.acks.ack_range(0, self.log.readable_end, in_flight)
        self._requeued = []
        self._delivery_counts = {
            offset: delivery_counts for offset, delivery_counts in self._delivery_counts.items() if offset in in_flight
        }
        self.cursor = self.log.readable_end
        self.ready -= purged
        return purged

    def head_expiry_ms(self, may_wait: bool) -> int:
        """When the next one that is ready and readable expires; NEVER: it does not, or there is none."""
        while (offset := self._next()) is not None:
            try:
                return self.log.expiry_ms(offset, may_wait)
            except DamagedSegment as damage:
                self._skip(offset, damage)
        return NEVER


def requeued_first(backlogs: list[Backlog]) -> list[Backlog]:
    """Those to which something came back, in that order; then all."""
    returned = [(place, backlog) for backlog in backlogs if (place := backlog.first_requeued) is not None]
    return [*(backlog for _, backlog in sorted(returned, key=lambda pair: pair[0])), *backlogs]
