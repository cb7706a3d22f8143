"""What is refused about exchanges, bindings, queues and their consumers, one class per idea. Each carries the pieces of
its sentence, so that a front-end can say it in its protocol's words."""

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
    said = "nothing can be published to the internal exchange {name}"


class Locked(_Named):
    """It is another connection's own, or was not declared to be this one's own."""

    said = "the queue {name} is exclusive to another connection"


class QueueInUse(_Named):
    said = "the queue {name} has consumers"


class QueueNotEmpty(_Named):
    said = "the queue {name} has messages"


class ExclusiveUse(_Named):
    """A consumer wants the queue for itself alone, or has it."""

    said = "the queue {name} has a consumer that excludes others"


class PrefetchNeeded(_Named):
    said = "a consumer of the stream {name} must say how many messages it takes at once"


class AcknowledgementNeeded(_Named):
    said = "a consumer of the stream {name} must acknowledge"


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
        return f"there are no exchanges of the kind {self.kind!r}"


@dataclass(eq=False)
class Inequivalent(Refusal):
    """It exists and is not what was declared. `received` and `current` None: without that argument."""

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
    """A queue of this kind needs a name of its client's."""

    kind: str

    def __str__(self) -> str:
        return f"a {self.kind} queue must be given a name"


@dataclass(eq=False)
class InvalidMatch(Refusal):
    """How a binding of a headers exchange wants its headers to match."""

    value: Any

    def __str__(self) -> str:
        return f"x-match is all, any, all-with-x or any-with-x, not {self.value!r}"


@dataclass(eq=False)
class InvalidHash(Refusal):
    """What an exchange is asked to hash."""

    value: Any

    def __str__(self) -> str:
        return f"a hash is of one header, or of correlation_id, message_id or timestamp, not of {self.value!r}"


@dataclass(eq=False)
class InvalidWeight(Refusal):
    """The key of a binding of an x-consistent-hash exchange."""

    key: str

    def __str__(self) -> str:
        return f"the key of this binding must be a weight from 1 on, not {self.key!r}"


@dataclass(eq=False)
class InvalidHeader(Refusal):
    """A header that the broker itself looks at is not what it must be."""

    header: str
    value: Any

    def __str__(self) -> str:
        return f"the header {self.header} cannot be {self.value!r}"


@dataclass(eq=False)
class InvalidExpiration(Refusal):
    value: str

    def __str__(self) -> str:
        return f"{self.value!r} is no number of milliseconds after which a message expires"


@dataclass(eq=False)
class NotForStreams(Refusal):
    verb: str
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"a stream knows no {self.verb}: {self.name!r}{_in(self.namespace)}"


@dataclass(eq=False)
class InvalidStreamOffset(Refusal):
    name: str
    namespace: str
    value: Any

    def __str__(self) -> str:
        return f"x-stream-offset cannot be {self.value!r}: {self.name!r}{_in(self.namespace)}"
