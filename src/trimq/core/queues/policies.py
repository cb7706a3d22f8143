"""Policies, as in RabbitMQ: settings for all queues and exchanges whose names match a pattern; of those that match, the
one with the highest priority applies. Stores policies in the catalogue, checks them and merges them with the arguments
of a queue; queues enforce the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as StoredDefinition
from trimq.core.name_patterns import NamePattern, require_valid
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
from trimq.core.routing.exchanges import Exchange, Exchanges
from trimq.errors import InvalidSetting
from trimq.formats.amqp_content.field_tables import FieldTable, Value
from trimq.storage.group_commit.passes import Ticket

_KIND = "policy"

_ALTERNATE = "alternate-exchange"
_KINDS = {CLASSIC: "classic_queues", QUORUM: "quorum_queues", STREAM: "streams"}
APPLY_TO = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")


# Each means the same as the queue argument of this name with the prefix x-.
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
# Accepted without effect: obsolete in RabbitMQ too, or about a cluster, and TriMQ is one node.
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

# A policy with one of these terms does not apply to queues of these kinds at all. Every other term applies to each
# queue whose kind has such an argument.
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


class Policy(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"


class Policies:
    def __init__(self, catalogue: Catalogue, exchanges: Exchanges) -> None:
        self._catalogue = catalogue
        self._exchanges = exchanges
        self._policies: dict[str, tuple[Policy, NamePattern]] = {}
        self.changed: Callable[[], None] = lambda: None
        for key, stored in catalogue.all(_KIND):
            self._take(key, stored)
        catalogue.watch(_KIND, self._policy_changed)
        exchanges.on_added = self._apply_to

    def all(self, namespace: str) -> list[Policy]:
        return [policy for policy, _ in self._policies.values() if policy.namespace == namespace]

    def define(self, policy: Policy) -> Ticket:
        """Creates a policy, or replaces the one of this name."""
        self._check(policy)
        key = msgspec.json.encode((policy.namespace, policy.name)).decode()
        known = self._catalogue.get(_KIND, key)
        return self._catalogue.put(_KIND, key, msgspec.to_builtins(policy), None if known is None else known.version)

    def delete(self, namespace: str, name: str) -> Ticket | None:
        """Returns None if there is no policy of this name."""
        key = msgspec.json.encode((namespace, name)).decode()
        known = self._catalogue.get(_KIND, key)
        return None if known is None else self._catalogue.delete(_KIND, key, known.version)

    def _check(self, policy: Policy) -> None:
        require_valid("pattern", policy.pattern)
        if policy.apply_to not in APPLY_TO:
            raise InvalidSetting("apply-to", f"must be one of {', '.join(APPLY_TO)}, not {policy.apply_to!r}")
        if not policy.definition:
            raise InvalidSetting("definition", "must not be empty")
        alternate = policy.definition.get(_ALTERNATE, "")
        if not isinstance(alternate, str):
            raise InvalidSetting(_ALTERNATE, f"{alternate!r} is not a string")
        check_policy_definition(policy.name, policy.namespace, _of_queues(policy))

    # -- applying policies

    def apply(self, namespace: str, name: str, own: FieldTable) -> FieldTable:
        """Returns the arguments of a queue with those of its policy merged in."""
        kind = kind_of(name, namespace, own)
        policy = self._find(namespace, name, ("all", "queues", _KINDS[kind]), kind)
        return own if policy is None else merge_arguments(name, namespace, own, _of_queues(policy))

    def apply_to_exchanges(self) -> None:
        for exchange in self._exchanges:
            self._apply_to(exchange)
        self._exchanges.changed()

    def _apply_to(self, exchange: Exchange) -> None:
        policy = self._find(exchange.namespace, exchange.name, ("all", "exchanges"), None)
        alternate = None if policy is None else policy.definition.get(_ALTERNATE)
        exchange.policy_alternate = alternate if isinstance(alternate, str) else None

    def _find(self, namespace: str, name: str, applied_to: tuple[str, ...], kind: str | None) -> Policy | None:
        """Returns the policy that applies. `kind`: the kind of the queue; None for an exchange."""
        found = [
            policy
            for policy, pattern in self._policies.values()
            if policy.namespace == namespace
            and policy.apply_to in applied_to
            and pattern.search(name)
            and (kind is None or applies_to_kind(kind, policy.definition))
        ]
        return max(found, key=lambda policy: (policy.priority, policy.name), default=None)

    def _policy_changed(self, key: str, stored: StoredDefinition | None) -> None:
        self._take(key, stored)
        self.apply_to_exchanges()
        self.changed()

    def _take(self, key: str, stored: StoredDefinition | None) -> None:
        if stored is None:
            self._policies.pop(key, None)
        else:
            policy = msgspec.convert(stored.value, Policy)
            self._policies[key] = policy, NamePattern(policy.pattern, f"policy {policy.name}")


def _of_queues(policy: Policy) -> dict[str, Any]:
    return {term: value for term, value in policy.definition.items() if term != _ALTERNATE}


# -- terms of a definition: pure functions


def check_policy_definition(name: str, namespace: str, definition: Mapping[str, Any]) -> None:
    """Raises InvalidSetting for terms that no kind of queue enforces, and for values that RabbitMQ rejects."""
    for term, value in definition.items():
        if term not in _TERMS and term not in _CHOICES and term not in _LEAST:
            raise InvalidSetting(term, "not supported in a policy")
        if isinstance(value, bool) != (term == _BOOLEAN) or not isinstance(value, str | int):
            raise InvalidSetting(term, f"{value!r} has the wrong type")
        if term in _CHOICES and value not in _CHOICES[term]:
            raise InvalidSetting(term, f"must be one of {', '.join(map(str, _CHOICES[term]))}, not {value!r}")
        if term in _LEAST and (isinstance(value, str) or value < _LEAST[term]):
            raise InvalidSetting(term, f"must be a number of at least {_LEAST[term]}, not {value!r}")
        if term in _TERMS:
            _check_argument(name, namespace, term, value)
    _check_retries(definition)


def _check_argument(name: str, namespace: str, term: str, value: Value) -> None:
    """Checks one term alone: terms that it depends on may be among the queue's own arguments."""
    argument = f"x-{term}"
    kind = next(kind for kind in KINDS if has_argument(kind, argument))
    beside: FieldTable = {"x-dead-letter-exchange": ""} if term == "dead-letter-routing-key" else {}
    read_settings(name, namespace, {**beside, "x-queue-type": kind, argument: _known_limit(term, value)})


