"""Connections of clients in JSON under /api/connections. Knows no socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trimq.core.api.broker import Broker
from trimq.model import Caller
from trimq.protocols.contract import OpenConnection
from trimq.server.http.queues import plain
from trimq.server.http.responses import JSON, HttpResponse, error_response, not_allowed
from trimq.server.http.vhosts import vhost_of

_REASON = "closed by an administrator"

# Listeners of RocketMQ have names of their own.
_PROTOCOLS = {"rocketmq_broker": "rocketmq", "rocketmq_vip": "rocketmq", "rocketmq_grpc": "rocketmq"}


class Connections(Protocol):
    """Open connections of all listeners."""

    def all(self) -> list[OpenConnection]: ...

    def close(self, name: str, reason: str) -> bool:
        """Returns False if there is no such connection."""


class ConnectionsApi:
    def __init__(self, broker: Broker, connections: Connections) -> None:
        self._broker = broker
        self._connections = connections

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        match words:
            case ["api", "connections"]:
                return self._list(caller) if method == "GET" else not_allowed(method, "GET, HEAD")
            case ["api", "connections", name]:
                if method != "DELETE":
                    return not_allowed(method, "DELETE")
                return self._close(caller, name, query.get("reason", _REASON))
        return None

    def _list(self, caller: Caller) -> HttpResponse:
        self._broker.require_administrator(caller)
        return HttpResponse.json(200, {"connections": [_connection(each) for each in self._connections.all()]})

    def _close(self, caller: Caller, name: str, reason: str) -> HttpResponse:
        self._broker.require_administrator(caller)
        if not self._connections.close(name, reason):
            return error_response(404, "UnknownConnection", f"no open connection is named {name!r}")
        self._broker.audit.changed(caller, "close", "connection", name)
        return HttpResponse(204, b"", JSON)


def _connection(connection: OpenConnection) -> dict[str, Any]:
    details = connection.details
    return {
        "name": connection.name,
        "listener": connection.listener,
        "protocol": _PROTOCOLS.get(connection.listener, connection.listener),
        "address": connection.address,
        "connected_ms": connection.connected_ms,
        "user": details.user,
        "vhost": None if details.namespace is None else vhost_of(details.namespace),
        "client_id": details.client_id,
        "channels": details.channels,
        "client_properties": {name: plain(value) for name, value in details.client_properties.items()},
    }
