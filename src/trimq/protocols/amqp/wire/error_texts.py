"""RabbitMQ's error text of each refusal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trimq.errors import AccessDenied, MessageTooLong, Refusal
from trimq.errors import queues as refusals
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.amqp.wire.erlang_terms import atom, pair, quoted, term, text_or_term, type_name, typed_term

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
    refusals.SingleActiveGet: (
        "cannot obtain access to locked queue {where}. basic.get operations are not supported by "
        '<<"quorum">> queues with single active consumer'
    ),
    refusals.QueueInUse: "queue {where} in use",
    refusals.QueueNotEmpty: "queue {where} not empty",
    refusals.ExclusiveUse: "queue {where} in exclusive use",
    refusals.PrefetchNeeded: "consumer prefetch count is not set for stream queue {where}",
    refusals.AcknowledgementNeeded: "automatic acknowledgement not supported by stream queue {where}",
    refusals.ConditionalDeletion: (
        "cannot delete queue {where}. queue.delete operations with {refusal.condition} flag set are not supported by "
        "quorum queues"
    ),
    refusals.InvalidProperty: "invalid property '{refusal.property}' for queue {where}",
    refusals.ArgumentNotForKind: (
        "invalid arg '{refusal.argument}' for queue {where} of queue type rabbit_{refusal.kind}_queue"
    ),
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


def _where(refusal: Any) -> str:
    return f"{refusal.what} '{refusal.name}' in vhost '{vhost_of(refusal.namespace)}'"


def _inequivalent(refusal: Any) -> str:
    has_both = refusals.NOT_GIVEN not in (refusal.received, refusal.current)
    is_atom = refusal.what == "exchange" and refusal.argument == "type"
    received, current = (_compared(value, has_both, is_atom) for value in (refusal.received, refusal.current))
    where = _where(refusal)
    return f"inequivalent arg '{refusal.argument}' for {where}: received {received} but current is {current}"


def _compared(value: object, has_both: bool, is_atom: bool) -> str:
    if value is refusals.NOT_GIVEN or (value is None and has_both):
        return "none"
    shown = f"'{atom(value) if is_atom else text_or_term(value)}'"
    return shown if has_both else f"the value {shown} of type '{type_name(value)}'"


# RabbitMQ's reasons why a value that is not one of the known ones is invalid.
_UNKNOWN_VALUES = {
    "x-dead-letter-strategy": "invalid_dlx_strategy",
    "x-overflow": "invalid_overflow",
    "x-queue-leader-locator": "invalid_queue_locator_arg",
    "x-max-age": "invalid_max_age",
}
_ROUTING_HEADERS = ("CC", "BCC")
_REFERENCES = ("x-dead-letter-exchange", "alternate-exchange")
_CHECKED_BY_STREAMS = {
    "x-stream-max-segment-size-bytes": "Exceeded max value for x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes": "Invalid value for x-stream-filter-size-bytes",
}


def _invalid_argument(refusal: Any) -> str:
    argument, value, reason = refusal.argument, refusal.value, refusal.reason
    if argument in _REFERENCES:
        return f"invalid type '{type_name(value)}' for arg '{argument}' in {_where(refusal)}"
    if argument in _CHECKED_BY_STREAMS and value is not None and reason in ("zero", "too large"):
        return _CHECKED_BY_STREAMS[argument]
    return f"invalid arg '{argument}' for {_where(refusal)}: {_reason(argument, value, reason)}"


def _reason(argument: str, value: object, reason: str) -> str:
    """Returns the Erlang term that is RabbitMQ's reason why an argument is invalid."""
    match reason:
        case "negative":
            return f"{{value_negative,{value}}}"
        case "zero":
            return "{value_zero,0}"
        case "too large" if argument == "x-max-priority":
            return f"{{max_value_exceeded,{value}}}"
        case "too large":
            return f"{{value_too_large,{value}}}"
        case "no number":
            return quoted(f"expected integer, got {type_name(value)}")
        case "no exchange":
            return "routing_key_but_no_dlx_defined"
        case "unknown" if argument == "x-queue-version":
            return quoted(f"unsupported queue version '{value}'")
        case "unknown" if argument == "x-queue-type":
            return quoted(f"unsupported queue type '{value}'")
        case "unknown" if argument == "x-stream-offset":
            return f"{{invalid_stream_offset_arg,{typed_term(value)}}}"
        case "unknown":
            return _UNKNOWN_VALUES.get(argument, f"{{unknown_value,{term(value)}}}")
    return f"{{unacceptable_type,{type_name(value)}}}"


