"""Export and import of all AMQP definitions, users, permissions and access control entries as one JSON document. Calls
the broker's API; knows no socket."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.queues.policies import Policy
from trimq.core.routing.bindings import Binding
from trimq.core.routing.exchanges import Exchange
from trimq.core.security.access import Right, User
from trimq.core.security.acl_entries import AclEntry
from trimq.core.security.tenant_limits import Tenant
from trimq.core.security.topic_permissions import TopicPermission
from trimq.formats.amqp_content.field_tables import BadField, FieldTable, read_table, write_table
from trimq.model import Caller
from trimq.server.http.acl_form import AclForm, form_of
from trimq.server.http.responses import JSON, DeferredResponse, HttpResponse, bad_request, not_allowed
from trimq.server.http.slices import BodyBuilder, Rows, SliceRunner, Steps
from trimq.server.http.vhosts import namespace_of, vhost_of
from trimq.storage.group_commit.passes import JointTicket, Ticket

_OWNER = "definitions"


class ExportedUser(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    password_hash: str
    administrator: bool = False
    tags: list[str] = []


class ExportedTopicPermission(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    exchange: str
    vhost: str = "/"
    write: str = ""
    read: str = ""


class ExportedLimits(msgspec.Struct, forbid_unknown_fields=True):
    """Limits of a virtual host or of a user."""

    name: str
    limits: dict[str, int]


class ExportedPermission(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    vhost: str = "/"
    configure: str = ""
    write: str = ""
    read: str = ""


class ExportedPolicy(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    pattern: str
    definition: dict[str, Any]
    vhost: str = "/"
    priority: int = 0
    apply_to: str = "all"


class ExportedExchange(msgspec.Struct, forbid_unknown_fields=True):
    """`arguments`: an AMQP field table in base64, since JSON has fewer types; empty if there are none."""

    name: str
    type: str
    vhost: str = "/"
    auto_delete: bool = False
    internal: bool = False
    arguments: str = ""


class ExportedQueue(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    vhost: str = "/"
    auto_delete: bool = False
    arguments: str = ""


class ExportedBinding(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    destination: str
    to_queue: bool = True
    key: str = ""
    vhost: str = "/"
    arguments: str = ""


class Definitions(msgspec.Struct, forbid_unknown_fields=True):
    vhosts: list[str] = []
    users: list[ExportedUser] = []
    permissions: list[ExportedPermission] = []
    policies: list[ExportedPolicy] = []
    exchanges: list[ExportedExchange] = []
    queues: list[ExportedQueue] = []
    bindings: list[ExportedBinding] = []
    acls: list[AclForm] = []
    topic_permissions: list[ExportedTopicPermission] = []
    vhost_limits: list[ExportedLimits] = []
    user_limits: list[ExportedLimits] = []


class DefinitionsApi:
    def __init__(self, broker: Broker, slices: SliceRunner | None = None) -> None:
        self._slices = SliceRunner() if slices is None else slices
        self._users = broker.users
        self._broker = broker

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        if words != ["api", "definitions"]:
            return None
        if method == "GET":
            return self._slices.respond("GET /api/definitions", self._export(caller))
        if method != "POST":
            return not_allowed(method, "GET, HEAD, POST")
        try:
            found = msgspec.json.decode(body, type=Definitions)
            written = [kept.arguments for kept in found.exchanges]
            written += [kept.arguments for kept in found.queues]
            written += [kept.arguments for kept in found.bindings]
            tables = [_table(arguments) for arguments in written]
            entries = [form.to_entry() for form in found.acls]
        except (msgspec.DecodeError, BadField, ValueError) as error:
            return bad_request("document", error)
        return self._slices.respond("POST /api/definitions", self._import(caller, found, entries, iter(tables)))

    # -- export

    def _export(self, caller: Caller) -> Steps[HttpResponse]:
        """Makes the document of the durable definitions; transient ones do not outlive the broker. The broker may work
        meanwhile: definitions that are created during the export may be missing."""
        places = [dataclasses.replace(caller, namespace=name) for name in self._broker.namespaces.all(caller)]
        exchanges = [exchange for place in places for exchange in self._broker.exchanges.all(place)]
        durable_queues: set[tuple[str, str]] = set()
        sections: dict[str, Rows[object]] = {
            "vhosts": [vhost_of(place.namespace) for place in places],
            "users": map(_user, self._users.all(caller)),
            "permissions": map(_permission, self._users.rights(caller)),
            "acls": map(form_of, self._broker.acl_entries.all(caller)),
            "policies": [_policy(policy) for place in places for policy in self._broker.policies.all(place)],
            "exchanges": map(_exchange, exchanges),
            "queues": self._export_queues(places, durable_queues),
            "bindings": _export_bindings(exchanges, durable_queues),
            "topic_permissions": map(_topic_permission, self._users.topic_permissions(caller)),
            "vhost_limits": self._export_limits(caller, Tenant.VHOST),
            "user_limits": self._export_limits(caller, Tenant.USER),
        }
        body = BodyBuilder()
        for index, (name, rows) in enumerate(sections.items()):
            body.add(b'%s"%s":[' % (b"]," if index else b"{", name.encode()))
            yield from body.add_rows(rows)
        body.add(b"]}")
        return body.response(JSON)

    def _export_limits(self, caller: Caller, tenant: Tenant) -> Rows[object]:
        for name, limits in self._broker.tenant_limits.all(caller, tenant).items():
            yield ExportedLimits(vhost_of(name) if tenant is Tenant.VHOST else name, limits)

    def _export_queues(self, places: Sequence[Caller], durable: set[tuple[str, str]]) -> Iterator[ExportedQueue | None]:
        """Adds the exported queues to `durable`."""
        for place in places:
            for queue in self._broker.queues.iterate(place):
                if queue is None or queue.is_volatile:
                    yield None
                    continue
                durable.add((queue.namespace, queue.name))
                is_auto_delete = queue.definition.is_auto_delete
                yield ExportedQueue(queue.name, vhost_of(queue.namespace), is_auto_delete, _text(queue.arguments))

    # -- import

    def _import(
        self, caller: Caller, found: Definitions, entries: Sequence[AclEntry], tables: Iterator[FieldTable]
    ) -> Steps[HttpResponse]:
        """Creates the definitions, one per step; equal ones that exist stay as they are. A refusal keeps those
        imported before it. Users are imported last: once a user exists, an anonymous caller has no rights."""
        tickets: list[Ticket] = []
        for ticket in self._import_all(caller, found, entries, tables):
            if ticket is not None:
                tickets.append(ticket)
            yield
        return HttpResponse(204, b"", JSON, JointTicket(tickets) if tickets else None)

    def _import_all(
        self, caller: Caller, found: Definitions, entries: Sequence[AclEntry], tables: Iterator[FieldTable]
    ) -> Iterator[Ticket | None]:
        for vhost in found.vhosts:
            yield self._broker.namespaces.define(caller, namespace_of(vhost))
        for exchange in found.exchanges:
            here = self._in(caller, exchange.vhost)
            flags = (True, exchange.auto_delete, exchange.internal)
            yield self._broker.exchanges.declare(here, exchange.name, exchange.type, *flags, next(tables))
        for queue in found.queues:
            here = self._in(caller, queue.vhost)
            declared = self._broker.queues.declare_queue(
                here, queue.name, True, False, queue.auto_delete, next(tables), _OWNER
            )
            yield declared.ticket
        for kept in found.bindings:
            binding = Binding(kept.source, kept.destination, kept.to_queue, kept.key, next(tables))
            yield self._broker.exchanges.bind(self._in(caller, kept.vhost), binding, _OWNER)
        for policy in found.policies:
            here = self._in(caller, policy.vhost)
            said = (policy.pattern, policy.definition, policy.priority, policy.apply_to)
            yield self._broker.policies.define(here, Policy(here.namespace, policy.name, *said))
        for kept_limits in found.vhost_limits:
            name = namespace_of(kept_limits.name)
            yield self._broker.tenant_limits.change(caller, Tenant.VHOST, name, kept_limits.limits)
        yield from self._import_users(caller, found, entries)

    def _import_users(self, caller: Caller, found: Definitions, entries: Sequence[AclEntry]) -> list[Ticket]:
        users = [User(user.name, user.password_hash, user.administrator, tuple(user.tags)) for user in found.users]
        rights = [
            Right(right.user, namespace_of(right.vhost), right.configure, right.write, right.read)
            for right in found.permissions
        ]
        topic_permissions = [
            TopicPermission(kept.user, namespace_of(kept.vhost), kept.exchange, kept.write, kept.read)
            for kept in found.topic_permissions
        ]
        limits = {kept.name: kept.limits for kept in found.user_limits}
        return self._users.restore(caller, users, rights, entries, topic_permissions, limits)

    def _in(self, caller: Caller, vhost: str) -> Caller:
        self._broker.namespaces.require(caller, namespace_of(vhost))
        return dataclasses.replace(caller, namespace=namespace_of(vhost))


def _user(user: User) -> ExportedUser:
    return ExportedUser(user.name, user.password_hash, user.is_administrator, list(user.tags))


def _topic_permission(permission: TopicPermission) -> ExportedTopicPermission:
    vhost = vhost_of(permission.namespace)
    return ExportedTopicPermission(permission.principal, permission.exchange, vhost, permission.write, permission.read)


def _permission(right: Right) -> ExportedPermission:
    return ExportedPermission(right.principal, vhost_of(right.namespace), right.configure, right.write, right.read)


def _policy(policy: Policy) -> ExportedPolicy:
    vhost = vhost_of(policy.namespace)
    return ExportedPolicy(policy.name, policy.pattern, policy.definition, vhost, policy.priority, policy.apply_to)


def _exchange(exchange: Exchange) -> ExportedExchange | None:
    """Returns None for an exchange that is transient or that every broker has."""
    definition = exchange.definition
    if not definition.is_durable or not exchange.name or exchange.name.startswith("amq."):
        return None
    stated = (definition.is_auto_delete, definition.is_internal, _text(exchange.arguments))
    return ExportedExchange(exchange.name, definition.kind, vhost_of(exchange.namespace), *stated)


def _export_bindings(
    exchanges: Sequence[Exchange], durable_queues: set[tuple[str, str]]
) -> Iterator[ExportedBinding | None]:
    known = {(exchange.namespace, exchange.name) for exchange in exchanges}
    for exchange in exchanges:
        for binding in list(exchange.bindings.values()) if exchange.definition.is_durable else ():
            target = (exchange.namespace, binding.destination)
            if target in (durable_queues if binding.to_queue else known):
                yield ExportedBinding(*binding[:4], vhost_of(exchange.namespace), _text(binding.arguments))
            else:
                yield None


def _text(arguments: FieldTable) -> str:
    return base64.b64encode(write_table(arguments)).decode() if arguments else ""


def _table(text: str) -> FieldTable:
    if not text:
        return {}
    data = base64.b64decode(text, validate=True)
    return read_table(data, 0, len(data))[0]
