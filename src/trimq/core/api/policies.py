"""Verbs on policies of AMQP queues and exchanges, reached as `broker.policies`. All need the right to administer the
broker."""

from __future__ import annotations

from trimq.core.queues.policies import Policies, Policy
from trimq.core.security.access import BROKER, Access, Action
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class PolicyApi:
    def __init__(self, policies: Policies, access: Access) -> None:
        self._policies = policies
        self._access = access

    def all(self, caller: Caller) -> list[Policy]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._policies.all(caller.namespace)

    def define(self, caller: Caller, policy: Policy) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self._policies.define(policy)
        self._access.audit.changed(caller, "define", "policy", policy.name, policy.namespace, pattern=policy.pattern)
        return ticket

    def delete(self, caller: Caller, name: str) -> Ticket | None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self._policies.delete(caller.namespace, name)
        if ticket is not None:
            self._access.audit.changed(caller, "delete", "policy", name, caller.namespace)
        return ticket