def _unknown_exchange_kind(refusal: Any) -> str:
    return f"{'unknown' if refusal.kind else 'invalid'} exchange type '{refusal.kind}'"


def _invalid_header(refusal: Any) -> str:
    if refusal.header not in _ROUTING_HEADERS:
        return str(refusal)
    return f"invalid message: {{unacceptable_type_in_header,{quoted(refusal.header)},{type_name(refusal.value)}}}"


def _invalid_expiration(refusal: Any) -> str:
    """Prints the reason as Erlang's string:to_integer and RabbitMQ's check of the number do."""
    text = refusal.value
    beginning = f"invalid expiration '{text}': "
    found = re.match(r"[+-]?[0-9]+", text)
    if found is None:
        return f"{beginning}no_integer"
    if found[0] != text:
        tag, value = "leftover_string", quoted(text[found.end() :])
    else:
        tag, value = "value_negative" if int(text) < 0 else "value_too_large", str(int(text))
    return beginning + pair(tag, value, len(beginning))


def _invalid_match(refusal: Any) -> str:
    value = refusal.value
    if isinstance(value, str):
        return f"Invalid x-match field value {term(value)}; expected all, any, all-with-x, or any-with-x"
    return f"Invalid x-match field type {type_name(value)} (value {term(value)}); expected longstr"


def _denied(refusal: Any) -> str:
    """Text of a denied permission. RabbitMQ has three; `configure` is reported for all other actions."""
    action = refusal.action if refusal.action in ("read", "write") else "configure"
    kind = _RESOURCES.get(refusal.resource.partition(" ")[0])
    where = refusal.resource if kind is None else f"{kind} '{refusal.name}' in vhost '{vhost_of(refusal.namespace)}'"
    return f"{action} access to {where} refused for user '{refusal.principal}'"


# RabbitMQ's names of the verbs that streams do not have.
_VERBS = {"purge": "queue.purge", "get": "basic.get"}


def _not_for_streams(refusal: Any) -> str:
    where = f"queue '{refusal.name}' in vhost '{vhost_of(refusal.namespace)}'"
    return f"{_VERBS.get(refusal.verb, refusal.verb)} not supported by stream queues {where}"


def _too_many_connections(refusal: Any) -> str:
    if refusal.is_of_namespace:
        vhost = vhost_of(refusal.namespace)
        refused = f"access to vhost '{vhost}' refused for user '{refusal.principal}'"
        return f"{refused}: connection limit ({refusal.limit}) is reached"
    return f"connection refused for user '{refusal.principal}': user connection limit ({refusal.limit}) is reached"


def _too_many_channels(refusal: Any) -> str:
    reached = f"has reached the maximum allowed user limit of {refusal.limit}"
    return f"number of channels opened for user '{refusal.principal}' {reached}"


def _too_many_queues(refusal: Any) -> str:
    vhost = vhost_of(refusal.namespace)
    return f"cannot declare queue '{refusal.name}': queue limit in vhost '{vhost}' ({refusal.limit}) is reached"


def _denied_topic(refusal: Any) -> str:
    exchange = f"exchange '{refusal.exchange}' in vhost '{vhost_of(refusal.namespace)}'"
    return f"{refusal.action} access to topic '{refusal.key}' in {exchange} refused for user '{refusal.principal}'"


_SAID: dict[type[Refusal], Callable[[Any], str]] = {
    refusals.ReservedName: lambda refusal: f"{refusal.kind} name '{refusal.name}' contains reserved prefix 'amq.*'",
    refusals.DefaultExchange: lambda refusal: "operation not permitted on the default exchange",
    refusals.UnknownExchangeKind: _unknown_exchange_kind,
    refusals.ServerNamed: lambda refusal: f"Cannot declare a server-named queue for type rabbit_{refusal.kind}_queue",
    refusals.Inequivalent: _inequivalent,
    refusals.InvalidArgument: _invalid_argument,
    refusals.InvalidHeader: _invalid_header,
    refusals.InvalidExpiration: _invalid_expiration,
    refusals.InvalidMatch: _invalid_match,
    refusals.NotForStreams: _not_for_streams,
    refusals.TopicAccessDenied: _denied_topic,
    refusals.TooManyQueues: _too_many_queues,
    refusals.TooManyConnections: _too_many_connections,
    refusals.TooManyChannels: _too_many_channels,
    AccessDenied: _denied,
    MessageTooLong: lambda refusal: f"message size {refusal.size} is larger than configured max size {refusal.limit}",
}
