"""Verbs on limits of virtual hosts and users, reached as `broker.tenant_limits`. Limits are administered; connections
and channels are counted by the front-end that opens them."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.metadata.namespaces import Namespaces
from trimq.core.security.access import BROKER, Access, Action
from trimq.core.security.tenant_limits import Tenant, TenantLimits
from trimq.errors import UnknownUser
from trimq.errors.queues import UnknownNamespace
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class TenantLimitApi:
    def __init__(self, limits: TenantLimits, namespaces: Namespaces, access: Access) -> None:
        self._limits = limits
        self._namespaces = namespaces
        self._access = access
        self.open_connection = limits.open_connection
        self.close_connection = limits.close_connection
        self.open_channel = limits.open_channel
        self.close_channel = limits.close_channel

    def all(self, caller: Caller, tenant: Tenant) -> dict[str, dict[str, int]]:
        """Returns the limits of all virtual hosts or users that have any, by name."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._limits.all(tenant)

    def of_vhost(self, namespace: str) -> dict[str, int]:
        """Returns the limits of a namespace that the caller has listed."""
        return self._limits.of_tenant(Tenant.VHOST, namespace)

    def change(self, caller: Caller, tenant: Tenant, name: str, changes: Mapping[str, int | None]) -> Ticket | None:
        """Sets limits, and removes those that are None. They hold for what is opened from now on."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if tenant is Tenant.VHOST and name not in self._namespaces:
            raise UnknownNamespace(name, "")
        if tenant is Tenant.USER and not self._access.is_user(name):
            raise UnknownUser(name)
        ticket = self._limits.change(tenant, name, changes)
        if ticket is not None:
            self._access.audit.changed(caller, "define", f"{tenant.name.lower()}-limit", name, limits=dict(changes))
        return ticket
