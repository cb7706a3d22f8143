"""What becomes of a message that a group took out and did not settle in time: it comes back, or, after its last try,
lies with the dead letters of the group."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.commit_log.retry_topics import OwnTopics
from trimq.core.commit_log.topics import SharedTopics
from trimq.core.failures.ledger import Reason
from trimq.core.pop.in_flight import GroupQueue, GroupQueues
from trimq.errors import OffsetOutOfRange, Refusal
from trimq.formats.rocketmq_unit.retries import can_come_back
from trimq.storage.group_commit.passes import Ticket

_AGAIN_MS = 1000

Afterwards = Callable[[Ticket, Callable[[Ticket], object]], None]
RetryLimit = Callable[[str], int]
"""How often a message may come back to a group."""

Wake = Callable[[str, UUID], None]
"""There is something for those of a group who wait for a topic."""

SettledInOrder = Callable[[GroupQueue, Refusal | None], None]


class Returning:
    def __init__(
        self,
        queues: GroupQueues,
        topics: SharedTopics,
        own: OwnTopics,
        afterwards: Afterwards,
        timeline: Timeline,
        retry_limit: RetryLimit,
        wake: Wake,
        settled_in_order: SettledInOrder,
    ) -> None:
        self._queues = queues
        self._topics = topics
        self._own = own
        self._afterwards = afterwards
        self._timeline = timeline
        self._retry_limit = retry_limit
        self._wake = wake
        self._settled_in_order = settled_in_order

    def expire(self, queue: GroupQueue, offset: int) -> None:
        """The time of the message at `offset` is over."""
        taken = queue.taken[offset]
        topic = self._topics.find_id(queue.stream.topic)
        if topic is None:
            self._queues.settle(queue, offset)
            return
        limit = self._retry_limit(queue.group)
        if taken.is_ordered and taken.tries < limit:
            self._queues.give_back(queue, offset)
            if not queue.held:
                self._wake(queue.group, topic.id)
            return
        try:
            unit = topic.kept_stream(queue.stream.number).unit(offset)
        except OffsetOutOfRange:
            self._queues.settle(queue, offset)  # it was kept no longer
            return
        is_dead = taken.is_ordered or unit.reconsume_times >= limit or not can_come_back(unit)
        if taken.is_found and self._own.has_stored(queue.group, topic, unit, taken.taken_ms, is_dead):
            self._queues.settle(queue, offset)  # the run before this one has done it
            return
        own = self._own.make_dead(queue.group, topic) if is_dead else self._own.make_returned(queue.group, topic)
        if own.creation is not None:
            self._afterwards(own.creation, lambda done: self._made(queue, offset, done.refusal))
            return
        if is_dead:
            ticket = self._own.append_dead(own, queue.group, topic, unit, Reason.DELIVERY_LIMIT, taken.is_ordered)
        else:
            ticket = self._own.append_returned(own, queue.group, unit, taken.taken_ms)
        self._afterwards(ticket, lambda done: self._stored(queue, offset, topic.id, done.refusal))

    def _made(self, queue: GroupQueue, offset: int, refusal: Refusal | None) -> None:
        """The topic that it goes to is there, or is refused."""
        taken = queue.taken.get(offset)
        if taken is None or taken.lease is not None:
            return  # its group is gone, or it is out again
        try:
            if refusal is None:
                self.expire(queue, offset)
                return
        except Refusal:
            pass  # as if the topic had been
        self._queues.hold_on(queue, offset, self._timeline.now_ms() + _AGAIN_MS)

    def _stored(self, queue: GroupQueue, offset: int, topic: UUID, refusal: Refusal | None) -> None:
        if offset not in queue.taken:
            return  # its group is gone
        if refusal is not None:
            self._queues.hold_on(queue, offset, self._timeline.now_ms() + _AGAIN_MS)
            return
        is_ordered = queue.taken[offset].is_ordered
        ticket = self._queues.settle(queue, offset)
        if is_ordered:
            self._afterwards(ticket, lambda done: self._settled_in_order(queue, done.refusal))
        else:
            self._wake(queue.group, topic)
