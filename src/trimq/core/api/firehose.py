"""Firehose, RabbitMQ's message tracer, reached as `broker.firehose`: in namespaces in which it is on, a copy of every
AMQP message that is published or delivered goes to the exchange `amq.rabbitmq.trace`. Off after a restart."""

from __future__ import annotations

import logging

from trimq.core.metadata.namespaces import Namespaces
from trimq.core.queues.publisher import Publisher
from trimq.core.routing.exchanges import TRACE, Exchanges
from trimq.core.security.access import BROKER, Access, Action
from trimq.core.write_gate import WriteGate
from trimq.errors import Refusal
from trimq.errors.queues import UnknownNamespace
from trimq.formats.amqp_content.field_tables import BadField, FieldTable, Value
from trimq.formats.amqp_content.property_list import write_properties
from trimq.model import Caller

log = logging.getLogger(__name__)


class FirehoseApi:
    def __init__(
        self, exchanges: Exchanges, publisher: Publisher, registry: Namespaces, access: Access, gate: WriteGate
    ) -> None:
        self._exchanges = exchanges
        self._publisher = publisher
        self._registry = registry
        self._access = access
        self._gate = gate
        self.namespaces: set[str] = set()
        """Those in which the firehose is on. Front-ends look at it for every batch of messages, and do nothing while it
        is empty."""
        registry.on_deleted(self.namespaces.discard)

    def all(self, caller: Caller) -> list[str]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return sorted(self.namespaces)

    def turn_on(self, caller: Caller, namespace: str) -> None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if namespace not in self._registry:
            raise UnknownNamespace(namespace, "")
        self.namespaces.add(namespace)
        self._access.audit.changed(caller, "turn-on", "firehose", namespace)

    def turn_off(self, caller: Caller, namespace: str) -> None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self.namespaces.discard(namespace)
        self._access.audit.changed(caller, "turn-off", "firehose", namespace)

    def routed_queues(self, namespace: str, exchange: str, key: str, header: bytes) -> list[Value]:
        """Returns the names of the queues to which such a message is routed."""
        found = self._exchanges.find(namespace, exchange)
        return [] if found is None else [*self._publisher.route(found, key, header)]

    def publish(self, namespace: str, key: str, headers: FieldTable, body: bytes) -> None:
        """Publishes a copy. A copy that is refused is dropped: tracing must not disturb the traced."""
        exchange = self._exchanges.find(namespace, TRACE)
        if exchange is None or not exchange.bindings:
            return
        try:
            header = write_properties(headers=headers)
            self._gate.admit(len(header) + len(body))
            self._publisher.publish(exchange, key, header, body)
        except (Refusal, BadField) as refusal:
            log.debug("firehose: a copy was dropped (%s)", refusal)
