"""AUTH_CREATE_ACL (3006), AUTH_UPDATE_ACL (3007), AUTH_DELETE_ACL (3008), AUTH_GET_ACL (3009), AUTH_LIST_ACL (3010).

Create and update replace the entries of each resource that they name, as in Apache RocketMQ; delete removes those of
one resource, or all of the subject. Permissions of RabbitMQ are shown as resources `Topic:regexp:…`, and cannot be
changed here.
Not served: policies of type Default, resources of type Any and Namespace."""

from __future__ import annotations

from typing import Any

from trimq.core.api.acl_entries import AclEntryApi
from trimq.core.security.acl_entries import AclEntry
from trimq.core.security.rights import Right
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_object
from trimq.protocols.rocketmq.state.acl_policies import (
    entries_of,
    invalid,
    is_shown,
    policies_of,
    principal_of,
    refused,
    resource_of,
    subject_of,
)
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply, reply_json
from trimq.wire.remoting import Command


def create(context: Context, command: Command) -> Reply:
    acls = _changeable(context)
    given = read_object(command)
    principal = principal_of(given.get("subject") or command.fields.get("subject", ""))
    replaced = entries_of(principal, given.get("policies"), _cluster(context))
    if not acls.is_user(context.caller, principal):
        raise refused(f"The subject of {subject_of(principal)} is not exist.")
    removed = [entry for entry in _entries(context, principal) if any(resource.covers(entry) for resource in replaced)]
    added = [entry for entries in replaced.values() for entry in entries]
    return done_when_durable(command, acls.replace(context.caller, removed, added))


update = create
"""Apache RocketMQ makes no difference either: both create what there is not, and change what there is."""


def delete(context: Context, command: Command) -> Reply:
    acls = _changeable(context)
    principal, text = principal_of(command.fields.get("subject", "")), command.fields.get("resource", "")
    resource = resource_of(text, _cluster(context)) if text.strip() else None
    if not acls.is_user(context.caller, principal):
        raise refused("The subject is not exist.")
    found = _entries(context, principal)
    if not found:
        raise refused("The acl is not exist.")
    removed = [entry for entry in found if resource is None or resource.covers(entry)]
    return done_when_durable(command, acls.replace(context.caller, removed, ()))


def get(context: Context, command: Command) -> Reply:
    acls = context.services.acl_entries
    principal = principal_of(command.fields.get("subject", ""))
    if not acls.is_user(context.caller, principal):
        raise refused("The subject is not exist.")
    shown = _policies(context, principal, acls.all(context.caller), acls.permissions(context.caller))
    return reply_json(command, {"policies": shown, "subject": subject_of(principal)}) if shown else reply(command)


def list_acls(context: Context, command: Command) -> Reply:
    acls, fields = context.services.acl_entries, command.fields
    entries, rights = acls.all(context.caller), acls.permissions(context.caller)
    found = []
    for principal in sorted({entry.principal for entry in entries} | {right.principal for right in rights}):
        if fields.get("subjectFilter", "") in subject_of(principal):
            shown = _policies(context, principal, entries, rights, fields.get("resourceFilter", ""))
            if shown:
                found.append({"policies": shown, "subject": subject_of(principal)})
    return reply_json(command, found) if found else reply(command)


def _changeable(context: Context) -> AclEntryApi:
    acls = context.services.acl_entries
    acls.require_change(context.caller)
    if not acls.are_enforced:
        raise invalid("every client may do everything while no user is defined: define a user first")
    return acls


def _entries(context: Context, principal: str) -> list[AclEntry]:
    found = context.services.acl_entries.all(context.caller)
    return [entry for entry in found if entry.principal == principal and is_shown(entry)]


def _policies(
    context: Context, principal: str, entries: list[AclEntry], rights: list[Right], wanted: str = ""
) -> list[dict[str, Any]]:
    return policies_of(
        (entry for entry in entries if entry.principal == principal),
        (right for right in rights if right.principal == principal),
        _cluster(context),
        wanted,
    )


def _cluster(context: Context) -> str:
    return context.services.identity.cluster_name
