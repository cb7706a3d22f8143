"""RabbitMQ's error text of each refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimq.errors import AccessDenied, MessageTooLong, Refusal
from trimq.errors import queues as refusals
from trimq.model import DEFAULT_NAMESPACE

ROOT = "/"

_LOCKED = (
    "cannot obtain exclusive access to locked queue {where}. It could be originally declared on another connection or "
    "the exclusive property value does not match that of the original declaration."
)

# RabbitMQ's names of the resources of permissions.
_RESOURCES = {"topic": "queue", "route": "exchange"}

# `{where}`: the name and its virtual host
_NAMED: dict[type[Refusal], str] = {
    refusals.UnknownExchange: "no exchange {where}",
    refusals.UnknownQueue: "no queue {where}",
    refusals.SystemExchange: "deletion of system exchange {where} not allowed",
    refusals.ExchangeInUse: "exchange {where} in use",
    refusals.InternalExchange: "cannot publish to internal exchange {where}",
    refusals.Locked: _LOCKED,
    refusals.QueueInUse: "queue {where} in use",
    refusals.QueueNotEmpty: "queue {where} not empty",
    refusals.ExclusiveUse: "queue {where} in exclusive use",
    refusals.PrefetchNeeded: "consumer prefetch count is not set for stream queue {where}",
    refusals.AcknowledgementNeeded: "automatic acknowledgement not supported by stream queue {where}",
    refusals.NotForStreams: "{refusal.verb} not supported by stream queues queue {where}",
    refusals.InvalidArgument: "invalid arg '{refusal.argument}' for {refusal.what} {where}: {refusal.reason}",
    refusals.InvalidProperty: "invalid property '{refusal.property}' for queue {where}",
    refusals.ArgumentNotForKind: "invalid arg '{refusal.argument}' for queue {where} of queue type {refusal.kind}",
    refusals.InvalidStreamOffset: "invalid arg 'x-stream-offset' for queue {where}: {refusal.value}",
}


def vhost_of(namespace: str) -> str:
    """Returns the virtual host of a namespace."""
    return namespace if namespace != DEFAULT_NAMESPACE else ROOT


def namespace_of(vhost: str) -> str:
    return DEFAULT_NAMESPACE if vhost == ROOT else vhost


def rabbitmq_text(refusal: Refusal) -> str:
    kind = type(refusal)
    if kind in _NAMED:
        found: Any = refusal
        where = f"'{found.name}' in vhost '{vhost_of(found.namespace)}'"
        return _NAMED[kind].format(where=where, refusal=refusal)
    said = _SAID.get(kind)
    return str(refusal) if said is None else said(refusal)


def _inequivalent(refusal: Any) -> str:
    received, current = (_value(value) for value in (refusal.received, refusal.current))
    where = f"{refusal.what} '{refusal.name}' in vhost '{vhost_of(refusal.namespace)}'"
    return f"inequivalent arg '{refusal.argument}' for {where}: received {received} but current is {current}"


def _value(value: object) -> str:
    if value is None:
        return "none"
    return f"'{str(value).lower()}'" if isinstance(value, bool) else f"'{value}'"


def _denied(refusal: Any) -> str:
    """Text of a denied permission. RabbitMQ has three; `configure` is reported for all other actions."""
    action = refusal.action if refusal.action in ("read", "write") else "configure"
    kind = _RESOURCES.get(refusal.resource.partition(" ")[0])
    where = refusal.resource if kind is None else f"{kind} '{refusal.name}' in vhost '{vhost_of(refusal.namespace)}'"
    return f"{action} access to {where} refused for user '{refusal.principal}'"


_SAID: dict[type[Refusal], Callable[[Any], str]] = {
    refusals.ReservedName: lambda refusal: f"{refusal.kind} name '{refusal.name}' contains reserved prefix 'amq.*'",
    refusals.DefaultExchange: lambda refusal: "operation not permitted on the default exchange",
    refusals.UnknownExchangeKind: lambda refusal: f"unknown exchange type '{refusal.kind}'",
    refusals.ServerNamed: lambda refusal: f"Cannot declare a server-named queue for type {refusal.kind}",
    refusals.Inequivalent: _inequivalent,
    refusals.InvalidExpiration: lambda refusal: f"invalid expiration '{refusal.value}'",
    AccessDenied: _denied,
    MessageTooLong: lambda refusal: f"message size {refusal.size} is larger than configured max size {refusal.limit}",
}
