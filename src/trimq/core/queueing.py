"""The verbs about exchanges, queues and their messages that front-ends may call, reached as `broker.queueing`. Each
asks whether the caller may, then delegates; there is no logic here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trimq.core.access import BROKER, Access, Action, Resource, ResourceKind
from trimq.core.any_queue import AnyQueue, Owner
from trimq.core.appending import Appending
from trimq.core.bindings import Binding
from trimq.core.consumers import Consumer, Subscription
from trimq.core.delays import Delays
from trimq.core.deliveries import Delivery
from trimq.core.exchanges import Exchange, Exchanges
from trimq.core.namespaces import Namespaces
from trimq.core.policies import Policies, Policy
from trimq.core.publishing import Published, Publishing
from trimq.core.pump import Pump
from trimq.core.queue import Queue
from trimq.core.queue_refusals import InternalExchange, NotForStreams, UnknownQueue
from trimq.core.queues import Declaration, Declared, Queues
from trimq.core.stream_queue import StreamQueue
from trimq.formats.field_tables import Table
from trimq.model import Caller
from trimq.storage.passes import Ticket


class Got(NamedTuple):
    """`ready_count`: how many more there are."""

    delivery: Delivery | None
    ready_count: int


class QueueingParts(NamedTuple):
    exchanges: Exchanges
    queues: Queues
    publishing: Publishing
    delays: Delays
    policies: Policies
    namespaces: Namespaces
    pump: Pump


class Queueing:
    def __init__(self, parts: QueueingParts, access: Access, appending: Appending) -> None:
        self._exchanges = parts.exchanges
        self._queues = parts.queues
        self._publishing = parts.publishing
        self._delays = parts.delays
        self._policies = parts.policies
        self._pump = parts.pump
        self.namespaces = parts.namespaces
        self._access = access
        self._appending = appending

    # -- exchanges

    def declare_exchange(
        self,
        caller: Caller,
        name: str,
        kind: str,
        is_durable: bool,
        is_auto_delete: bool,
        is_internal: bool,
        arguments: Table,
    ) -> Ticket | None:
        self._access.require(caller, Action.CONFIGURE, _exchange(caller, name))
        self._appending.require_writable()
        ticket = self._exchanges.declare(
            caller.namespace, name, kind, is_durable, is_auto_delete, is_internal, arguments
        )
        self._policies.apply_to_exchanges()
        return ticket

    def exchange(self, caller: Caller, name: str) -> Exchange:
        """UnknownExchange: there is none."""
        return self._exchanges.get(caller.namespace, name)

    def exchanges(self, caller: Caller) -> list[Exchange]:
        return [found for found in self._exchanges if found.namespace == caller.namespace]

    def delete_exchange(self, caller: Caller, name: str, if_unused: bool) -> Ticket | None:
        self._access.require(caller, Action.CONFIGURE, _exchange(caller, name))
        return self._exchanges.delete(caller.namespace, name, if_unused)

    def bind(self, caller: Caller, binding: Binding, owner: Owner) -> Ticket | None:
        self._require_binding(caller, binding)
        if binding.to_queue:
            self._queues.get(caller.namespace, binding.destination, owner)
        self._appending.require_writable()
        return self._exchanges.bind(caller.namespace, binding)

    def unbind(self, caller: Caller, binding: Binding, owner: Owner) -> Ticket | None:
        self._require_binding(caller, binding)
        if binding.to_queue and self._queues.find(caller.namespace, binding.destination) is not None:
            self._queues.get(caller.namespace, binding.destination, owner)
        return self._exchanges.unbind(caller.namespace, binding)

    def _require_binding(self, caller: Caller, binding: Binding) -> None:
        destination = _queue if binding.to_queue else _exchange
        self._access.require(caller, Action.WRITE, destination(caller, binding.destination))
        self._access.require(caller, Action.READ, _exchange(caller, binding.source))

    # -- queues

    def declare_queue(
        self,
        caller: Caller,
        name: str,
        is_durable: bool,
        is_exclusive: bool,
        is_auto_delete: bool,
        arguments: Table,
        owner: Owner,
    ) -> Declared:
        """With an empty name one is found."""
        self._access.require(caller, Action.CONFIGURE, _queue(caller, name))
        self._appending.require_writable()
        dead_letters = arguments.get("x-dead-letter-exchange")
        if isinstance(dead_letters, str):
            self._access.require(caller, Action.READ, _queue(caller, name))
            self._access.require(caller, Action.WRITE, _exchange(caller, dead_letters))
        return self._queues.declare(
            Declaration(caller.namespace, name, is_durable, is_exclusive, is_auto_delete, arguments), owner
        )

    def queue(self, caller: Caller, name: str, owner: Owner) -> AnyQueue:
        """UnknownQueue: there is none. Locked: it is another owner's."""
        return self._queues.get(caller.namespace, name, owner)

    def queues(self, caller: Caller) -> list[AnyQueue]:
        return [queue for queue in self._queues if queue.namespace == caller.namespace]

    def delete_queue(
        self, caller: Caller, name: str, if_unused: bool, if_empty: bool, owner: Owner
    ) -> tuple[int, Ticket | None]:
        """How many messages were ready. One that is not there is no mistake."""
        self._access.require(caller, Action.CONFIGURE, _queue(caller, name))
        try:
            queue = self._queues.get(caller.namespace, name, owner)
        except UnknownQueue:
            return 0, None
        return self._queues.delete(queue, if_unused, if_empty)

    def purge_queue(self, caller: Caller, name: str, owner: Owner) -> int:
        """How many messages were ready."""
        self._access.require(caller, Action.READ, _queue(caller, name))
        return self._giving(caller, name, owner, "purge").purge()

    def release_owner(self, owner: Owner) -> None:
        """A connection is gone, and its exclusive queues with it."""
        self._queues.release(owner)

    def _giving(self, caller: Caller, name: str, owner: Owner, verb: str) -> Queue:
        queue = self._queues.get(caller.namespace, name, owner)
        if not isinstance(queue, Queue):
            raise NotForStreams(verb, name, caller.namespace)
        return queue

    # -- messages

    def publish(self, caller: Caller, exchange: str, key: str, header: bytes, body: bytes) -> Published:
        """Append to every queue that the routes lead to. Pending, as its result says."""
        found = self._exchanges.get(caller.namespace, exchange)
        self._access.require(caller, Action.WRITE, found.resource)
        if found.definition.is_internal:
            raise InternalExchange(exchange, caller.namespace)
        self._appending.admit(len(header) + len(body))
        if found.is_delayed:
            held = self._delays.hold(found, key, header, body)
            if held is not None:
                return held
        return self._publishing.publish(found, key, header, body)

    def get(self, caller: Caller, name: str, owner: Owner, no_ack: bool) -> Got:
        self._access.require(caller, Action.READ, _queue(caller, name))
        queue = self._giving(caller, name, owner, "get")
        return Got(queue.get(no_ack), queue.ready_count)

    def subscribe(self, caller: Caller, name: str, owner: Owner, subscription: Subscription) -> Consumer:
        """Its receiver is given messages from the end of this turn on."""
        self._access.require(caller, Action.READ, _queue(caller, name))
        return self._queues.get(caller.namespace, name, owner).subscribe(subscription)

    def unsubscribe(self, consumer: Consumer) -> None:
        """It is given nothing more. What it has been given stays out."""
        consumer.queue.unsubscribe(consumer)

    def wake(self, consumer: Consumer) -> None:
        """It has room again, or may take more than before."""
        if not consumer.queue.is_deleted:
            self._pump.due(consumer.queue)

    def set_prefetch(self, consumer: Consumer, prefetch: int) -> None:
        consumer.prefetch = prefetch
        self.wake(consumer)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Done with. One that is no longer out is passed over."""
        for delivery in deliveries:
            queue = delivery.queue
            if isinstance(queue, Queue):
                queue.ack(delivery)
            elif isinstance(queue, StreamQueue):
                queue.settle(delivery)

    def requeue(self, deliveries: Iterable[Delivery], counts: bool) -> None:
        """Each goes to where it was. `counts`: it failed, where a limit on that is kept."""
        for delivery in deliveries:
            queue = delivery.queue
            if isinstance(queue, Queue):
                queue.requeue(delivery, counts)
            elif isinstance(queue, StreamQueue):
                queue.settle(delivery)

    def reject(self, deliveries: Iterable[Delivery]) -> None:
        """Each is given up, and goes where its queue sends dead letters."""
        for delivery in deliveries:
            queue = delivery.queue
            if isinstance(queue, Queue):
                queue.reject(delivery)
            elif isinstance(queue, StreamQueue):
                queue.settle(delivery)

    # -- policies

    def policies(self, caller: Caller) -> list[Policy]:
        return self._policies.all(caller.namespace)

    def define_policy(self, caller: Caller, policy: Policy) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._policies.define(policy)

    def delete_policy(self, caller: Caller, name: str) -> Ticket | None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._policies.delete(caller.namespace, name)


def _queue(caller: Caller, name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, caller.namespace, name)


def _exchange(caller: Caller, name: str) -> Resource:
    return Resource(ResourceKind.ROUTE, caller.namespace, name or "amq.default")
