"""Verbs on AMQP queues, their consumers and deliveries, reached as `broker.queues`. Each checks the caller's rights,
then delegates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from trimq.core.api.exchanges import exchange_resource, queue_resource
from trimq.core.crossing.taken_topic import TakenTopic
from trimq.core.crossing.topic_queues import TopicQueues
from trimq.core.queues.arguments import QUORUM
from trimq.core.queues.consumers import Consumer, SharedPrefetch, Subscription
from trimq.core.queues.queue import Owner, PendingPass, Queue
from trimq.core.queues.registry import Declaration, DeclareResult, QueueRegistry
from trimq.core.queues.unacked import Delivery
from trimq.core.queues.work_queue import WorkQueue
from trimq.core.security.access import Access, Action
from trimq.core.write_gate import WriteGate
from trimq.errors import ColdRead, OtherHome
from trimq.errors.queues import NotForStreams, SingleActiveGet, UnknownQueue
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.model import Caller
from trimq.offload import Offload
from trimq.storage.group_commit.passes import Ticket


def _by_tag(deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
    return sorted(deliveries, key=attrgetter("receiver_tag")) if len(deliveries) > 1 else deliveries


class GetResult(NamedTuple):
    """`ready_count`: number of messages still ready."""

    delivery: Delivery | None
    ready_count: int


class QueueApi:
    def __init__(
        self, queues: QueueRegistry, topic_queues: TopicQueues, offload: Offload, access: Access, gate: WriteGate
    ) -> None:
        self._queues = queues
        self._topic_queues = topic_queues
        self._offload = offload
        self._access = access
        self._gate = gate

    def declare_queue(
        self,
        caller: Caller,
        name: str,
        is_durable: bool,
        is_exclusive: bool,
        is_auto_delete: bool,
        arguments: FieldTable,
        owner: Owner,
    ) -> DeclareResult:
        """Declares a queue. With an empty name the broker generates one, and the caller needs the right to that
        name."""
        is_server_named = not name
        if is_server_named:
            name = self._queues.new_name(caller.namespace, arguments)
        else:
            self._queues.check_name(name)
        self._access.require(caller, Action.CREATE, queue_resource(caller, name))
        is_new = self._queues.find(caller.namespace, name) is None
        if is_new:
            dead_letters = arguments.get("x-dead-letter-exchange")
            if isinstance(dead_letters, str):
                self._access.require(caller, Action.READ, queue_resource(caller, name))
                self._access.require(caller, Action.WRITE, exchange_resource(caller, dead_letters))
            self._gate.require_writable()
        declaration = Declaration(
            caller.namespace, name, is_durable, is_exclusive, is_auto_delete, arguments, is_server_named
        )
        try:
            result = self._queues.declare(declaration, owner)
        except OtherHome:
            return self._topic_queues.declare(caller, declaration)
        if is_new and is_durable:
            self._access.audit.changed(caller, "create", "queue", name, caller.namespace)
        return result

    def declare_passively(self, caller: Caller, name: str, owner: Owner) -> Queue:
        """As `queue`; counts as a use of the queue, which prolongs its `x-expires`."""
        queue = self.queue(caller, name, owner)
        queue.touch()
        return queue

    def queue(self, caller: Caller, name: str, owner: Owner) -> Queue:
        """Raises UnknownQueue if there is none, Locked if it is exclusive to another owner."""
        self._access.require(caller, Action.DESCRIBE, queue_resource(caller, name))
        try:
            return self._queues.get(caller.namespace, name, owner)
        except UnknownQueue:
            return self._topic_queues.get(caller, name, Action.DESCRIBE)

    def queues(self, caller: Caller) -> list[Queue]:
        """Queues of the caller's namespace that the caller may see."""
        return [queue for queue in self._queues if self._may_see(caller, queue)]

    def iterate(self, caller: Caller) -> Iterator[Queue | None]:
        """As `queues`, one at a time: the broker may work meanwhile. Yields None for each queue that is left out."""
        for queue in self._queues:
            yield queue if not queue.is_deleted and self._may_see(caller, queue) else None

    def find(self, caller: Caller, name: str) -> Queue | None:
        """Queue of the caller's namespace, if there is one and the caller may see it."""
        found = self._queues.find(caller.namespace, name)
        return found if found is not None and self._may_see(caller, found) else None

    def find_by_id(self, caller: Caller, id: UUID) -> Queue | None:
        """As `find`, by id."""
        found = self._queues.find_by_id(id)
        return found if found is not None and self._may_see(caller, found) else None

    def _may_see(self, caller: Caller, queue: Queue) -> bool:
        return queue.namespace == caller.namespace and self._access.allowed(
            caller, Action.DESCRIBE, queue_resource(caller, queue.name)
        )

    def describe_queue(self, caller: Caller, name: str) -> Queue:
        """As `queue`, for inspection: works on exclusive queues of other owners too."""
        self._access.require(caller, Action.DESCRIBE, queue_resource(caller, name))
        found = self._queues.find(caller.namespace, name)
        if found is None:
            raise UnknownQueue(name, caller.namespace)
        return found

    def readable_queue(self, caller: Caller, name: str, owner: Owner | None = None) -> Queue:
        """As `queue`, for a caller with the right to read. Without an owner: for browsing only."""
        self._access.require(caller, Action.READ, queue_resource(caller, name))
        try:
            return self._queues.get(caller.namespace, name, owner)
        except UnknownQueue:
            return self._topic_queues.get(caller, name, Action.READ)

    def may_read(self, caller: Caller, name: str) -> bool:
        return self._access.allowed(caller, Action.READ, queue_resource(caller, name))

    def pending_turn(self, caller: Caller, name: str) -> PendingPass | None:
        """Returns the pass after which the counts of a queue are exact; None: they are now, or there is no such
        queue."""
        queue = self._queues.find(caller.namespace, name)
        return None if queue is None else queue.pending_turn()

    def delete_queue(
        self, caller: Caller, name: str, if_unused: bool, if_empty: bool, owner: Owner
    ) -> tuple[int, Ticket | None]:
        """Deletes a queue. Returns the number of ready messages; 0 if there is no such queue, which is not an error."""
        self._access.require(caller, Action.DELETE, queue_resource(caller, name))
        try:
            queue = self._queues.get(caller.namespace, name, owner)
        except UnknownQueue:
            self._require_own(caller, name)
            return 0, None
        queue.take_turn()
        deleted = self._queues.delete(queue, if_unused, if_empty)
        if queue.definition.is_durable:
            self._access.audit.changed(caller, "delete", "queue", name, caller.namespace, messages=deleted[0])
        return deleted

    def _require_own(self, caller: Caller, name: str) -> None:
        """Raises OtherHome for a topic of another layout, which only clients of its own protocol may change."""
        if self._queues.find(caller.namespace, name) is None:
            self._topic_queues.require_none(caller, name)

    def purge_queue(self, caller: Caller, name: str, owner: Owner) -> int:
        """Returns the number of purged messages."""
        self._access.require(caller, Action.READ, queue_resource(caller, name))
        self._require_own(caller, name)
        queue = self._get_work_queue(caller, name, owner, "purge")
        queue.take_turn()
        purged = queue.purge()
        self._access.audit.changed(caller, "purge", "queue", name, caller.namespace, messages=purged)
        return purged

    def release_owner(self, owner: Owner) -> None:
        """Deletes the exclusive queues of a closed connection."""
        self._queues.release(owner)

    def _get_work_queue(self, caller: Caller, name: str, owner: Owner, verb: str) -> WorkQueue:
        queue = self._queues.get(caller.namespace, name, owner)
        if not isinstance(queue, WorkQueue):
            raise NotForStreams(verb, name, caller.namespace)
        return queue

    def _get_queue(self, caller: Caller, name: str, owner: Owner, verb: str) -> WorkQueue | TakenTopic:
        """As `_get_work_queue`; also a topic of another layout, of which the caller takes messages."""
        if self._queues.find(caller.namespace, name) is None:
            found = self._topic_queues.get(caller, name, Action.READ)
            if isinstance(found, TakenTopic):
                return found
        return self._get_work_queue(caller, name, owner, verb)

    def get(self, caller: Caller, name: str, owner: Owner, no_ack: bool) -> GetResult:
        """Gets one message. Waits for the disk if the message is cold; to avoid that, see `Queue.cold_head`."""
        self._access.require(caller, Action.READ, queue_resource(caller, name))
        queue = self._get_queue(caller, name, owner, "get")
        if isinstance(queue, WorkQueue) and queue.settings.is_single_active and queue.kind == QUORUM:
            raise SingleActiveGet(name, caller.namespace)
        queue.take_turn()
        return GetResult(queue.get(no_ack), queue.ready_count)

    def warm(self, cold: ColdRead, done: Callable[[], None]) -> None:
        """Reads cold data into memory off the event loop. The next read raises if the disk failed."""
        self._offload(cold.warm, lambda _, error: done())

    def subscribe(self, caller: Caller, name: str, owner: Owner, subscription: Subscription) -> Consumer:
        """Adds a consumer. Its receiver gets messages from the end of this turn on."""
        self._access.require(caller, Action.READ, queue_resource(caller, name))
        try:
            queue = self._queues.get(caller.namespace, name, owner)
        except UnknownQueue:
            queue = self._topic_queues.get(caller, name, Action.READ, subscription.arguments)
        return queue.subscribe(subscription)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Cancels the consumer. Messages already delivered stay unacked."""
        consumer.queue.unsubscribe(consumer)

    def wake(self, consumer: Consumer) -> None:
        """Resumes deliveries: the consumer has capacity again."""
        if not consumer.queue.is_deleted:
            consumer.queue.wake(consumer)

    def set_shared_prefetch(self, shared_prefetch: SharedPrefetch, most: int) -> None:
        """Sets the prefetch limit of consumers that share it; 0: unlimited."""
        shared_prefetch.most = most
        for consumer in shared_prefetch.consumers:
            self.wake(consumer)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledges deliveries. Those no longer unacked are skipped."""
        for queue, own in groupby(deliveries, attrgetter("queue")):
            queue.ack(own)

    def requeue(self, deliveries: Sequence[Delivery], counts: bool) -> None:
        """Requeues each message at its original position. `counts`: a failed delivery, counted against the queue's
        delivery limit. As in RabbitMQ, in the order of consumer tags, after those of basic.get."""
        for delivery in _by_tag(deliveries):
            delivery.queue.requeue(delivery, counts)

    def return_all(self, deliveries: Iterable[Delivery]) -> None:
        """Requeues the deliveries of a channel that has ended, as failed ones. As to RabbitMQ's quorum queues, those of
        a consumer return before those of a later one."""
        for delivery in sorted(deliveries, key=attrgetter("receiver_number")):
            delivery.queue.requeue(delivery, True)

    def reject(self, deliveries: Sequence[Delivery], counts: bool) -> None:
        """Rejects each message; its queue dead-letters it. `counts`: a failed delivery. Same order as `requeue`."""
        for delivery in _by_tag(deliveries):
            delivery.queue.reject(delivery, counts)
