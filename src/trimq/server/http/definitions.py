"""Export and import of all AMQP definitions, users and permissions as one JSON document. Calls the broker's API; knows
no socket."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.queues.policies import Policy
from trimq.core.routing.bindings import Binding
from trimq.core.security.access import Right, User
from trimq.formats.amqp_content.field_tables import BadField, FieldTable, read_table, write_table
from trimq.model import Caller
from trimq.server.http.responses import JSON, HttpResponse, bad_request, not_allowed
from trimq.server.http.vhosts import namespace_of, vhost_of
from trimq.storage.group_commit.passes import Ticket

_OWNER = "definitions"


class ExportedUser(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    password_hash: str
    administrator: bool = False


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


class DefinitionsApi:
    def __init__(self, broker: Broker) -> None:
        self._users = broker.users
        self._broker = broker

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        if words != ["api", "definitions"]:
            return None
        if method == "GET":
            return HttpResponse.json(200, self._export(caller))
        if method != "POST":
            return not_allowed(method, "GET, HEAD, POST")
        try:
            found = msgspec.json.decode(body, type=Definitions)
            written = [kept.arguments for kept in found.exchanges]
            written += [kept.arguments for kept in found.queues]
            written += [kept.arguments for kept in found.bindings]
            tables = [_table(arguments) for arguments in written]
        except (msgspec.DecodeError, BadField, ValueError) as error:
            return bad_request("document", error)
        return HttpResponse(204, b"", JSON, self._import(caller, found, iter(tables)))

    # -- export

    def _export(self, caller: Caller) -> Definitions:
        """Returns the durable definitions; transient ones do not outlive the broker."""
        found = Definitions(
            vhosts=[vhost_of(name) for name in self._broker.namespaces.all(caller)],
            users=[
                ExportedUser(user.name, user.password_hash, user.is_administrator) for user in self._users.all(caller)
            ],
            permissions=[
                ExportedPermission(right.principal, vhost_of(right.namespace), right.configure, right.write, right.read)
                for right in self._users.rights(caller)
            ],
        )
        for vhost in found.vhosts:
            self._export_vhost(dataclasses.replace(caller, namespace=namespace_of(vhost)), vhost, found)
        return found

    def _export_vhost(self, caller: Caller, vhost: str, found: Definitions) -> None:
        for policy in self._broker.policies.all(caller):
            found.policies.append(
                ExportedPolicy(policy.name, policy.pattern, policy.definition, vhost, policy.priority, policy.apply_to)
            )
        durable = {queue.name for queue in self._broker.queues.queues(caller) if not queue.is_volatile}
        for queue in self._broker.queues.queues(caller):
            if queue.name in durable:
                is_auto_delete = queue.definition.is_auto_delete
                found.queues.append(ExportedQueue(queue.name, vhost, is_auto_delete, _text(queue.arguments)))
        for exchange in self._broker.exchanges.all(caller):
            definition = exchange.definition
            if not definition.is_durable:
                continue
            if exchange.name and not exchange.name.startswith("amq."):
                kept = (definition.is_auto_delete, definition.is_internal, _text(exchange.arguments))
                found.exchanges.append(ExportedExchange(exchange.name, definition.kind, vhost, *kept))
            for binding in exchange.bindings.values():
                if not binding.to_queue or binding.destination in durable:
                    found.bindings.append(ExportedBinding(*binding[:4], vhost, _text(binding.arguments)))

    # -- import

    def _import(self, caller: Caller, found: Definitions, tables: Iterator[FieldTable]) -> Ticket | None:
        """Creates the definitions; equal ones that exist stay as they are. A refusal keeps the definitions imported
        before it. Users are imported last: once a user exists, an anonymous caller has no rights."""
        tickets: list[Ticket | None] = []
        for vhost in found.vhosts:
            tickets.append(self._broker.namespaces.define(caller, namespace_of(vhost)))
        for exchange in found.exchanges:
            here = self._in(caller, exchange.vhost)
            flags = (True, exchange.auto_delete, exchange.internal)
            tickets.append(self._broker.exchanges.declare(here, exchange.name, exchange.type, *flags, next(tables)))
        for queue in found.queues:
            here = self._in(caller, queue.vhost)
            declared = self._broker.queues.declare_queue(
                here, queue.name, True, False, queue.auto_delete, next(tables), _OWNER
            )
            tickets.append(declared.ticket)
        for kept in found.bindings:
            binding = Binding(kept.source, kept.destination, kept.to_queue, kept.key, next(tables))
            tickets.append(self._broker.exchanges.bind(self._in(caller, kept.vhost), binding, _OWNER))
        for policy in found.policies:
            here = self._in(caller, policy.vhost)
            said = (policy.pattern, policy.definition, policy.priority, policy.apply_to)
            tickets.append(self._broker.policies.define(here, Policy(here.namespace, policy.name, *said)))
        tickets += self._import_users(caller, found)
        written = [ticket for ticket in tickets if ticket is not None]
        return max(written, key=lambda ticket: ticket.number, default=None)

    def _import_users(self, caller: Caller, found: Definitions) -> list[Ticket]:
        users = [User(user.name, user.password_hash, user.administrator) for user in found.users]
        rights = [
            Right(right.user, namespace_of(right.vhost), right.configure, right.write, right.read)
            for right in found.permissions
        ]
        return self._users.restore(caller, users, rights)

    def _in(self, caller: Caller, vhost: str) -> Caller:
        self._broker.namespaces.require(namespace_of(vhost))
        return dataclasses.replace(caller, namespace=namespace_of(vhost))


def _text(arguments: FieldTable) -> str:
    return base64.b64encode(write_table(arguments)).decode() if arguments else ""


def _table(text: str) -> FieldTable:
    if not text:
        return {}
    data = base64.b64decode(text, validate=True)
    return read_table(data, 0, len(data))[0]
