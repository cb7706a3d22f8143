"""Users, virtual hosts and permissions in JSON under /api/. Calls the broker's API; knows no socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.security.access import Right, User
from trimq.errors import Refusal
from trimq.model import Caller
from trimq.server.http.responses import JSON, DeferredResponse, HttpResponse, bad_request, not_allowed, refusal_response
from trimq.server.http.vhosts import namespace_of, vhost_of
from trimq.storage.group_commit.passes import Ticket

ADMINISTRATOR = "administrator"
"""Tag of administrators."""

GUEST_IS_KEPT = (
    "this is the first user: from now on every client must log in. The user guest (password guest) can still log in "
    "from this machine and may do everything; delete it if nobody needs it"
)


class UserBody(msgspec.Struct, forbid_unknown_fields=True):
    """Fields that are left out stay as they are; a new user needs a password."""

    password: str | None = None
    administrator: bool | None = None
    tags: list[str] | None = None
    """Replace the tags of the user; `administrator` among them means the same as the field."""
    rocketmq_secret: str | None = None
    """Secret key with which the user's RocketMQ clients sign requests; an empty one removes it."""


class Permission(msgspec.Struct, forbid_unknown_fields=True):
    """Regular expressions that are searched in names; an empty one allows nothing."""

    configure: str = ""
    write: str = ""
    read: str = ""


class UsersApi:
    def __init__(self, broker: Broker) -> None:
        self._users = broker.users
        self._broker = broker

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        match words:
            case ["api", "users"]:
                return self._list(caller) if method == "GET" else not_allowed(method, "GET, HEAD")
            case ["api", "users", name]:
                return self._user(caller, method, name, body)
            case ["api", "permissions"]:
                return self._list_permissions(caller) if method == "GET" else not_allowed(method, "GET, HEAD")
            case ["api", "permissions", name]:
                return self._permission(caller, method, name, query.get("vhost", "/"), body)
            case ["api", "vhosts"]:
                limits = self._broker.tenant_limits.of_vhost
                names = [
                    {"name": vhost_of(name), "limits": limits(name)} for name in self._broker.namespaces.all(caller)
                ]
                return (
                    HttpResponse.json(200, {"vhosts": names}) if method == "GET" else not_allowed(method, "GET, HEAD")
                )
            case ["api", "vhosts", name]:
                return self._vhost(caller, method, name)
        return None

    # -- users

    def _list(self, caller: Caller) -> HttpResponse:
        signing = self._users.with_secrets(caller)
        users = [{**_user(user), "rocketmq_secret": user.name in signing} for user in self._users.all(caller)]
        return HttpResponse.json(200, {"users": users})

    def _user(self, caller: Caller, method: str, name: str, body: bytes) -> HttpResponse | DeferredResponse:
        if method == "PUT":
            try:
                asked = msgspec.json.decode(body or b"{}", type=UserBody)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return bad_request("user", error)
            return DeferredResponse(lambda done: self._define(caller, name, asked, done))
        if method == "DELETE":
            return HttpResponse(204, b"", JSON, self._users.remove(caller, name))
        return not_allowed(method, "PUT, DELETE")

    def _define(self, caller: Caller, name: str, asked: UserBody, done: Callable[[HttpResponse], None]) -> None:
        keeps_guest = self._users.is_first_beside_guest(name)

        def defined(outcome: Ticket | Refusal) -> None:
            if isinstance(outcome, Refusal):
                done(refusal_response(outcome))
            elif keeps_guest:
                done(HttpResponse.json(200, {"message": GUEST_IS_KEPT}, outcome))
            else:
                done(HttpResponse(204, b"", JSON, outcome))

        try:
            is_administrator, tags = asked.administrator, asked.tags
            if tags is not None:
                is_administrator = ADMINISTRATOR in tags or bool(is_administrator)
                tags = [tag for tag in tags if tag != ADMINISTRATOR]
            self._users.define(
                caller, name, asked.password, is_administrator, defined, secret=asked.rocketmq_secret, tags=tags
            )
        except Refusal as refusal:
            done(refusal_response(refusal))

    # -- permissions

    def _list_permissions(self, caller: Caller) -> HttpResponse:
        return HttpResponse.json(200, {"permissions": [_permission(right) for right in self._users.rights(caller)]})

    def _permission(self, caller: Caller, method: str, name: str, vhost: str, body: bytes) -> HttpResponse:
        namespace = namespace_of(vhost)
        if method == "PUT":
            try:
                asked = msgspec.json.decode(body or b"{}", type=Permission)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return bad_request("permission", error)
            self._broker.namespaces.require(caller, namespace)
            right = Right(name, namespace, asked.configure, asked.write, asked.read)
            return HttpResponse(204, b"", JSON, self._users.grant(caller, right))
        if method == "DELETE":
            return HttpResponse(204, b"", JSON, self._users.revoke(caller, name, namespace))
        return not_allowed(method, "PUT, DELETE")

    # -- virtual hosts

    def _vhost(self, caller: Caller, method: str, name: str) -> HttpResponse:
        if method == "PUT":
            return HttpResponse(204, b"", JSON, self._broker.namespaces.define(caller, namespace_of(name)))
        if method == "DELETE":
            return HttpResponse(204, b"", JSON, self._broker.namespaces.delete(caller, namespace_of(name)))
        return not_allowed(method, "PUT, DELETE")


def _user(user: User) -> dict[str, Any]:
    tags = [ADMINISTRATOR, *user.tags] if user.is_administrator else list(user.tags)
    return {"name": user.name, "administrator": user.is_administrator, "tags": tags}


def _permission(right: Right) -> dict[str, Any]:
    return {
        "user": right.principal,
        "vhost": vhost_of(right.namespace),
        "configure": right.configure,
        "write": right.write,
        "read": right.read,
    }
