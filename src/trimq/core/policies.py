"""Policies: settings for all queues and exchanges whose names match a pattern, of which the one with the highest
priority holds. Kept in the catalogue; what they mean is put together here, and enforced by queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from trimq.core.catalogue import Catalogue
from trimq.core.catalogue import Definition as Kept
from trimq.core.exchanges import Exchange, Exchanges
from trimq.core.queue_arguments import RETRY_DISABLED, STREAM, QueueSettings, lesser, read_settings
from trimq.errors import InvalidSetting
from trimq.storage.passes import Ticket

_KIND = "policy"

# What a policy may say of queues, and the argument that says the same.
_OF_QUEUES = {
    "message-ttl": "x-message-ttl",
    "expires": "x-expires",
    "max-length": "x-max-length",
    "max-length-bytes": "x-max-length-bytes",
    "overflow": "x-overflow",
    "dead-letter-exchange": "x-dead-letter-exchange",
    "dead-letter-routing-key": "x-dead-letter-routing-key",
    "delivery-limit": "x-delivery-limit",
    "max-age": "x-max-age",
    "consumer-timeout": "x-consumer-timeout",
    "message-deduplication": "x-message-deduplication",
    "delayed-retry-type": "x-delayed-retry-type",
    "delayed-retry-min": "x-delayed-retry-min",
    "delayed-retry-max": "x-delayed-retry-max",
}
_OF_QUORUM = {"x-delivery-limit", "x-consumer-timeout", *(name for name in _OF_QUEUES.values() if "retry" in name)}
_BOOLEAN = ("message-deduplication",)
_ALTERNATE = "alternate-exchange"
APPLY_TO = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")


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
        self._policies: dict[str, tuple[Policy, re.Pattern[str]]] = {}
        self.changed: Callable[[], None] = lambda: None
        for key, kept in catalogue.all(_KIND):
            self._take(key, kept)
        catalogue.watch(_KIND, self._policy_changed)
        exchanges.appeared = self._apply_to

    def all(self, namespace: str) -> list[Policy]:
        return [policy for policy, _ in self._policies.values() if policy.namespace == namespace]

    def define(self, policy: Policy) -> Ticket:
        """Make a policy, or take the place of the one of this name."""
        self._check(policy)
        key = msgspec.json.encode((policy.namespace, policy.name)).decode()
        known = self._catalogue.get(_KIND, key)
        return self._catalogue.put(_KIND, key, msgspec.to_builtins(policy), None if known is None else known.version)

    def delete(self, namespace: str, name: str) -> Ticket | None:
        """None: there is none of this name."""
        key = msgspec.json.encode((namespace, name)).decode()
        known = self._catalogue.get(_KIND, key)
        return None if known is None else self._catalogue.delete(_KIND, key, known.version)

    def _check(self, policy: Policy) -> None:
        try:
            re.compile(policy.pattern)
        except re.error as error:
            raise InvalidSetting("pattern", str(error)) from None
        if policy.apply_to not in APPLY_TO:
            raise InvalidSetting("apply-to", f"one of {', '.join(APPLY_TO)}, not {policy.apply_to!r}")
        if not policy.definition:
            raise InvalidSetting("definition", "a policy says nothing")
        for key, value in policy.definition.items():
            if key != _ALTERNATE and key not in _OF_QUEUES:
                raise InvalidSetting(key, "this broker cannot enforce it in a policy")
            if isinstance(value, bool) != (key in _BOOLEAN) or not isinstance(value, str | int):
                raise InvalidSetting(key, f"{value!r} is not what it can be")
        _arguments(policy)

    # -- what holds

    def apply(self, namespace: str, name: str, own: QueueSettings) -> QueueSettings:
        """A queue's own argument holds before the policy's; of two limits the lower."""
        kind = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}[own.kind]
        policy = self._find(namespace, name, ("all", "queues", kind))
        if policy is None:
            return own
        said = policy.definition
        asked = _arguments(policy)
        return own._replace(
            ttl_ms=lesser(own.ttl_ms, asked.ttl_ms, min),
            expires_ms=lesser(own.expires_ms, asked.expires_ms, min),
            max_length=lesser(own.max_length, asked.max_length, min),
            max_bytes=lesser(own.max_bytes, asked.max_bytes, min),
            overflow=asked.overflow if "overflow" in said and own.overflow == "drop-head" else own.overflow,
            dead_letter_exchange=own.dead_letter_exchange or asked.dead_letter_exchange,
            dead_letter_key=own.dead_letter_key or asked.dead_letter_key,
            delivery_limit=asked.delivery_limit if "delivery-limit" in said else own.delivery_limit,
            max_age_ms=lesser(own.max_age_ms, asked.max_age_ms, min),
            consumer_timeout_ms=lesser(own.consumer_timeout_ms, asked.consumer_timeout_ms, min),
            retry_type=asked.retry_type if own.retry_type == RETRY_DISABLED else own.retry_type,
            retry_min_ms=asked.retry_min_ms if own.retry_min_ms is None else own.retry_min_ms,
            retry_max_ms=asked.retry_max_ms if own.retry_max_ms is None else own.retry_max_ms,
            takes_ids_once=own.takes_ids_once or (asked.takes_ids_once and own.kind != STREAM),
        )

    def apply_to_exchanges(self) -> None:
        for exchange in self._exchanges:
            self._apply_to(exchange)
        self._exchanges.changed()

    def _apply_to(self, exchange: Exchange) -> None:
        policy = self._find(exchange.namespace, exchange.name, ("all", "exchanges"))
        alternate = None if policy is None else policy.definition.get(_ALTERNATE)
        exchange.policy_alternate = alternate if isinstance(alternate, str) else None

    def _find(self, namespace: str, name: str, kinds: tuple[str, ...]) -> Policy | None:
        found = [
            policy
            for policy, pattern in self._policies.values()
            if policy.namespace == namespace and policy.apply_to in kinds and pattern.search(name)
        ]
        return max(found, key=lambda policy: (policy.priority, policy.name), default=None)

    def _policy_changed(self, key: str, kept: Kept | None) -> None:
        self._take(key, kept)
        self.apply_to_exchanges()
        self.changed()

    def _take(self, key: str, kept: Kept | None) -> None:
        if kept is None:
            self._policies.pop(key, None)
        else:
            policy = msgspec.convert(kept.value, Policy)
            self._policies[key] = policy, re.compile(policy.pattern)


def _arguments(policy: Policy) -> QueueSettings:
    """What a queue with these arguments would have, of whichever kind has them."""
    said = {_OF_QUEUES[key]: value for key, value in policy.definition.items() if key in _OF_QUEUES}
    kind = "classic"
    if "x-max-age" in said:
        kind = "stream"
    elif _OF_QUORUM & said.keys():
        kind = "quorum"
    limits = read_settings(policy.name, policy.namespace, {**said, "x-queue-type": kind})
    return limits if "x-delivery-limit" in said else limits._replace(delivery_limit=None)
