"""Exchanges and their bindings: declare, bind, unbind, delete. Durable ones are stored in the catalogue, transient ones
in memory. Knows queues by name only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as StoredDefinition
from trimq.core.routing.bindings import DELAYED, Binding, BindingIdentity, Destination, make_matcher
from trimq.core.security.access import Resource, ResourceKind
from trimq.errors.queues import (
    NOT_GIVEN,
    DefaultExchange,
    ExchangeInUse,
    Inequivalent,
    InvalidArgument,
    ReservedName,
    SystemExchange,
    UnknownExchange,
    UnknownQueue,
)
from trimq.formats.amqp_content.field_tables import FieldTable, read_table, write_table
from trimq.formats.amqp_content.value_comparison import is_same_value
from trimq.storage.group_commit.passes import Ticket

_EXCHANGE, _BINDING = "exchange", "binding"
_ALTERNATE = "alternate-exchange"
RESERVED_PREFIX = "amq."
DEFAULT = ""
TRACE = "amq.rabbitmq.trace"  # of the firehose; clients may bind to it, but not publish to it
_PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    TRACE: "topic",
}


class ExchangeDefinition(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    kind: str
    is_durable: bool
    is_auto_delete: bool
    is_internal: bool
    arguments: bytes


class _StoredBinding(msgspec.Struct, frozen=True):
    namespace: str
    source: str
    destination: str
    to_queue: bool
    key: str
    arguments: bytes


class Exchange:
    def __init__(self, definition: ExchangeDefinition) -> None:
        self.definition = definition
        self.namespace = definition.namespace
        self.name = definition.name
        self.encoded_name = definition.name.encode("utf-8", "surrogateescape")
        self.kind = definition.kind
        self.arguments: FieldTable = read_table(definition.arguments, 0, len(definition.arguments))[0]
        alternate = self.arguments.get(_ALTERNATE)
        self.alternate = alternate if isinstance(alternate, str) else None
        self.policy_alternate: str | None = None
        self.matcher = make_matcher(self.kind, self.arguments)
        self.bindings: dict[BindingIdentity, Binding] = {}
        self.is_delayed = self.kind == DELAYED
        self.resource = Resource(ResourceKind.ROUTE, self.namespace, self.name or "amq.default")


class Exchanges:
    """`is_durable_queue(namespace, name)` returns whether a binding to that queue may survive a restart, or None if
    there is no such queue."""

    def __init__(self, catalogue: Catalogue, is_durable_queue: Callable[[str, str], bool | None]) -> None:
        self._catalogue = catalogue
        self._is_durable_queue = is_durable_queue
        self._exchanges: dict[tuple[str, str], Exchange] = {}
        self._bindings_by_destination: dict[tuple[str, Destination], dict[BindingIdentity, Binding]] = {}
        self._namespaces: set[str] = set()
        self.changed: Callable[[], None] = lambda: None
        """Called when routes may have changed."""
        self.on_added: Callable[[Exchange], None] = lambda exchange: None
        """Called for each new exchange, before any message is routed through it."""
        self.deleted: Callable[[Exchange], None] = lambda exchange: None
        catalogue.watch(_EXCHANGE, self._on_exchange_reverted)
        catalogue.watch(_BINDING, self._on_binding_reverted)

    def open(self) -> None:
        for _, stored in self._catalogue.all(_EXCHANGE):
            self._remember(Exchange(msgspec.convert(stored.value, ExchangeDefinition)))
        for _, stored in self._catalogue.all(_BINDING):
            self._restore_binding(msgspec.convert(stored.value, _StoredBinding))

    def __iter__(self) -> Iterator[Exchange]:
        return iter(list(self._exchanges.values()))

    # -- lookup

    def has_binding(self, namespace: str, binding: Binding) -> bool:
        source = self.find(namespace, binding.source)
        return source is not None and binding.identity in source.bindings

    def find(self, namespace: str, name: str) -> Exchange | None:
        found = self._exchanges.get((namespace, name))
        if found is None and namespace not in self._namespaces:
            self._predeclare(namespace)
            found = self._exchanges.get((namespace, name))
        return found

    def get(self, namespace: str, name: str) -> Exchange:
        found = self.find(namespace, name)
        if found is None:
            raise UnknownExchange(name, namespace)
        return found

    def _predeclare(self, namespace: str) -> None:
        self._namespaces.add(namespace)
        nothing = write_table({})
        for name, kind in {DEFAULT: "direct", **_PREDECLARED}.items():
            exchange = Exchange(ExchangeDefinition(namespace, name, kind, True, False, name == TRACE, nothing))
            self.on_added(self._exchanges.setdefault((namespace, name), exchange))

    # -- exchanges

    def check_declaration(self, name: str, kind: str, arguments: FieldTable) -> None:
        """Raises the refusals that do not depend on the caller."""
        make_matcher(kind, arguments)
        if name == DEFAULT:
            raise DefaultExchange

    def check_deletion(self, namespace: str, name: str) -> None:
        """Same as `check_declaration`, for a deletion."""
        if name == DEFAULT:
            raise DefaultExchange
        if name.startswith(RESERVED_PREFIX):
            raise SystemExchange(name, namespace)

    def declare(
        self,
        namespace: str,
        name: str,
        kind: str,
        is_durable: bool,
        is_auto_delete: bool,
        is_internal: bool,
        arguments: FieldTable,
    ) -> Ticket | None:
        """Returns None if the exchange exists already and is durable, or if it is transient."""
        self.check_declaration(name, kind, arguments)
        definition = ExchangeDefinition(
            namespace, name, kind, is_durable, is_auto_delete, is_internal, write_table(arguments)
        )
        declared = Exchange(definition)
        found = self.find(namespace, name)
        if found is not None:
            _require_equivalent(found, declared)
            return self._catalogue.pending(_EXCHANGE, _key(namespace, name))
        if name.startswith(RESERVED_PREFIX):
            raise ReservedName("exchange", name)
        if _ALTERNATE in arguments and declared.alternate is None:
            raise InvalidArgument(_ALTERNATE, "exchange", name, namespace, "no text", arguments[_ALTERNATE])
        self._remember(declared)
        if not is_durable:
            return None
        return self._catalogue.put(_EXCHANGE, _key(namespace, name), msgspec.to_builtins(definition), None)

    def delete(self, namespace: str, name: str, if_unused: bool) -> Ticket | None:
        """Deletes an exchange and all its bindings. Returns None if it does not exist or is transient."""
        self.check_deletion(namespace, name)
        found = self.find(namespace, name)
        if found is None:
            return None
        if if_unused and found.bindings:
            raise ExchangeInUse(name, namespace)
        return self._delete(found)

    def _delete(self, exchange: Exchange) -> Ticket | None:
        ticket: Ticket | None = None
        del self._exchanges[exchange.namespace, exchange.name]
        for binding in list(exchange.bindings.values()):
            ticket = self._drop(exchange, binding) or ticket
        ticket = self._unbind_destination(exchange.namespace, Destination(False, exchange.name)) or ticket
        self.deleted(exchange)
        return self._delete_definition(_EXCHANGE, _key(exchange.namespace, exchange.name)) or ticket

    def delete_all(self, namespace: str) -> None:
        """Deletes all exchanges of a namespace that is being deleted."""
        for exchange in self:
            if exchange.namespace == namespace and self._exchanges.get((namespace, exchange.name)) is exchange:
                self._delete(exchange)
        self._namespaces.discard(namespace)

    def _remember(self, exchange: Exchange) -> None:
        self.find(exchange.namespace, DEFAULT)
        self._exchanges[exchange.namespace, exchange.name] = exchange
        self.on_added(exchange)
        self.changed()

    # -- bindings

    def check_binding(self, binding: Binding) -> None:
        """Same as `check_declaration`, for a binding."""
        if binding.source == DEFAULT or (binding.destination == DEFAULT and not binding.to_queue):
            raise DefaultExchange

    def check_ends(self, namespace: str, binding: Binding, find_queue: Callable[[str, str], object]) -> None:
        """Raises the refusal of a binding whose source or destination does not exist, in this order, or whose arguments
        are invalid for its source."""
        source = self.get(namespace, binding.source)
        if not binding.to_queue:
            self.get(namespace, binding.destination)
        elif find_queue(namespace, binding.destination) is None:
            raise UnknownQueue(binding.destination, namespace)
        source.matcher.check(binding)

    def bind(self, namespace: str, binding: Binding) -> Ticket | None:
        """Returns None if the binding exists already and is durable, or if it is transient. The caller has called
        `check_ends`."""
        self.check_binding(binding)
        source = self.get(namespace, binding.source)
        if binding.identity in source.bindings:
            return self._catalogue.pending(_BINDING, _binding_key(namespace, binding))
        source.matcher.check(binding)
        self._add(source, binding)
        if not self._is_durable(source, binding):
            return None
        stored = _StoredBinding(
            namespace,
            binding.source,
            binding.destination,
            binding.to_queue,
            binding.key,
            write_table(binding.arguments),
        )
        return self._catalogue.put(_BINDING, _binding_key(namespace, binding), msgspec.to_builtins(stored), None)

    def unbind(self, namespace: str, binding: Binding) -> Ticket | None:
        """Removes a binding. A binding, exchange or queue that does not exist is not an error."""
        self.check_binding(binding)
        source = self.find(namespace, binding.source)
        if source is None or binding.identity not in source.bindings:
            return None
        ticket = self._drop(source, binding)
        return self._delete_if_last(source) or ticket

    def unbind_queue(self, namespace: str, name: str) -> Ticket | None:
        """Removes all bindings of a deleted queue."""
        return self._unbind_destination(namespace, Destination(True, name))

    def bound_queues(self) -> list[tuple[str, str]]:
        """Returns namespace and name of all queues with bindings."""
        return [(namespace, to.name) for namespace, to in self._bindings_by_destination if to.to_queue]

    def bindings_of(self, namespace: str, queue: str) -> list[Binding]:
        return list(self._bindings_by_destination.get((namespace, Destination(True, queue)), {}).values())

    def _is_durable(self, source: Exchange, binding: Binding) -> bool:
        if not source.definition.is_durable:
            return False
        if binding.to_queue:
            return bool(self._is_durable_queue(source.namespace, binding.destination))
        return self.get(source.namespace, binding.destination).definition.is_durable

    def _unbind_destination(self, namespace: str, target: Destination) -> Ticket | None:
        ticket: Ticket | None = None
        for binding in list(self._bindings_by_destination.get((namespace, target), {}).values()):
            source = self.find(namespace, binding.source)
            if source is not None and binding.identity in source.bindings:
                ticket = self._drop(source, binding) or ticket
                ticket = self._delete_if_last(source) or ticket
        return ticket

    def _delete_if_last(self, source: Exchange) -> Ticket | None:
        is_there = self._exchanges.get((source.namespace, source.name)) is source
        if is_there and source.definition.is_auto_delete and not source.bindings:
            return self._delete(source)
        return None

    def _add(self, source: Exchange, binding: Binding) -> None:
        identity = binding.identity
        source.bindings[identity] = binding
        source.matcher.add(binding)
        self._bindings_by_destination.setdefault((source.namespace, binding.target), {})[identity] = binding
        self.changed()

    def _drop(self, source: Exchange, binding: Binding) -> Ticket | None:
        self._detach(source, binding)
        return self._delete_definition(_BINDING, _binding_key(source.namespace, binding))

    def _detach(self, source: Exchange, binding: Binding) -> None:
        identity = binding.identity
        source.bindings.pop(identity, None)
        source.matcher.remove(binding)
        to = self._bindings_by_destination.get((source.namespace, binding.target), {})
        to.pop(identity, None)
        if not to:
            self._bindings_by_destination.pop((source.namespace, binding.target), None)
        self.changed()

    def _delete_definition(self, kind: str, key: str) -> Ticket | None:
        stored = self._catalogue.get(kind, key)
        return None if stored is None else self._catalogue.delete(kind, key, stored.version)

    # -- changes of the catalogue: only a refused pass makes it differ from the state here

    def _on_exchange_reverted(self, key: str, stored: StoredDefinition | None) -> None:
        namespace, name = msgspec.json.decode(key, type=tuple[str, str])
        found = self._exchanges.get((namespace, name))
        if stored is None and found is not None and found.definition.is_durable and name not in _PREDECLARED:
            for binding in list(found.bindings.values()):
                self._detach(found, binding)
            del self._exchanges[namespace, name]
            self.changed()
        elif stored is not None and found is None:
            self._remember(Exchange(msgspec.convert(stored.value, ExchangeDefinition)))

    def _on_binding_reverted(self, key: str, stored: StoredDefinition | None) -> None:
        if stored is not None:
            self._restore_binding(msgspec.convert(stored.value, _StoredBinding))
            return
        namespace, source, destination, to_queue, text, arguments = msgspec.json.decode(
            key, type=tuple[str, str, str, bool, str, bytes]
        )
        found = self._exchanges.get((namespace, source))
        table = read_table(arguments, 0, len(arguments))[0]
        binding = Binding(source, destination, to_queue, text, table)
        if found is not None and binding.identity in found.bindings and self._is_durable(found, binding):
            self._detach(found, binding)

    def _restore_binding(self, stored: _StoredBinding) -> None:
        table = read_table(stored.arguments, 0, len(stored.arguments))[0]
        binding = Binding(stored.source, stored.destination, stored.to_queue, stored.key, table)
        source = self.find(stored.namespace, stored.source)
        if source is not None and binding.identity not in source.bindings:
            self._add(source, binding)


def _key(namespace: str, name: str) -> str:
    return msgspec.json.encode((namespace, name)).decode()


def _binding_key(namespace: str, binding: Binding) -> str:
    pieces = (*binding[:4], write_table(binding.arguments))
    return msgspec.json.encode((namespace, *pieces)).decode()


def _require_equivalent(found: Exchange, declared: Exchange) -> None:
    now, wanted = found.definition, declared.definition
    pairs: list[tuple[str, object, object]] = [
        ("type", wanted.kind, now.kind),
        ("durable", wanted.is_durable, now.is_durable),
        ("auto_delete", wanted.is_auto_delete, now.is_auto_delete),
        ("internal", wanted.is_internal, now.is_internal),
        (_ALTERNATE, declared.arguments.get(_ALTERNATE, NOT_GIVEN), found.arguments.get(_ALTERNATE, NOT_GIVEN)),
    ]
    for argument, received, current in pairs:
        if not is_same_value(received, current):
            raise Inequivalent("exchange", found.name, found.namespace, argument, received, current)
