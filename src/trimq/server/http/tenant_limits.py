"""Limits of virtual hosts and users in JSON under /api/vhost-limits and /api/user-limits. Knows no socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.security.tenant_limits import Tenant
from trimq.model import Caller
from trimq.server.http.responses import HttpResponse, bad_request, not_allowed
from trimq.server.http.vhosts import namespace_of, vhost_of

_TENANTS = {"vhost-limits": Tenant.VHOST, "user-limits": Tenant.USER}


class TenantLimitsApi:
    def __init__(self, broker: Broker) -> None:
        self._limits = broker.tenant_limits

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        tenant = _TENANTS.get(words[1]) if len(words) in (2, 3) and words[0] == "api" else None
        if tenant is None:
            return None
        if len(words) == 2:
            return self._list(caller, tenant) if method == "GET" else not_allowed(method, "GET, HEAD")
        if method != "PATCH":
            return not_allowed(method, "PATCH")
        try:
            changes = msgspec.json.decode(body or b"{}", type=dict[str, int | None])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return bad_request("limits", error)
        name = namespace_of(words[2]) if tenant is Tenant.VHOST else words[2]
        ticket = self._limits.change(caller, tenant, name, changes)
        return HttpResponse.json(200, self._limits.all(caller, tenant).get(name, {}), ticket)

    def _list(self, caller: Caller, tenant: Tenant) -> HttpResponse:
        found = self._limits.all(caller, tenant).items()
        rows = [
            {tenant.value: vhost_of(name) if tenant is Tenant.VHOST else name, "limits": limits}
            for name, limits in found
        ]
        return HttpResponse.json(200, {"limits": rows})
