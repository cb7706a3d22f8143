"""Topic permissions of users in JSON under /api/topic-permissions. Knows no socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.security.topic_permissions import TopicPermission
from trimq.model import Caller
from trimq.server.http.responses import JSON, HttpResponse, bad_request, not_allowed
from trimq.server.http.vhosts import namespace_of, vhost_of


class TopicPermissionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Regular expressions that are searched in routing keys."""

    exchange: str
    write: str = ""
    read: str = ""


class TopicPermissionsApi:
    def __init__(self, broker: Broker) -> None:
        self._users = broker.users
        self._namespaces = broker.namespaces

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        match words:
            case ["api", "topic-permissions"]:
                return self._list(caller) if method == "GET" else not_allowed(method, "GET, HEAD")
            case ["api", "topic-permissions", name]:
                return self._permission(caller, method, name, query, body)
        return None

    def _list(self, caller: Caller) -> HttpResponse:
        rows = [permission_row(permission) for permission in self._users.topic_permissions(caller)]
        return HttpResponse.json(200, {"topic_permissions": rows})

    def _permission(
        self, caller: Caller, method: str, name: str, query: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        namespace = namespace_of(query.get("vhost", "/"))
        if method == "PUT":
            try:
                asked = msgspec.json.decode(body or b"{}", type=TopicPermissionBody)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return bad_request("topic permission", error)
            self._namespaces.require(caller, namespace)
            permission = TopicPermission(name, namespace, asked.exchange, asked.write, asked.read)
            return HttpResponse(204, b"", JSON, self._users.grant_topic(caller, permission))
        if method == "DELETE":
            ticket = self._users.revoke_topic(caller, name, namespace, query.get("exchange"))
            return HttpResponse(204, b"", JSON, ticket)
        return not_allowed(method, "PUT, DELETE")


def permission_row(permission: TopicPermission) -> dict[str, Any]:
    return {
        "user": permission.principal,
        "vhost": vhost_of(permission.namespace),
        "exchange": permission.exchange,
        "write": permission.write,
        "read": permission.read,
    }
