"""Operations on exchanges, queues and their messages that front-ends may call, reached as `broker.queue_api`. Each
checks the caller's rights, then delegates; the only logic is the choice between work queue and stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from trimq.core.failures.ledger import FailedMessageLedger, Failure, FailureId
from trimq.core.failures.ledger_log import LedgerLog
from trimq.core.metadata.namespaces import Namespaces
from trimq.core.queues.consumers import Consumer, SharedPrefetch, Subscription
from trimq.core.queues.delayed_exchange import DelayedMessageStore
from trimq.core.queues.dispatcher import Dispatcher
from trimq.core.queues.policies import Policies, Policy
from trimq.core.queues.publisher import Publisher, PublishResult
from trimq.core.queues.queue import Owner, Queue
from trimq.core.queues.registry import Declaration, DeclareResult, QueueRegistry
from trimq.core.queues.unacked import Delivery
from trimq.core.queues.work_queue import WorkQueue
from trimq.core.routing.bindings import Binding
from trimq.core.routing.exchanges import Exchange, Exchanges
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind
from trimq.core.write_gate import WriteGate
from trimq.errors import ColdRead
from trimq.errors.queues import InternalExchange, NotForStreams, UnknownExchange, UnknownNamespace, UnknownQueue
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.model import Caller
from trimq.offload import Offload
from trimq.storage.group_commit.passes import Passes, Ticket


class GetResult(NamedTuple):
    """`ready_count`: number of messages still ready."""

    delivery: Delivery | None
    ready_count: int


class QueueApiServices(NamedTuple):
    exchanges: Exchanges
    queues: QueueRegistry
    publisher: Publisher
    failures: FailedMessageLedger
    ledger: LedgerLog
    passes: Passes
    delayed_messages: DelayedMessageStore
    policies: Policies
    namespaces: Namespaces
    dispatch: Dispatcher
    offload: Offload


class QueueApi:
    def __init__(self, parts: QueueApiServices, access: Access, gate: WriteGate) -> None:
        self._exchanges = parts.exchanges
        self._queues = parts.queues
        self._publisher = parts.publisher
        self._failures = parts.failures
        self._ledger = parts.ledger
        self._passes = parts.passes
        self._policies = parts.policies
        self._offload = parts.offload
        self.namespaces = parts.namespaces
        self._access = access
        self._gate = gate

    # -- exchanges

    def declare_exchange(
        self,
        caller: Caller,
        name: str,
        kind: str,
        is_durable: bool,
        is_auto_delete: bool,
        is_internal: bool,
        arguments: FieldTable,
    ) -> Ticket | None:
        self._exchanges.check_declaration(name, kind, arguments)
        self._access.require(caller, Action.CONFIGURE, _exchange(caller, name))
        # an existing exchange may be declared on a full disk too
        if self._exchanges.find(caller.namespace, name) is None:
            alternate = arguments.get("alternate-exchange")
            if isinstance(alternate, str):
                self._access.require(caller, Action.READ, _exchange(caller, name))
                self._access.require(caller, Action.WRITE, _exchange(caller, alternate))
            self._gate.require_writable()
        return self._exchanges.declare(caller.namespace, name, kind, is_durable, is_auto_delete, is_internal, arguments)

    def exchange(self, caller: Caller, name: str) -> Exchange:
        """Raises UnknownExchange if there is none."""
        self._access.require(caller, Action.DESCRIBE, _exchange(caller, name))
        return self._exchanges.get(caller.namespace, name)

    def exchanges(self, caller: Caller) -> list[Exchange]:
        return [found for found in self._exchanges if found.namespace == caller.namespace]

    def delete_exchange(self, caller: Caller, name: str, if_unused: bool) -> Ticket | None:
        self._exchanges.check_deletion(caller.namespace, name)
        self._access.require(caller, Action.CONFIGURE, _exchange(caller, name))
        return self._exchanges.delete(caller.namespace, name, if_unused)

    def bind(self, caller: Caller, binding: Binding, owner: Owner) -> Ticket | None:
        self._require_binding(caller, binding)
        if binding.to_queue:
            self._queues.get(caller.namespace, binding.destination, owner)
        if not self._exchanges.has_binding(caller.namespace, binding):
            self._gate.require_writable()
        return self._exchanges.bind(caller.namespace, binding)

    def unbind(self, caller: Caller, binding: Binding, owner: Owner) -> Ticket | None:
        self._require_binding(caller, binding)
        if binding.to_queue and self._queues.find(caller.namespace, binding.destination) is not None:
            self._queues.get(caller.namespace, binding.destination, owner)
        return self._exchanges.unbind(caller.namespace, binding)

    def _require_binding(self, caller: Caller, binding: Binding) -> None:
        destination = _queue if binding.to_queue else _exchange
        self._access.require(caller, Action.WRITE, destination(caller, binding.destination))
        self._exchanges.check_binding(binding)
        self._access.require(caller, Action.READ, _exchange(caller, binding.source))

    # -- queues

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
        self._access.require(caller, Action.CONFIGURE, _queue(caller, name))
        if self._queues.find(caller.namespace, name) is None:
            dead_letters = arguments.get("x-dead-letter-exchange")
            if isinstance(dead_letters, str):
                self._access.require(caller, Action.READ, _queue(caller, name))
                self._access.require(caller, Action.WRITE, _exchange(caller, dead_letters))
            self._gate.require_writable()
        return self._queues.declare(
            Declaration(caller.namespace, name, is_durable, is_exclusive, is_auto_delete, arguments, is_server_named),
            owner,
        )

    def queue(self, caller: Caller, name: str, owner: Owner) -> Queue:
        """Raises UnknownQueue if there is none, Locked if it is exclusive to another owner."""
        self._access.require(caller, Action.DESCRIBE, _queue(caller, name))
        return self._queues.get(caller.namespace, name, owner)

    def queues(self, caller: Caller) -> list[Queue]:
        """Queues of the caller's namespace that the caller may see."""
        return [
            queue
            for queue in self._queues
            if queue.namespace == caller.namespace
            and self._access.allowed(caller, Action.DESCRIBE, _queue(caller, queue.name))
        ]

    def describe_queue(self, caller: Caller, name: str) -> Queue:
        """As `queue`, for inspection: works on exclusive queues of other owners too."""
        self._access.require(caller, Action.DESCRIBE, _queue(caller, name))
        found = self._queues.find(caller.namespace, name)
        if found is None:
            raise UnknownQueue(name, caller.namespace)
        return found

    def readable_queue(self, caller: Caller, name: str, owner: Owner | None = None) -> Queue:
        """As `queue`, for a caller with the right to read. Without an owner: for browsing only."""
        self._access.require(caller, Action.READ, _queue(caller, name))
        return self._queues.get(caller.namespace, name, owner)

    def delete_queue(
        self, caller: Caller, name: str, if_unused: bool, if_empty: bool, owner: Owner
    ) -> tuple[int, Ticket | None]:
        """Deletes a queue. Returns the number of ready messages; 0 if there is no such queue, which is not an error."""
        self._access.require(caller, Action.CONFIGURE, _queue(caller, name))
        try:
            queue = self._queues.get(caller.namespace, name, owner)
        except UnknownQueue:
            return 0, None
        return self._queues.delete(queue, if_unused, if_empty)

    def purge_queue(self, caller: Caller, name: str, owner: Owner) -> int:
        """Returns the number of purged messages."""
        self._access.require(caller, Action.READ, _queue(caller, name))
        return self._get_work_queue(caller, name, owner, "purge").purge()

    def release_owner(self, owner: Owner) -> None:
        """Deletes the exclusive queues of a closed connection."""
        self._queues.release(owner)

    def _get_work_queue(self, caller: Caller, name: str, owner: Owner, verb: str) -> WorkQueue:
        queue = self._queues.get(caller.namespace, name, owner)
        if not isinstance(queue, WorkQueue):
            raise NotForStreams(verb, name, caller.namespace)
        return queue

    # -- messages

    def publish(self, caller: Caller, exchange: str, key: str, header: bytes, body: bytes) -> PublishResult:
        """Appends the message to every queue it is routed to. Pending; see PublishResult."""
        found = self._writable_exchange(caller, exchange)
        self._gate.admit(len(header) + len(body))
        return self._publisher.publish(found, key, header, body)

    def publish_all(
        self, caller: Caller, exchange: str, key: str, contents: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[tuple[PublishResult, int]]:
        """As `publish`, for a batch of headers and bodies. Yields results, each with the number of messages it applies
        to. A refusal applies to the next message; DiskFull and MemoryFull are raised before the first."""
        found = self._writable_exchange(caller, exchange)
        self._gate.admit(sum([len(header) + len(body) for header, body in contents]))
        return self._publisher.publish_all(found, key, contents)

    def require_publishable(self, caller: Caller, exchange: str) -> None:
        """Raises as `publish` would before it looks at a message."""
        self._writable_exchange(caller, exchange)

    def check_publish(self, caller: Caller, exchange: str, header: bytes) -> None:
        """Raises as `publish` would now; for messages of a transaction, which are published at its commit."""
        self._writable_exchange(caller, exchange)
        self._gate.admit(0)
        self._publisher.check(header)

    def check_memory(self) -> None:
        """Raises MemoryFull; for messages that are sent straight to a client and stay in memory while it does not
        read."""
        self._gate.check_memory()

    def _writable_exchange(self, caller: Caller, name: str) -> Exchange:
        found = self._exchanges.find(caller.namespace, name)
        if found is None:  # without the right, the caller must not learn whether the exchange exists
            self._access.require(caller, Action.WRITE, _exchange(caller, name))
            raise UnknownExchange(name, caller.namespace)
        self._access.require(caller, Action.WRITE, found.resource)
        if found.definition.is_internal:
            raise InternalExchange(name, caller.namespace)
        return found

    def get(self, caller: Caller, name: str, owner: Owner, no_ack: bool) -> GetResult:
        """Gets one message. Waits for the disk if the message is cold; to avoid that, see `Queue.cold_head`."""
        self._access.require(caller, Action.READ, _queue(caller, name))
        queue = self._get_work_queue(caller, name, owner, "get")
        return GetResult(queue.get(no_ack), queue.ready_count)

    def warm(self, cold: ColdRead, done: Callable[[], None]) -> None:
        """Reads cold data into memory off the event loop. The next read raises if the disk failed."""
        self._offload(cold.warm, lambda _, error: done())

    def subscribe(self, caller: Caller, name: str, owner: Owner, subscription: Subscription) -> Consumer:
        """Adds a consumer. Its receiver gets messages from the end of this turn on."""
        self._access.require(caller, Action.READ, _queue(caller, name))
        return self._queues.get(caller.namespace, name, owner).subscribe(subscription)

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

    def requeue(self, deliveries: Iterable[Delivery], counts: bool) -> None:
        """Requeues each message at its original position. `counts`: a failed delivery, counted against the queue's
        delivery limit."""
        for delivery in deliveries:
            delivery.queue.requeue(delivery, counts)

    def reject(self, deliveries: Iterable[Delivery]) -> None:
        """Rejects each message; its queue dead-letters it."""
        for delivery in deliveries:
            delivery.queue.reject(delivery)

    # -- failed messages

    def failures(self, caller: Caller, from_id: FailureId = 0) -> Iterator[Failure]:
        """Failed messages of the caller's namespace, oldest first, as far back as the ledger goes."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        found = self._failures.all(from_id)
        return (failure for failure in found if failure.entry.origin.topic.namespace == caller.namespace)

    def when_failures_readable(self, callback: Callable[[], None]) -> None:
        """Calls back when `failures` lists every message that has failed so far: at once, or after a pass."""
        ticket = self._ledger.pending_ticket()
        if ticket is None:
            callback()
        else:
            self._passes.on_durable_guarded(ticket, lambda _: callback())

    def redrive_failure(self, caller: Caller, id: FailureId) -> Ticket:
        """Sends the message again to its queue, or to the group in which it failed."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self._gate.require_writable()
        return self._failures.redrive(caller, id)

    # -- namespaces

    def all_namespaces(self, caller: Caller) -> list[str]:
        """Namespaces in which the caller has a right."""
        found = self.namespaces.all()
        if self._access.allowed(caller, Action.ADMINISTER, BROKER):
            return found
        entered = {right.namespace for right in self._access.rights() if right.principal == caller.principal}
        return [name for name in found if name in entered]

    def require_namespace(self, name: str) -> None:
        if name not in self.namespaces:
            raise UnknownNamespace(name, "")

    def define_namespace(self, caller: Caller, name: str) -> Ticket | None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self.namespaces.define(name)

    def delete_namespace(self, caller: Caller, name: str) -> Ticket:
        """Deletes the namespace with its contents and all rights in it, and closes its connections."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self.namespaces.delete(name)
        for right in self._access.rights():
            if right.namespace == name:
                self._access.revoke(right.principal, name)
        return ticket

    # -- policies

    def policies(self, caller: Caller) -> list[Policy]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
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
