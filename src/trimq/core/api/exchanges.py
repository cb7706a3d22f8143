"""Verbs on exchanges, reached as `broker.exchanges`: declare, bind, publish. Each checks the caller's rights, then
delegates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trimq.core.queues.publisher import Publisher, PublishResult, PublishRoute
from trimq.core.queues.queue import Owner
from trimq.core.queues.registry import QueueRegistry
from trimq.core.routing.bindings import Binding
from trimq.core.routing.exchanges import Exchange, Exchanges
from trimq.core.security.access import Access, Action, Resource, ResourceKind
from trimq.core.write_gate import WriteGate
from trimq.errors.queues import InternalExchange, UnknownExchange
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket

TOPIC = "topic"


class ExchangeApi:
    def __init__(
        self, exchanges: Exchanges, queues: QueueRegistry, publisher: Publisher, access: Access, gate: WriteGate
    ) -> None:
        self._exchanges = exchanges
        self._queues = queues
        self._queue_names = queues.names
        self._publisher = publisher
        self._access = access
        self._gate = gate

    def declare(
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
        self._access.require(caller, Action.CREATE, exchange_resource(caller, name))
        # an existing exchange may be declared on a full disk too
        if self._exchanges.find(caller.namespace, name) is None:
            alternate = arguments.get("alternate-exchange")
            if isinstance(alternate, str):
                self._access.require(caller, Action.READ, exchange_resource(caller, name))
                self._access.require(caller, Action.WRITE, exchange_resource(caller, alternate))
            self._gate.require_writable()
        is_new = self._exchanges.find(caller.namespace, name) is None
        ticket = self._exchanges.declare(
            caller.namespace, name, kind, is_durable, is_auto_delete, is_internal, arguments
        )
        if is_new:
            self._access.audit.changed(caller, "create", "exchange", name, caller.namespace, kind=kind)
        return ticket

    def get(self, caller: Caller, name: str) -> Exchange:
        """Raises UnknownExchange if there is none."""
        self._access.require(caller, Action.DESCRIBE, exchange_resource(caller, name))
        return self._exchanges.get(caller.namespace, name)

    def all(self, caller: Caller) -> list[Exchange]:
        return [found for found in self._exchanges if found.namespace == caller.namespace]

    def delete(self, caller: Caller, name: str, if_unused: bool) -> Ticket | None:
        self._exchanges.check_deletion(caller.namespace, name)
        self._access.require(caller, Action.DELETE, exchange_resource(caller, name))
        is_known = self._exchanges.find(caller.namespace, name) is not None
        ticket = self._exchanges.delete(caller.namespace, name, if_unused)
        if is_known:
            self._access.audit.changed(caller, "delete", "exchange", name, caller.namespace)
        return ticket

    def bind(self, caller: Caller, binding: Binding, owner: Owner) -> Ticket | None:
        self._require_binding(caller, binding)
        binding = binding.with_sorted_arguments()
        self._exchanges.check_ends(caller.namespace, binding, self._queues.find_destination)
        if binding.to_queue and self._queues.find(caller.namespace, binding.destination) is not None:
            self._queues.get(caller.namespace, binding.destination, owner)
        if not self._exchanges.has_binding(caller.namespace, binding):
            self._gate.require_writable()
        return self._exchanges.bind(caller.namespace, binding)

    def unbind(self, caller: Caller, binding: Binding, owner: Owner) -> Ticket | None:
        self._require_binding(caller, binding)
        binding = binding.with_sorted_arguments()
        if binding.to_queue and self._queues.find(caller.namespace, binding.destination) is not None:
            self._queues.get(caller.namespace, binding.destination, owner)
        return self._exchanges.unbind(caller.namespace, binding)

    def _require_binding(self, caller: Caller, binding: Binding) -> None:
        destination = queue_resource if binding.to_queue else exchange_resource
        self._access.require(caller, Action.WRITE, destination(caller, binding.destination))
        self._exchanges.check_binding(binding)
        self._access.require(caller, Action.READ, exchange_resource(caller, binding.source))
        source = self._exchanges.find(caller.namespace, binding.source)
        if source is not None and source.definition.kind == TOPIC:
            self._access.require_routing_key(caller, Action.READ, binding.source, binding.key)

    def publish(self, caller: Caller, exchange: str, key: str, header: bytes, body: bytes) -> PublishResult:
        """Appends the message to every queue it is routed to. Pending; see PublishResult."""
        found = self._writable_exchange(caller, exchange)
        if not exchange and ((caller.namespace, key) not in self._queue_names or b"CC" in header):
            self._require_topics(caller, key, header)
        if self._access.topic_permissions.has_any:
            self._require_keys(caller, found, key, [header])
        self._gate.admit(len(header) + len(body))
        return self._publisher.publish(found, key, header, body)

    def publish_all(
        self, caller: Caller, exchange: str, key: str, contents: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[tuple[PublishResult | None, int]]:
        """As `publish`, for a batch of headers and bodies. Yields results, each with the number of messages it applies
        to, and None where others may have their turn. A refusal applies to the next message; DiskFull, DiskStalled and
        MemoryFull are raised before the first."""
        found = self._writable_exchange(caller, exchange)
        if not exchange:
            for header in {header for header, _ in contents}:
                if (caller.namespace, key) not in self._queue_names or b"CC" in header:
                    self._require_topics(caller, key, header)
        if self._access.topic_permissions.has_any:
            self._require_keys(caller, found, key, {header for header, _ in contents})
        self._gate.admit(sum([len(header) + len(body) for header, body in contents]))
        return self._publisher.publish_all(found, key, contents)

    def require_publishable(self, caller: Caller, exchange: str) -> None:
        """Raises as `publish` would before it looks at a message."""
        self._writable_exchange(caller, exchange)

    def stored_header(self, header: bytes) -> bytes:
        """Properties of a message as they are stored."""
        return self._publisher.stored_header(header)

    def check_properties(self, header: bytes) -> None:
        """Raises as `publish` would for the properties of a message."""
        self._publisher.check(header)

    def route_publish(self, caller: Caller, exchange: str, key: str, header: bytes) -> PublishRoute:
        """Raises as `publish` would now. Returns the route of a message of a transaction, which is published at its
        commit: as in RabbitMQ, what is bound or deleted until then does not count."""
        found = self._writable_exchange(caller, exchange)
        if not exchange:
            self._require_topics(caller, key, header)
        if self._access.topic_permissions.has_any:
            self._require_keys(caller, found, key, [header])
        self._gate.admit(0)
        return self._publisher.find_existing_route(found, key, header)

    def admit_commit(self) -> None:
        """Raises DiskFull or MemoryFull; before the messages of a transaction are published."""
        self._gate.admit(0)

    def publish_routed(self, route: PublishRoute, key: str, header: bytes, body: bytes) -> PublishResult:
        """As `publish`, for a message of a transaction that is committed. The rights were checked for its route."""
        self._gate.admit(len(header) + len(body))
        return self._publisher.publish(route.exchange, key, header, body, route=route)

    def check_memory(self) -> None:
        """Raises MemoryFull; for messages that are sent straight to a client and stay in memory while it does not
        read."""
        self._gate.check_memory()

    def _require_keys(self, caller: Caller, exchange: Exchange, key: str, headers: Iterable[bytes]) -> None:
        """Checks the topic permissions for the routing key and for those in the headers CC and BCC."""
        if exchange.definition.kind != TOPIC:
            return
        for header in headers:
            for found in (key, *self._publisher.further_keys(header)):
                self._access.require_routing_key(caller, Action.WRITE, exchange.name, found)

    def _require_topics(self, caller: Caller, key: str, header: bytes) -> None:
        """Checks the right to write to topics of other layouts to which the default exchange routes. Whoever binds
        another exchange to a topic needs that right instead."""
        for name in (key, *self._publisher.further_keys(header)):
            found = self._queues.find_destination(caller.namespace, name)
            if found is not None and found.is_topic:
                self._access.require(caller, Action.WRITE, queue_resource(caller, name))

    def _writable_exchange(self, caller: Caller, name: str) -> Exchange:
        found = self._exchanges.find(caller.namespace, name)
        if found is None:  # without the right, the caller must not learn whether the exchange exists
            self._access.require(caller, Action.WRITE, exchange_resource(caller, name))
            raise UnknownExchange(name, caller.namespace)
        self._access.require(caller, Action.WRITE, found.resource)
        if found.definition.is_internal:
            raise InternalExchange(name, caller.namespace)
        return found


def queue_resource(caller: Caller, name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, caller.namespace, name)


def exchange_resource(caller: Caller, name: str) -> Resource:
    return Resource(ResourceKind.ROUTE, caller.namespace, name or "amq.default")
