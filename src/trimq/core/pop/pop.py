"""POP consumption: a group receives messages one by one, each with a lease. A message is acknowledged by its receipt,
or returned through the group's retry topic when the lease expires. Messages in flight survive a restart. Knows no
protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.commit_log.dead_letters import CommitLogDeadLetters
from trimq.core.commit_log.retry_topics import FindKey, RetryTopics
from trimq.core.commit_log.stream import MessageQueue, QueueEntry
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopics
from trimq.core.failures.ledger import Reason
from trimq.core.metadata.cursors import Cursors
from trimq.core.metadata.durable_map import DurableMap
from trimq.core.pop.acks import Acknowledger, PendingAcks
from trimq.core.pop.in_flight import InFlightQueue, InFlightRecord, InFlightTable
from trimq.core.pop.receipts import PoppedMessage, PopRequest, PopResult, Receipt
from trimq.core.pop.revive import OnDurable, RetryLimit, Reviver
from trimq.core.pop.selection import MAX_SCANNED, select_messages, select_same_again
from trimq.core.scheduling.waiters import AnyWatch, Waiters
from trimq.core.security.access import Access, Action
from trimq.core.write_gate import WriteGate
from trimq.errors import Busy, ColdRead, LeaseGone, NotRunning, Refusal, UnknownTopic
from trimq.model import Caller, StreamId
from trimq.storage.group_commit.passes import Ticket

_RETRIES_FIRST_EVERY = 5  # every n-th request reads retries before new messages


class _QueueRef(NamedTuple):
    topic: CommitLogTopic
    stream: MessageQueue
    is_retry: bool


class PopService:
    def __init__(
        self,
        topics: CommitLogTopics,
        cursors: Cursors,
        table: DurableMap[InFlightRecord],
        access: Access,
        gate: WriteGate,
        timeline: Timeline,
        on_durable: OnDurable,
        in_flight_limit: int,
        find_key: FindKey,
        retry_limit: RetryLimit,
        failures: CommitLogDeadLetters,
    ) -> None:
        self._topics = topics
        self._cursors = cursors
        self._access = access
        self._gate = gate
        self._timeline = timeline
        self._on_durable = on_durable
        self._pending_acks = PendingAcks(on_durable)
        self._in_flight_limit = in_flight_limit
        self._find_key = find_key
        self._retry_limit = retry_limit
        self._failures = failures
        self._queues = InFlightTable(table, timeline, self._expired)
        self._waiters: dict[tuple[str, UUID], Waiters] = {}
        self._retry_topics: RetryTopics | None = None
        self._reviver: Reviver | None = None
        self._turns = 0
        self._is_stopped = False
        topics.on_deleted(self._forget_topic)

    def start(self, store_host: Callable[[], bytes]) -> None:
        """Restores the messages in flight. `store_host` returns the broker address that returned messages carry."""
        if self._retry_topics is not None:
            return
        own = self._retry_topics = RetryTopics(self._topics, self._gate, self._find_key, store_host, self._failures)
        self._reviver = Reviver(
            self._queues,
            self._topics,
            own,
            self._on_durable,
            self._timeline,
            self._retry_limit,
            self._wake,
            self._acked_in_order,
        )
        self._queues.load()
        for queue in [queue for queue in self._queues if self._topics.find_id(queue.stream.topic) is None]:
            self._queues.forget(queue)  # deleted topic; a crash left its rows

    def stop(self) -> None:
        """Stops returning expired messages; the next start continues."""
        self._is_stopped = True

    # -- receiving

    def receive(self, caller: Caller, group: str, topic: CommitLogTopic, pop_request: PopRequest) -> PopResult:
        """Pops available messages that match the request."""
        self._require_read(caller, group, topic)
        self._require_running()
        self._require_there(topic)
        messages: list[PoppedMessage] = []
        now_ms = self._timeline.now_ms()  # one time for all, so that receipts match the stored rows
        rest, room, ticket = 0, pop_request.max_bytes, None
        for place in self._places(group, topic, pop_request):
            queue = self._open(group, place, pop_request.from_end)
            if pop_request.is_ordered and queue.in_flight_offsets:
                entries = select_same_again(queue, place.stream, pop_request)
            else:
                count = pop_request.max_count - len(messages)
                entries = select_messages(
                    queue, place.stream, pop_request, count, room, self._in_flight_limit, self._ack_expired
                )
            if entries or not (pop_request.is_ordered and queue.in_flight_offsets):
                rest += max(place.stream.readable_end - queue.next_offset, 0)
            if entries:
                messages += self._take(queue, place, entries, pop_request, now_ms)
                room -= sum([entry.size for entry in entries])
            ticket = self._store_progress(queue, pop_request, bool(entries)) or ticket
        return PopResult(messages, rest, ticket)

    def _require_read(self, caller: Caller, group: str, topic: CommitLogTopic) -> None:
        self._access.require(caller, Action.READ, topic.resource)
        self._access.require_group(caller, Action.READ, group)

    def _require_running(self) -> RetryTopics:
        if self._retry_topics is None or self._is_stopped:
            raise NotRunning
        return self._retry_topics

    def _require_there(self, topic: CommitLogTopic) -> None:
        """Raises if the topic was deleted during a long poll."""
        if self._topics.find_id(topic.id) is None:
            raise UnknownTopic(str(topic.name))

    def _places(self, group: str, topic: CommitLogTopic, pop_request: PopRequest) -> list[_QueueRef]:
        """Queues to read. Every n-th request reads retries first; otherwise they would wait while there are new
        messages."""
        new = [_QueueRef(topic, topic.stream(number), False) for number in pop_request.numbers]
        if pop_request.is_ordered:
            return new
        self._turns += 1
        returned = self._returned_places(group, topic)
        return returned + new if self._turns % _RETRIES_FIRST_EVERY == 0 else new + returned

    def _returned_places(self, group: str, topic: CommitLogTopic) -> list[_QueueRef]:
        found = None if self._retry_topics is None else self._retry_topics.find_retry_topic(group, topic)
        return [] if found is None else [_QueueRef(found, stream, True) for stream in found.streams()]

    def _open(self, group: str, place: _QueueRef, from_end: bool) -> InFlightQueue:
        stream = place.stream
        queue = self._queues.find(group, stream.id)
        if queue is None:
            offset = self._first_offset(group, place, from_end)
            queue = self._queues.open(group, stream.id, offset)
            if not place.is_retry and self._cursors.fetch(group, stream.id) is None:
                self._cursors.commit(group, stream.id, offset)  # "from the end" means the end at the first pop
        queue.next_offset = min(max(queue.next_offset, stream.start), stream.readable_end)
        return queue

    def _first_offset(self, group: str, place: _QueueRef, from_end: bool) -> int:
        stream = place.stream
        cursor = self._cursors.fetch(group, stream.id)
        if cursor is not None and cursor.offset >= 0:
            return cursor.offset
        skips = from_end and stream.start > 0 and not place.is_retry
        return stream.readable_end if skips else stream.start

    def _ack_expired(self, queue: InFlightQueue, offset: int) -> None:
        """Acknowledges a message that was returned in order and has expired since."""
        ticket = self._queues.ack(queue, offset)
        self._on_durable(ticket, lambda done: self._acked_in_order(queue, done.refusal))

    def _take(
        self, queue: InFlightQueue, place: _QueueRef, entries: list[QueueEntry], pop_request: PopRequest, now_ms: int
    ) -> list[PoppedMessage]:
        topic, stream, is_retry = place
        deadline_ms, number = now_ms + pop_request.invisible_ms, queue.stream.number
        attempts_of = [queue.attempts_of(offset) for offset, *_ in entries]
        by_tries: dict[int, list[int]] = {}
        for (offset, *_), tries in zip(entries, attempts_of, strict=True):
            by_tries.setdefault(tries, []).append(offset)
        for tries, offsets in by_tries.items():  # before reading, which may fail on damage: `next_offset` has advanced
            self._queues.mark_in_flight(
                queue, offsets, InFlightRecord(deadline_ms, now_ms, tries, pop_request.is_ordered, True)
            )
        return [
            PoppedMessage(Receipt(is_retry, number, offset, now_ms), topic, data, deadline_ms, tries)
            for (offset, *_), data, tries in zip(entries, stream.views(entries), attempts_of, strict=True)
        ]

    def _store_progress(self, queue: InFlightQueue, pop_request: PopRequest, has_taken: bool) -> Ticket | None:
        """Stores the next offset, after the messages: a power cut that keeps only part of the pass must not lose a
        message. Each message's row says that it is before the next offset, so that none is delivered twice either."""
        if not has_taken and queue.next_offset == queue.stored_next_offset:
            return None
        if has_taken:
            queue.attempt_id = pop_request.attempt_id
        ticket = self._queues.store_next_offset(queue, queue.next_offset)
        queue.pending_passes += 1
        self._on_durable(ticket, lambda done: self._kept(queue, done.refusal))
        return ticket

    def _kept(self, queue: InFlightQueue, refusal: Refusal | None) -> None:
        queue.pending_passes -= 1
        self._commit_cursor(queue, refusal)

    def _commit_cursor(self, queue: InFlightQueue, refusal: Refusal | None) -> None:
        """Commits the group's cursor, from which consumers of other kinds continue."""
        if refusal is not None or self._queues.find(queue.group, queue.stream) is not queue:
            return
        offset = min(queue.in_flight, default=queue.next_offset) if queue.is_ordered else queue.next_offset
        known = self._cursors.fetch(queue.group, queue.stream)
        if known is None or known.offset != offset:
            self._cursors.commit(queue.group, queue.stream, offset)

    # -- reading without effect

    def find_cold(self, group: str, topic: CommitLogTopic, pop_request: PopRequest) -> ColdRead | None:
        """Returns the cold data that `receive` would probably wait for."""
        places = [_QueueRef(topic, topic.stream(number), False) for number in pop_request.numbers]
        places += self._returned_places(group, topic)
        found = [place.stream.find_cold(self._next_offset(group, place)) for place in places]
        colds = [cold for cold in found if cold is not None]
        return ColdRead.joined(colds) if colds else None

    def peek(
        self, caller: Caller, group: str, topic: CommitLogTopic, numbers: Sequence[int], max_count: int
    ) -> PopResult:
        """Returns new messages of these queues without popping them. The receipts are invalid."""
        self._require_read(caller, group, topic)
        found: list[PoppedMessage] = []
        rest = 0
        for number in numbers:
            place = _QueueRef(topic, topic.stream(number), False)
            offset = self._next_offset(group, place)
            for entry in place.stream.entries(offset, MAX_SCANNED):
                if len(found) >= max_count:
                    break
                if place.stream.matches_filter(entry, None):
                    found.append(
                        PoppedMessage(Receipt(False, number, entry.offset, 0), topic, place.stream.view(entry), 0, 0)
                    )
                offset += 1
            rest += max(place.stream.readable_end - offset, 0)
        return PopResult(found, rest, None)

    def has_any(self, caller: Caller, group: str, topic: CommitLogTopic, numbers: Sequence[int]) -> bool:
        """Whether any message could be received, without regard to filters."""
        self._require_read(caller, group, topic)
        self._require_there(topic)
        places = [_QueueRef(topic, topic.stream(number), False) for number in numbers]
        for place in places + self._returned_places(group, topic):
            queue = self._queues.find(group, place.stream.id)
            if self._next_offset(group, place) < place.stream.readable_end or (queue is not None and queue.returned):
                return True
        return False

    def _next_offset(self, group: str, place: _QueueRef) -> int:
        queue = self._queues.find(group, place.stream.id)
        offset = self._first_offset(group, place, from_end=False) if queue is None else queue.next_offset
        return max(offset, place.stream.start)

    def watch(
        self, group: str, topic: CommitLogTopic, numbers: Sequence[int], callback: Callable[[], None]
    ) -> AnyWatch:
        """Calls back once, when new messages may be available."""
        streams = [topic.stream(number) for number in numbers]
        streams += [place.stream for place in self._returned_places(group, topic)]
        waiters = self._waiters.setdefault((group, topic.id), Waiters())
        return AnyWatch([*(stream.watch for stream in streams), waiters.watch], callback)

    # -- acknowledging

    def ack(self, caller: Caller, group: str, topic: CommitLogTopic, receipt: Receipt) -> Ticket | None:
        """Acknowledges the message. Returns None if the receipt is no longer valid, which is not an error. A repeated
        ack gets the ticket of the first until that is durable."""
        return self.acknowledger(caller, group, topic).ack(receipt)

    def acknowledger(self, caller: Caller, group: str, topic: CommitLogTopic) -> Acknowledger:
        """Returns an acknowledger for a batch of receipts."""
        self._require_read(caller, group, topic)
        return Acknowledger(partial(self._find_queue, group, topic), self._ack, self._pending_acks)

    def _ack(self, queue: InFlightQueue, offsets: Sequence[int]) -> Ticket:
        in_order = [offset for offset in offsets if queue.in_flight[offset].is_ordered]
        ticket = self._queues.ack_all(queue, offsets)
        self._pending_acks.add(ticket, queue, offsets)
        if in_order:
            self._on_durable(ticket, lambda done: self._acked_in_order(queue, done.refusal))
        return ticket

    def change_invisible(
        self, caller: Caller, group: str, topic: CommitLogTopic, receipt: Receipt, invisible_ms: int
    ) -> tuple[Receipt, Ticket]:
        """Changes the remaining lease time and invalidates the old receipt. Raises LeaseGone if the receipt is no
        longer valid."""
        self._require_read(caller, group, topic)
        queue = self._find_in_flight(group, topic, receipt)
        if queue is None:
            raise LeaseGone(receipt.offset)
        now_ms = self._timeline.now_ms()
        ticket = self._queues.extend(queue, receipt.offset, now_ms, now_ms + invisible_ms)
        return receipt._replace(pop_time_ms=now_ms), ticket

    def renew(
        self, caller: Caller, group: str, topic: CommitLogTopic, receipt: Receipt, invisible_ms: int
    ) -> Ticket | None:
        """Changes the remaining lease time under the same receipt. Returns None if the receipt is no longer valid."""
        self._require_read(caller, group, topic)
        queue = self._find_in_flight(group, topic, receipt)
        if queue is None:
            return None
        deadline_ms = self._timeline.now_ms() + invisible_ms
        return self._queues.extend(queue, receipt.offset, receipt.pop_time_ms, deadline_ms)

    def dead_letters(self, caller: Caller, group: str, topic: CommitLogTopic, receipt: Receipt) -> CommitLogTopic:
        """Returns the topic that `forward_to_dlq` appends to; wait for its creation first. Raises LeaseGone if the
        receipt is no longer valid."""
        self._require_read(caller, group, topic)
        if self._find_in_flight(group, topic, receipt) is None:
            raise LeaseGone(receipt.offset)
        return self._require_running().make_dead_letter_topic(group, topic)

    def forward_to_dlq(self, caller: Caller, group: str, topic: CommitLogTopic, receipt: Receipt) -> Ticket:
        """Appends the message to the group's dead-letter topic, which must exist, and acknowledges it once that is
        durable. Raises LeaseGone if the receipt is no longer valid."""
        dead = self.dead_letters(caller, group, topic, receipt)
        queue, where = self._find_in_flight(group, topic, receipt), self._topic_of(group, topic, receipt.is_retry)
        if queue is None or where is None:
            raise LeaseGone(receipt.offset)
        unit = where.stream_or_retired(receipt.number).unit(receipt.offset)
        is_ordered = queue.in_flight[receipt.offset].is_ordered
        ticket = self._require_running().append_dead_letter(dead, group, topic, unit, Reason.REJECTED, is_ordered)
        self._on_durable(ticket, lambda done: self._forwarded(queue, receipt, done.refusal))
        return ticket

    def _forwarded(self, queue: InFlightQueue, receipt: Receipt, refusal: Refusal | None) -> None:
        in_flight = queue.in_flight.get(receipt.offset)
        if refusal is None and in_flight is not None and in_flight.pop_time_ms == receipt.pop_time_ms:
            self._ack(queue, (receipt.offset,))

    def _topic_of(self, group: str, topic: CommitLogTopic, is_retry: bool) -> CommitLogTopic | None:
        return self._require_running().find_retry_topic(group, topic) if is_retry else topic

    def _find_queue(self, group: str, topic: CommitLogTopic, is_retry: bool, number: int) -> InFlightQueue | None:
        where = self._topic_of(group, topic, is_retry)
        return None if where is None else self._queues.find(group, StreamId(where.id, number))

    def _find_in_flight(self, group: str, topic: CommitLogTopic, receipt: Receipt) -> InFlightQueue | None:
        queue = self._find_queue(group, topic, receipt.is_retry, receipt.number)
        return queue if queue is not None and queue.is_in_flight(receipt.offset, receipt.pop_time_ms) else None

    def _acked_in_order(self, queue: InFlightQueue, refusal: Refusal | None) -> None:
        self._commit_cursor(queue, refusal)
        if not queue.in_flight_offsets:
            self._wake(queue.group, queue.stream.topic)

    # -- expired leases

    def _expired(self, queue: InFlightQueue, offset: int) -> None:
        if self._reviver is None or self._is_stopped:
            return  # the next start restores it
        if queue.pending_passes:
            # A power cut could undo the pop and keep the returned copy: the message would exist twice.
            raise Busy("the pop of this message is not durable yet")
        self._reviver.expire(queue, offset)

    def _wake(self, group: str, topic: UUID) -> None:
        waiters = self._waiters.pop((group, topic), None)
        if waiters is not None:
            waiters.wake()

    # -- changes by others

    def cursor_moved(self, group: str, stream: StreamId, offset: int) -> None:
        """Continues at `offset`, after the group's cursor was set by a client or operator."""
        queue = self._queues.find(group, stream)
        if queue is not None and offset >= 0:
            self._queues.move(queue, offset)

    def cursor_reset(self, group: str, stream: StreamId, offset: int) -> None:
        """Continues at `offset` after an offset reset. Releases the messages in flight in order, and those from
        `offset` on; their receipts are invalid from then on."""
        queue = self._queues.find(group, stream)
        if queue is not None and offset >= 0:
            self._queues.reset(queue, offset)
            self._wake(group, stream.topic)

    def forget_group(self, group: str) -> None:
        for queue in [queue for queue in self._queues if queue.group == group]:
            self._queues.forget(queue)

    def _forget_topic(self, topic: UUID) -> None:
        for queue in [queue for queue in self._queues if queue.stream.topic == topic]:
            self._queues.forget(queue)
