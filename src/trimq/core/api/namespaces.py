"""Verbs on namespaces (AMQP: virtual hosts), reached as `broker.namespaces`. Each checks the caller's rights, then
delegates."""

from __future__ import annotations

from trimq.core.metadata.namespaces import Namespaces
from trimq.core.security.access import BROKER, Access, Action
from trimq.core.security.tenant_limits import Tenant, TenantLimits
from trimq.errors.queues import UnknownNamespace
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class NamespaceApi:
    def __init__(self, registry: Namespaces, access: Access, limits: TenantLimits) -> None:
        self._limits = limits
        self.registry = registry
        self._access = access

    def all(self, caller: Caller) -> list[str]:
        """Namespaces in which the caller has a right."""
        found = self.registry.all()
        if self._access.allowed(caller, Action.ADMINISTER, BROKER):
            return found
        return [name for name in found if self._access.may_enter(caller.principal, name)]

    def require(self, caller: Caller, name: str) -> None:
        """Raises UnknownNamespace if there is none: only administrators learn it."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if name not in self.registry:
            raise UnknownNamespace(name, "")

    def define(self, caller: Caller, name: str) -> Ticket | None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self.registry.define(name)
        if ticket is not None:
            self._access.audit.changed(caller, "create", "vhost", name)
        return ticket

    def delete(self, caller: Caller, name: str) -> Ticket:
        """Deletes the namespace with its contents and all rights in it, and closes its connections."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self.registry.delete(name)
        for right in self._access.rights():
            if right.namespace == name:
                self._access.revoke(right.principal, name)
        self._access.topic_permissions.clear(lambda permission: permission.namespace == name)
        self._limits.forget(Tenant.VHOST, name)
        self._access.audit.changed(caller, "delete", "vhost", name)
        return ticket
