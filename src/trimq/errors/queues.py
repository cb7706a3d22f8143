"""Refusals about exchanges, bindings, queues and their consumers, one class per idea. Each carries its values as
fields, so that a front-end can word the error as its protocol does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimq.errors import Refusal


def _in(namespace: str) -> str:
    return f" in {namespace}" if namespace else ""


@dataclass(eq=False)  # exceptions must stay hashable
class _Named(Refusal):
    name: str
    namespace: str

    said = "{name}"

    def __str__(self) -> str:
        return self.said.format(name=repr(self.name)) + _in(self.namespace)


class UnknownExchange(_Named):
    said = "there is no exchange {name}"


class UnknownQueue(_Named):
    said = "there is no queue {name}"


class SystemExchange(_Named):
    said = "the exchange {name} always exists and cannot be deleted"


class ExchangeInUse(_Named):
    said = "the exchange {name} has bindings"


class InternalExchange(_Named):
    said = "clients cannot publish to the internal exchange {name}"


class Locked(_Named):
    """The queue is exclusive to another connection, or was declared again with another exclusive flag."""

    said = "the queue {name} is exclusive to another connection"


class QueueInUse(_Named):
    said = "the queue {name} has consumers"


class QueueNotEmpty(_Named):
    said = "the queue {name} has messages"


@dataclass(eq=False)
class ConditionalDeletion(Refusal):
    """A quorum queue cannot be deleted on a condition. `condition`: "if-unused" or "if-empty"."""

    name: str
    namespace: str
    condition: str

    def __str__(self) -> str:
        return f"the quorum queue {self.name!r}{_in(self.namespace)} can only be deleted without {self.condition}"


class ExclusiveUse(_Named):
    """The queue has an exclusive consumer, or an exclusive consumer was requested and the queue has consumers."""

    said = "the queue {name} cannot have an exclusive consumer beside others"


class PrefetchNeeded(_Named):
    said = "a consumer of the stream {name} must set a prefetch count"


class AcknowledgementNeeded(_Named):
    said = "a consumer of the stream {name} must acknowledge messages"


class SingleActiveGet(_Named):
    """A quorum queue with a single active consumer has no basic.get."""

    said = "the quorum queue {name} has a single active consumer: messages cannot be fetched one by one"


class UnknownNamespace(_Named):
    said = "there is no namespace {name}"


@dataclass(eq=False)
class ReservedName(Refusal):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"the {self.kind} name {self.name!r} has the reserved prefix 'amq.'"


class DefaultExchange(Refusal):
    def __str__(self) -> str:
        return "the default exchange cannot be declared, bound or deleted"


@dataclass(eq=False)
class UnknownExchangeKind(Refusal):
    kind: str

    def __str__(self) -> str:
        return f"there is no exchange type {self.kind!r}"


class _NotGiven:
    def __repr__(self) -> str:
        return "not given"


NOT_GIVEN = _NotGiven()
"""Stands for the value of an argument that was not given; None is a value."""


@dataclass(eq=False)
class Inequivalent(Refusal):
    """The exchange or queue exists with another property or argument. `received`, `current`: perhaps NOT_GIVEN."""

    what: str
    name: str
    namespace: str
    argument: str
    received: Any
    current: Any

    def __str__(self) -> str:
        where = f"{self.what} {self.name!r}{_in(self.namespace)}"
        return f"{self.argument} of {where} is {self.current!r}, not {self.received!r}"


@dataclass(eq=False)
class InvalidArgument(Refusal):
    """`reason`: "negative", "zero", "too large", "no number", "no boolean", "no text", "unknown", "no exchange"."""

    argument: str
    what: str
    name: str
    namespace: str
    reason: str
    value: Any

    def __str__(self) -> str:
        return f"{self.argument} of {self.what} {self.name!r}{_in(self.namespace)} is {self.reason}: {self.value!r}"


@dataclass(eq=False)
class ArgumentNotForKind(Refusal):
    argument: str
    name: str
    namespace: str
    kind: str

    def __str__(self) -> str:
        return f"{self.argument} of queue {self.name!r}{_in(self.namespace)}: {self.kind} queues have no such argument"


@dataclass(eq=False)
class InvalidProperty(Refusal):
    """`property`: "non-durable", "exclusive-owner" or "auto-delete"."""

    property: str
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"the queue {self.name!r}{_in(self.namespace)} cannot be {self.property}"


@dataclass(eq=False)
class ServerNamed(Refusal):
    """The broker generates no names for queues of this kind; the client must give one."""

    kind: str

    def __str__(self) -> str:
        return f"a {self.kind} queue must be given a name"


@dataclass(eq=False)
class InvalidMatch(Refusal):
    """The binding of a headers exchange has an invalid `x-match` argument."""

    value: Any

    def __str__(self) -> str:
        return f"x-match must be all, any, all-with-x or any-with-x, not {self.value!r}"


@dataclass(eq=False)
class InvalidHash(Refusal):
    """The arguments of an x-consistent-hash exchange name no valid hash source."""

    value: Any

    def __str__(self) -> str:
        return f"a hash source must be one header, correlation_id, message_id or timestamp, not {self.value!r}"


@dataclass(eq=False)
class InvalidWeight(Refusal):
    """The routing key of a binding of an x-consistent-hash exchange is not a valid weight."""

    key: str

    def __str__(self) -> str:
        return f"the routing key of this binding must be a weight of at least 1, not {self.key!r}"


@dataclass(eq=False)
class InvalidHeader(Refusal):
    """A header that the broker interprets has an invalid value."""

    header: str
    value: Any

    def __str__(self) -> str:
        return f"the header {self.header} cannot be {self.value!r}"


@dataclass(eq=False)
class InvalidExpiration(Refusal):
    value: str

    def __str__(self) -> str:
        return f"{self.value!r} is not a valid expiration: give a number of milliseconds"


@dataclass(eq=False)
class NotForStreams(Refusal):
    verb: str
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"a stream does not support {self.verb}: {self.name!r}{_in(self.namespace)}"


@dataclass(eq=False)
class TopicAccessDenied(Refusal):
    """A topic permission of the user does not allow this routing key."""

    principal: str
    action: str
    key: str
    exchange: str
    namespace: str

    def __str__(self) -> str:
        where = f"the routing key {self.key!r} of the exchange {self.exchange!r}{_in(self.namespace)}"
        return f"{self.principal} may not {self.action} {where}"


@dataclass(eq=False)
class TooManyQueues(Refusal):
    """The limit of queues of the namespace is reached."""

    name: str
    namespace: str
    limit: int

    def __str__(self) -> str:
        return f"the queue {self.name!r}{_in(self.namespace)} would exceed its limit of {self.limit} queues"


@dataclass(eq=False)
class TooManyConnections(Refusal):
    """The limit of connections of the namespace, or else of the user, is reached."""

    is_of_namespace: bool
    principal: str
    namespace: str
    limit: int

    def __str__(self) -> str:
        holder = f"namespace {self.namespace!r}" if self.is_of_namespace else f"user {self.principal!r}"
        return f"the {holder} has reached its limit of {self.limit} connections"


@dataclass(eq=False)
class TooManyChannels(Refusal):
    """The limit of channels of the user is reached."""

    principal: str
    limit: int

    def __str__(self) -> str:
        return f"the user {self.principal!r} has reached the limit of {self.limit} channels"