def _check_retries(definition: Mapping[str, Any]) -> None:
    least, most = definition.get("delayed-retry-min"), definition.get("delayed-retry-max")
    if least is None and definition.get("delayed-retry-type", RETRY_DISABLED) != RETRY_DISABLED:
        raise InvalidSetting("delayed-retry-type", "requires delayed-retry-min")
    if least is not None and most is not None and most < least:
        raise InvalidSetting("delayed-retry-max", f"{most} is less than delayed-retry-min, {least}")


def applies_to_kind(kind: str, definition: Mapping[str, Any]) -> bool:
    """True if a policy with this definition applies to queues of this kind."""
    return not any(kind in _NOT_FOR.get(term, ()) for term in definition)


def merge_arguments(name: str, namespace: str, own: FieldTable, definition: Mapping[str, Any]) -> FieldTable:
    """Returns the arguments of a queue with those of the policy merged in."""
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
    """Returns the value that applies. `own` None: the queue has no such argument."""
    if own is None or (kind, term) in _POLICY_WINS:
        resolved = said
    elif term == _LIMIT and min(said, own) < 0:  # one of them has no limit
        resolved = max(said, own)
    elif term == _LIMIT or term in _LOWER_WINS:
        resolved = min(said, own)
    else:
        resolved = own or said if term == _BOOLEAN else own
    return resolved  # type: ignore[no-any-return]


def _known_limit(term: str, value: Value) -> Value:
    """Any negative delivery limit in a policy means no limit: -1."""
    return max(value, -1) if term == _LIMIT and isinstance(value, int) else value
