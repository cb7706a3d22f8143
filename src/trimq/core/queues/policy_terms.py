"""What a policy may say of queues, for which kinds of them it is, and what holds beside a queue's own arguments: as in
RabbitMQ. Pure: tables in, a table out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimq.core.queues.arguments import (
    CLASSIC,
    KINDS,
    QUORUM,
    RETRY_DISABLED,
    STREAM,
    has_argument,
    kind_of,
    read_settings,
)
from trimq.errors import InvalidSetting
from trimq.formats.amqp_content.field_tables import FieldTable, Value

# Each says what the argument of the same name, with x- before it, says of one queue.
_TERMS = {
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "overflow",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "delivery-limit",
    "max-age",
    "stream-max-segment-size-bytes",
    "stream-filter-size-bytes",
    "consumer-timeout",
    "message-deduplication",
    "delayed-retry-type",
    "delayed-retry-min",
    "delayed-retry-max",
}
# Without effect, in RabbitMQ because there is nothing left to choose, or here because there is one node.
_CHOICES: dict[str, tuple[Value, ...]] = {
    "queue-mode": ("default", "lazy"),
    "queue-version": (1, 2),
    "queue-leader-locator": ("client-local", "balanced", "random", "least-leaders"),
}
_LEAST = {
    "max-in-memory-length": 0,
    "max-in-memory-bytes": 0,
    "initial-cluster-size": 0,
    "target-group-size": 1,
    "consumer-disconnected-timeout": 0,
}
_BOOLEAN = "message-deduplication"
_LIMIT = "delivery-limit"

# A policy with one of these is not for queues of these kinds, whatever else it says. All others are for all queues, and
# mean something where a queue has such an argument.
_OF_STREAMS, _OF_QUORUM, _OF_CLASSIC, _NOT_OF_STREAMS = (
    (CLASSIC, QUORUM),
    (CLASSIC, STREAM),
    (QUORUM, STREAM),
    (STREAM,),
)
_NOT_FOR: dict[str, tuple[str, ...]] = {
    "max-age": _OF_STREAMS,
    "stream-max-segment-size-bytes": _OF_STREAMS,
    "initial-cluster-size": _OF_STREAMS,
    "delivery-limit": _OF_QUORUM,
    "dead-letter-strategy": _OF_QUORUM,
    "max-in-memory-length": _OF_QUORUM,
    "max-in-memory-bytes": _OF_QUORUM,
    "target-group-size": _OF_QUORUM,
    "queue-mode": _OF_CLASSIC,
    "message-ttl": _NOT_OF_STREAMS,
    "expires": _NOT_OF_STREAMS,
    "max-length": _NOT_OF_STREAMS,
    "overflow": _NOT_OF_STREAMS,
    "dead-letter-exchange": _NOT_OF_STREAMS,
    "dead-letter-routing-key": _NOT_OF_STREAMS,
}

_POLICY_WINS = {(QUORUM, "overflow"), (QUORUM, "delayed-retry-type"), *((STREAM, term) for term in _TERMS)}
_LOWER_WINS = {
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "consumer-timeout",
    "delayed-retry-min",
    "delayed-retry-max",
}


def check_policy_definition(name: str, namespace: str, definition: Mapping[str, Any]) -> None:
    """Refuse what would be enforced for no kind of queue, and what RabbitMQ refuses."""
    for term, value in definition.items():
        if term not in _TERMS and term not in _CHOICES and term not in _LEAST:
            raise InvalidSetting(term, "this broker cannot enforce it in a policy")
        if isinstance(value, bool) != (term == _BOOLEAN) or not isinstance(value, str | int):
            raise InvalidSetting(term, f"{value!r} is not what it can be")
        if term in _CHOICES and value not in _CHOICES[term]:
            raise InvalidSetting(term, f"one of {', '.join(map(str, _CHOICES[term]))}, not {value!r}")
        if term in _LEAST and (isinstance(value, str) or value < _LEAST[term]):
            raise InvalidSetting(term, f"a number from {_LEAST[term]} on, not {value!r}")
        if term in _TERMS:
            _check_argument(name, namespace, term, value)
    _check_retries(definition)


def _check_argument(name: str, namespace: str, term: str, value: Value) -> None:
    """By itself: a policy may leave to the queue's arguments what it needs beside it."""
    argument = f"x-{term}"
    kind = next(kind for kind in KINDS if has_argument(kind, argument))
    beside: FieldTable = {"x-dead-letter-exchange": ""} if term == "dead-letter-routing-key" else {}
    read_settings(name, namespace, {**beside, "x-queue-type": kind, argument: _known_limit(term, value)})


def _check_retries(definition: Mapping[str, Any]) -> None:
    least, most = definition.get("delayed-retry-min"), definition.get("delayed-retry-max")
    if least is None and definition.get("delayed-retry-type", RETRY_DISABLED) != RETRY_DISABLED:
        raise InvalidSetting("delayed-retry-type", "it needs a delayed-retry-min")
    if least is not None and most is not None and most < least:
        raise InvalidSetting("delayed-retry-max", f"{most} is less than delayed-retry-min, {least}")


def applies_to_kind(kind: str, definition: Mapping[str, Any]) -> bool:
    """Whether a policy that says this is for queues of this kind."""
    return not any(kind in _NOT_FOR.get(term, ()) for term in definition)


def merge_arguments(name: str, namespace: str, own: FieldTable, definition: Mapping[str, Any]) -> FieldTable:
    """The arguments that a queue would have to have for what holds."""
    kind = kind_of(name, namespace, own)
    merged = dict(own)
    for term, said in definition.items():
        argument = f"x-{term}"
        if term in _TERMS and has_argument(kind, argument):
            merged[argument] = _resolve(kind, term, _known_limit(term, said), own.get(argument))
    if "x-dead-letter-exchange" not in merged:
        merged.pop("x-dead-letter-routing-key", None)
    return merged


def _resolve(kind: str, term: str, said: Any, own: Any) -> Value:
    """`own` None: the queue says nothing."""
    if own is None or (kind, term) in _POLICY_WINS:
        resolved = said
    elif term == _LIMIT and min(said, own) < 0:  # there is no limit in one of them
        resolved = max(said, own)
    elif term == _LIMIT or term in _LOWER_WINS:
        resolved = min(said, own)
    else:
        resolved = own or said if term == _BOOLEAN else own
    return resolved  # type: ignore[no-any-return]


def _known_limit(term: str, value: Value) -> Value:
    """In a policy any negative number means that there is no limit."""
    return max(value, -1) if term == _LIMIT and isinstance(value, int) else value
