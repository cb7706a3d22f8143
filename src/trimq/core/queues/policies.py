"""Policies: settings for all queues and exchanges whose names match a pattern, of which the one with the highest
priority holds. Kept in the catalogue; what they mean is put together here, and enforced by queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as StoredDefinition
from trimq.core.queues.arguments import CLASSIC, QUORUM, STREAM, kind_of
from trimq.core.queues.policy_terms import applies_to_kind, check_policy_definition, merge_arguments
from trimq.core.routing.exchanges import Exchange, Exchanges
from trimq.errors import InvalidSetting
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.storage.group_commit.passes import Ticket

_KIND = "policy"

_ALTERNATE = "alternate-exchange"
_KINDS = {CLASSIC: "classic_queues", QUORUM: "quorum_queues", STREAM: "streams"}
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
        for key, stored in catalogue.all(_KIND):
            self._take(key, stored)
        catalogue.watch(_KIND, self._policy_changed)
        exchanges.on_added = self._apply_to

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
        alternate = policy.definition.get(_ALTERNATE, "")
        if not isinstance(alternate, str):
            raise InvalidSetting(_ALTERNATE, f"{alternate!r} is not what it can be")
        check_policy_definition(policy.name, policy.namespace, _of_queues(policy))

    # -- what holds

    def apply(self, namespace: str, name: str, own: FieldTable) -> FieldTable:
        """What a queue with these arguments has, as the arguments that say so."""
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
        """`kind`: of the queue; None: it is for an exchange."""
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
            self._policies[key] = policy, re.compile(policy.pattern)


def _of_queues(policy: Policy) -> dict[str, Any]:
    return {term: value for term, value in policy.definition.items() if term != _ALTERNATE}
