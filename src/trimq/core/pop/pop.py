"""Messages that groups take out one by one, whoever asks first: each is out for a time, is settled by its receipt, and
comes back in a topic of the group's own when its time is over. What is out survives a restart. Knows no protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.commit_log.dead_letters import SharedFailures
from trimq.core.commit_log.retry_topics import FindKey, OwnTopics
from trimq.core.commit_log.stream import Entry, SharedStream
from trimq.core.commit_log.topics import SharedTopic, SharedTopics
from trimq.core.failures.ledger import Reason
from trimq.core.metadata.cursors import Cursors
from trimq.core.metadata.durable_map import DurableMap
from trimq.core.pop.acks import Settler, Undecided
from trimq.core.pop.in_flight import GroupQueue, GroupQueues, Kept
from trimq.core.pop.receipts import Popped, Receipt, Received, Wish
from trimq.core.pop.revive import Afterwards, RetryLimit, Returning
from trimq.core.pop.selection import SCANNED, choose, held_again
from trimq.core.scheduling.waiters import AnyWatch, Waiters
from trimq.core.security.access import Access, Action
from trimq.core.write_gate import WriteGate
from trimq.errors import Busy, ColdRead, LeaseGone, NotRunning, Refusal, UnknownTopic
from trimq.model import Caller, StreamId
from trimq.storage.group_commit.passes import Ticket

_LOOKS_BACK_EVERY = 5  # so often what came back is looked at before what is new


class _Place(NamedTuple):
    topic: SharedTopic
    stream: SharedStream
    is_returned: bool


class Popping:
    def __init__(
        self,
        topics: SharedTopics,
        cursors: Cursors,
        table: DurableMap[Kept],
        access: Access,
        gate: WriteGate,
        timeline: Timeline,
        afterwards: Afterwards,
        out_limit: int,
        find_key: FindKey,
        retry_limit: RetryLimit,
        failures: SharedFailures,
    ) -> None:
        self._topics = topics
        self._cursors = cursors
        self._access = access
        self._gate = gate
        self._timeline = timeline
        self._afterwards = afterwards
        self._undecided = Undecided(afterwards)
        self._out_limit = out_limit
        self._find_key = find_key
        self._retry_limit = retry_limit
        self._failures = failures
        self._queues = GroupQueues(table, timeline, self._expired)
        self._waiters: dict[tuple[str, UUID], Waiters] = {}
        self._own: OwnTopics | None = None
        self._returning: Returning | None = None
        self._turns = 0
        self._is_stopped = False
        topics.on_deleted(self._forget_topic)

    def start(self, store_host: Callable[[], bytes]) -> None:
        """What was out before is out again. `store_host` is what messages that come back say of where they are."""
        if self._own is not None:
            return
        own = self._own = OwnTopics(self._topics, self._gate, self._find_key, store_host, self._failures)
        self._returning = Returning(
            self._queues,
            self._topics,
            own,
            self._afterwards,
            self._timeline,
            self._retry_limit,
            self._wake,
            self._settled_in_order,
        )
        self._queues.load()
        for queue in [queue for queue in self._queues if self._topics.find_id(queue.stream.topic) is None]:
            self._queues.forget(queue)  # a crash came between its end and that of what is kept of it

    def stop(self) -> None:
        """Nothing comes back any more; the next start goes on."""
        self._is_stopped = True

    # -- taking

    def receive(self, caller: Caller, group: str, topic: SharedTopic, wish: Wish) -> Received:
        """Take what there is and is wanted."""
        self._access.require(caller, Action.READ, topic.resource)
        self._require_running()
        self._require_there(topic)
        messages: list[Popped] = []
        now_ms = self._timeline.now_ms()  # of all of them, or a receipt might not be the one that is kept
        rest, room, ticket = 0, wish.max_bytes, None
        for place in self._places(group, topic, wish):
            queue = self._open(group, place, wish.from_end)
            if wish.is_ordered and queue.held:
                entries = held_again(queue, place.stream, wish)
            else:
                count = wish.max_count - len(messages)
                entries = choose(queue, place.stream, wish, count, room, self._out_limit, self._pass_over)
            if entries or not (wish.is_ordered and queue.held):
                rest += max(place.stream.readable_end - queue.next_offset, 0)
            if entries:
                messages += self._take(queue, place, entries, wish, now_ms)
                room -= sum([entry.size for entry in entries])
            ticket = self._keep_progress(queue, wish, bool(entries)) or ticket
        return Received(messages, rest, ticket)

    def _require_running(self) -> OwnTopics:
        if self._own is None or self._is_stopped:
            raise NotRunning
        return self._own

    def _require_there(self, topic: SharedTopic) -> None:
        """One who has waited may come when the topic is no more."""
        if self._topics.find_id(topic.id) is None:
            raise UnknownTopic(str(topic.name))

    def _places(self, group: str, topic: SharedTopic, wish: Wish) -> list[_Place]:
        """Now and then what came back comes first, or it would wait for as long as there is anything new."""
        new = [_Place(topic, topic.stream(number), False) for number in wish.numbers]
        if wish.is_ordered:
            return new
        self._turns += 1
        back = self._returned_places(group, topic)
        return back + new if self._turns % _LOOKS_BACK_EVERY == 0 else new + back

    def _returned_places(self, group: str, topic: SharedTopic) -> list[_Place]:
        found = None if self._own is None else self._own.find_returned(group, topic)
        return [] if found is None else [_Place(found, stream, True) for stream in found.streams()]

    def _open(self, group: str, place: _Place, from_end: bool) -> GroupQueue:
        stream = place.stream
        queue = self._queues.find(group, stream.id)
        if queue is None:
            queue = self._queues.open(group, stream.id, self._first_offset(group, place, from_end))
        queue.next_offset = min(max(queue.next_offset, stream.start), stream.readable_end)
        return queue

    def _first_offset(self, group: str, place: _Place, from_end: bool) -> int:
        stream = place.stream
        cursor = self._cursors.fetch(group, stream.id)
        if cursor is not None and cursor.offset >= 0:
            return cursor.offset
        skips = from_end and stream.start > 0 and not place.is_returned
        return stream.readable_end if skips else stream.start

    def _pass_over(self, queue: GroupQueue, offset: int) -> None:
        """It came back in order and is too old by now."""
        ticket = self._queues.settle(queue, offset)
        self._afterwards(ticket, lambda done: self._settled_in_order(queue, done.refusal))

    def _take(self, queue: GroupQueue, place: _Place, entries: list[Entry], wish: Wish, now_ms: int) -> list[Popped]:
        topic, stream, is_returned = place
        deadline_ms, number = now_ms + wish.invisible_ms, queue.stream.number
        tries_of = [queue.tries_of(offset) for offset, *_ in entries]
        by_tries: dict[int, list[int]] = {}
        for (offset, *_), tries in zip(entries, tries_of, strict=True):
            by_tries.setdefault(tries, []).append(offset)
        for tries, offsets in by_tries.items():  # before one is read, which may be damaged: the queue has moved on
            self._queues.take_all(queue, offsets, Kept(deadline_ms, now_ms, tries, wish.is_ordered, True))
        return [
            Popped(Receipt(is_returned, number, offset, now_ms), topic, data, deadline_ms, tries)
            for (offset, *_), data, tries in zip(entries, stream.views(entries), tries_of, strict=True)
        ]

    def _keep_progress(self, queue: GroupQueue, wish: Wish, has_taken: bool) -> Ticket | None:
        """After the messages: a power cut that keeps only some of it must not leave one out of both. They tell that
        they are passed, so that none is in both either."""
        if not has_taken and queue.next_offset == queue.kept_offset:
            return None
        if has_taken:
            queue.attempt_id = wish.attempt_id
        ticket = self._queues.go_on(queue, queue.next_offset)
        queue.unsettled += 1
        self._afterwards(ticket, lambda done: self._kept(queue, done.refusal))
        return ticket

    def _kept(self, queue: GroupQueue, refusal: Refusal | None) -> None:
        queue.unsettled -= 1
        self._follow(queue, refusal)

    def _follow(self, queue: GroupQueue, refusal: Refusal | None) -> None:
        """The group's cursor stands where a reader of another kind would go on."""
        if refusal is not None or self._queues.find(queue.group, queue.stream) is not queue:
            return
        offset = min(queue.taken, default=queue.next_offset) if queue.is_ordered else queue.next_offset
        known = self._cursors.fetch(queue.group, queue.stream)
        if known is None or known.offset != offset:
            self._cursors.commit(queue.group, queue.stream, offset)

    # -- looking only

    def find_cold(self, group: str, topic: SharedTopic, wish: Wish) -> ColdRead | None:
        """What `receive` would most likely wait for the disk for."""
        places = [_Place(topic, topic.stream(number), False) for number in wish.numbers]
        places += self._returned_places(group, topic)
        found = [place.stream.find_cold(self._next_offset(group, place)) for place in places]
        colds = [cold for cold in found if cold is not None]
        return ColdRead.joined(colds) if colds else None

    def peek(self, caller: Caller, group: str, topic: SharedTopic, numbers: Sequence[int], max_count: int) -> Received:
        """What is new in these streams, without taking it. The receipts are worth nothing."""
        self._access.require(caller, Action.READ, topic.resource)
        found: list[Popped] = []
        rest = 0
        for number in numbers:
            place = _Place(topic, topic.stream(number), False)
            offset = self._next_offset(group, place)
            for entry in place.stream.entries(offset, SCANNED):
                if len(found) >= max_count:
                    break
                if place.stream.is_wanted(entry, None):
                    found.append(Popped(Receipt(False, number, entry.offset, 0), topic, place.stream.view(entry), 0, 0))
                offset += 1
            rest += max(place.stream.readable_end - offset, 0)
        return Received(found, rest, None)

    def has_any(self, caller: Caller, group: str, topic: SharedTopic, numbers: Sequence[int]) -> bool:
        """Whether there is something to receive, whoever wants it."""
        self._access.require(caller, Action.READ, topic.resource)
        self._require_there(topic)
        places = [_Place(topic, topic.stream(number), False) for number in numbers]
        for place in places + self._returned_places(group, topic):
            queue = self._queues.find(group, place.stream.id)
            if self._next_offset(group, place) < place.stream.readable_end or (queue is not None and queue.back):
                return True
        return False

    def _next_offset(self, group: str, place: _Place) -> int:
        queue = self._queues.find(group, place.stream.id)
        offset = self._first_offset(group, place, from_end=False) if queue is None else queue.next_offset
        return max(offset, place.stream.start)

    def watch(self, group: str, topic: SharedTopic, numbers: Sequence[int], callback: Callable[[], None]) -> AnyWatch:
        """Call back once, when there may be something new to receive."""
        streams = [topic.stream(number) for number in numbers]
        streams += [place.stream for place in self._returned_places(group, topic)]
        waiters = self._waiters.setdefault((group, topic.id), Waiters())
        return AnyWatch([*(stream.watch for stream in streams), waiters.watch], callback)

    # -- settling

    def ack(self, caller: Caller, group: str, topic: SharedTopic, receipt: Receipt) -> Ticket | None:
        """The message is done with. None: it is not out under this receipt, which is no mistake. One that was settled a
        moment ago waits for that to be durable."""
        return self.settler(caller, group, topic).ack(receipt)

    def settler(self, caller: Caller, group: str, topic: SharedTopic) -> Settler:
        """For several receipts that come together."""
        self._access.require(caller, Action.READ, topic.resource)
        return Settler(partial(self._find_queue, group, topic), self._settle, self._undecided)

    def _settle(self, queue: GroupQueue, offsets: Sequence[int]) -> Ticket:
        in_order = [offset for offset in offsets if queue.taken[offset].is_ordered]
        ticket = self._queues.settle_all(queue, offsets)
        self._undecided.note(ticket, queue, offsets)
        if in_order:
            self._afterwards(ticket, lambda done: self._settled_in_order(queue, done.refusal))
        return ticket

    def change_invisible(
        self, caller: Caller, group: str, topic: SharedTopic, receipt: Receipt, invisible_ms: int
    ) -> tuple[Receipt, Ticket]:
        """It is out for so long from now on, under another receipt. LeaseGone: it is not out under this one."""
        self._access.require(caller, Action.READ, topic.resource)
        queue = self._find_taken(group, topic, receipt)
        if queue is None:
            raise LeaseGone(receipt.offset)
        now_ms = self._timeline.now_ms()
        ticket = self._queues.extend(queue, receipt.offset, now_ms, now_ms + invisible_ms)
        return receipt._replace(taken_ms=now_ms), ticket

    def renew(
        self, caller: Caller, group: str, topic: SharedTopic, receipt: Receipt, invisible_ms: int
    ) -> Ticket | None:
        """It is out for so long from now on, under the same receipt. None: it is not out under this one."""
        self._access.require(caller, Action.READ, topic.resource)
        queue = self._find_taken(group, topic, receipt)
        if queue is None:
            return None
        deadline_ms = self._timeline.now_ms() + invisible_ms
        return self._queues.extend(queue, receipt.offset, receipt.taken_ms, deadline_ms)

    def dead_letters(self, caller: Caller, group: str, topic: SharedTopic, receipt: Receipt) -> SharedTopic:
        """Where `forward_to_dlq` puts it: to be waited for, if it is just being made. LeaseGone: it is not out."""
        self._access.require(caller, Action.READ, topic.resource)
        if self._find_taken(group, topic, receipt) is None:
            raise LeaseGone(receipt.offset)
        return self._require_running().make_dead(group, topic)

    def forward_to_dlq(self, caller: Caller, group: str, topic: SharedTopic, receipt: Receipt) -> Ticket:
        """It goes to the dead letters of the group, which are there, and is settled when that is durable. LeaseGone: it
        is not out."""
        dead = self.dead_letters(caller, group, topic, receipt)
        queue, where = self._find_taken(group, topic, receipt), self._where(group, topic, receipt.is_returned)
        if queue is None or where is None:
            raise LeaseGone(receipt.offset)
        unit = where.kept_stream(receipt.number).unit(receipt.offset)
        is_ordered = queue.taken[receipt.offset].is_ordered
        ticket = self._require_running().append_dead(dead, group, topic, unit, Reason.REJECTED, is_ordered)
        self._afterwards(ticket, lambda done: self._forwarded(queue, receipt, done.refusal))
        return ticket

    def _forwarded(self, queue: GroupQueue, receipt: Receipt, refusal: Refusal | None) -> None:
        taken = queue.taken.get(receipt.offset)
        if refusal is None and taken is not None and taken.taken_ms == receipt.taken_ms:
            self._settle(queue, (receipt.offset,))

    def _where(self, group: str, topic: SharedTopic, is_returned: bool) -> SharedTopic | None:
        return self._require_running().find_returned(group, topic) if is_returned else topic

    def _find_queue(self, group: str, topic: SharedTopic, is_returned: bool, number: int) -> GroupQueue | None:
        where = self._where(group, topic, is_returned)
        return None if where is None else self._queues.find(group, StreamId(where.id, number))

    def _find_taken(self, group: str, topic: SharedTopic, receipt: Receipt) -> GroupQueue | None:
        queue = self._find_queue(group, topic, receipt.is_returned, receipt.number)
        return queue if queue is not None and queue.is_out(receipt.offset, receipt.taken_ms) else None

    def _settled_in_order(self, queue: GroupQueue, refusal: Refusal | None) -> None:
        self._follow(queue, refusal)
        if not queue.held:
            self._wake(queue.group, queue.stream.topic)

    # -- coming back

    def _expired(self, queue: GroupQueue, offset: int) -> None:
        if self._returning is None or self._is_stopped:
            return  # the next start finds it
        if queue.unsettled:
            # A power cut may take back that it was taken, and keep that it came back: it would be there twice.
            raise Busy("it is not on disk yet that the message was taken")
        self._returning.expire(queue, offset)

    def _wake(self, group: str, topic: UUID) -> None:
        waiters = self._waiters.pop((group, topic), None)
        if waiters is not None:
            waiters.wake()

    # -- others' doing

    def moved(self, group: str, stream: StreamId, offset: int) -> None:
        """Somebody has set the group's cursor: it goes on there."""
        queue = self._queues.find(group, stream)
        if queue is not None and offset >= 0:
            self._queues.move(queue, offset)

    def forget_group(self, group: str) -> None:
        for queue in [queue for queue in self._queues if queue.group == group]:
            self._queues.forget(queue)

    def _forget_topic(self, topic: UUID) -> None:
        for queue in [queue for queue in self._queues if queue.stream.topic == topic]:
            self._queues.forget(queue)
