"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3: list, add and remove access control entries; changes are
answered when they are durable. A request with an element UNKNOWN (0) closes the connection.

Permissions of RabbitMQ are listed as rows whose names begin with `regexp:`, and cannot be removed here. While every
client may do everything, all three are answered with SECURITY_DISABLED, as by an Apache Kafka without an authorizer.
Not served: delegation tokens, and principals that are no users (refused).
"""

from __future__ import annotations

from collections.abc import Iterator

from trimq.errors import InvalidSetting, ProtocolError, Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from trimq.protocols.kafka.names.acls import Acl, AclFilter, entry_of, rows_of_entry, rows_of_permission
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

_UNKNOWN = 0
_NOT_ENFORCED = "No Authorizer is configured."  # Kafka's words
_OF_RABBITMQ = "the row shows a permission of RabbitMQ: change it with `trimq users grant` or `trimq users revoke`"


# -- describe


def handle_describe(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeAclsRequest)
    wanted = _filter(message)
    try:
        _require_enforced(context)
        found = _find(context, wanted)
    except Refusal as refusal:
        response = DescribeAclsResponse(error_code=code_of(refusal), error_message=str(refusal))
        return Reply.now(encode_response(request, response))
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in found:
        key = (acl.type, acl.name, acl.pattern)
        if key not in resources:
            resources[key] = DescribeAclsResource(
                resource_type=acl.type, resource_name=acl.name, pattern_type=acl.pattern
            )
        description = AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
        )
        resources[key].acls.append(description)
    response = DescribeAclsResponse(error_message="", resources=list(resources.values()))
    return Reply.now(encode_response(request, response))


def _require_enforced(context: Context) -> None:
    if not context.broker.acl_entries.are_enforced:
        raise KafkaRefusal(Code.SECURITY_DISABLED, _NOT_ENFORCED)


def _find(context: Context, wanted: AclFilter) -> list[Acl]:
    return [acl for acl in _rows(context) if wanted.matches(acl)]


def _rows(context: Context) -> Iterator[Acl]:
    for entry in sorted(context.broker.acl_entries.all(context.caller), key=str):
        yield from rows_of_entry(entry)
    for right in context.broker.acl_entries.permissions(context.caller):
        yield from rows_of_permission(right)


def _refuse_unknown(*elements: int) -> None:
    if _UNKNOWN in elements:
        raise ProtocolError("an element of the entry or filter is UNKNOWN (0)")


def _filter(message: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    _refuse_unknown(
        message.resource_type_filter, message.pattern_type_filter, message.operation, message.permission_type
    )
    return AclFilter(
        message.resource_type_filter,
        message.resource_name_filter,
        message.pattern_type_filter,
        message.principal_filter,
        message.host_filter,
        message.operation,
        message.permission_type,
    )


# -- create


def handle_create(context: Context, request: Request) -> Reply:
    message = request.decode(CreateAclsRequest)
    for asked in message.creations:
        _refuse_unknown(asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type)
    tickets = ChangeTickets()
    results = [_create(context, number, asked, tickets) for number, asked in enumerate(message.creations)]

    def answer() -> Parts:
        for number, result in enumerate(results):
            refusal = tickets.refusal(number)
            if refusal is not None:
                result.error_code, result.error_message = code_of(refusal), str(refusal)
        return encode_response(request, CreateAclsResponse(results=results))

    return Reply.when_durable(tickets.number, answer)


def _create(context: Context, number: int, asked: AclCreation, tickets: ChangeTickets) -> AclCreationResult:
    try:
        _require_enforced(context)
        context.broker.acl_entries.require_change(context.caller)
        entry = entry_of(
            asked.resource_type,
            asked.resource_name,
            asked.resource_pattern_type,
            asked.principal,
            asked.host,
            asked.operation,
            asked.permission_type,
        )
        ticket = context.broker.acl_entries.create(context.caller, entry)
    except InvalidSetting as refusal:
        return AclCreationResult(error_code=Code.INVALID_REQUEST, error_message=str(refusal))
    except Refusal as refusal:
        return AclCreationResult(error_code=code_of(refusal), error_message=str(refusal))
    if ticket is not None:
        tickets.add(number, ticket)
    return AclCreationResult(error_message="")


# -- delete


def handle_delete(context: Context, request: Request) -> Reply:
    message = request.decode(DeleteAclsRequest)
    wanted = [_filter(each) for each in message.filters]
    try:
        _require_enforced(context)
        context.broker.acl_entries.require_change(context.caller)
        # All matches are found before the first is deleted: an entry is reported by every filter that it matches.
        matches = [_find(context, each) for each in wanted]
    except Refusal as refusal:
        refused = DeleteAclsFilterResult(error_code=code_of(refusal), error_message=str(refusal))
        return Reply.now(encode_response(request, DeleteAclsResponse(filter_results=[refused] * len(message.filters))))
    tickets = ChangeTickets()
    for acl in dict.fromkeys(acl for found in matches for acl in found):
        ticket = None if acl.entry is None else context.broker.acl_entries.delete(context.caller, acl.entry)
        if ticket is not None:
            tickets.add(acl, ticket)

    def answer() -> Parts:
        results = [
            DeleteAclsFilterResult(error_message=None, matching_acls=[_deleted(acl, tickets) for acl in found])
            for found in matches
        ]
        return encode_response(request, DeleteAclsResponse(filter_results=results))

    return Reply.when_durable(tickets.number, answer)


def _deleted(acl: Acl, tickets: ChangeTickets) -> DeleteAclsMatchingAcl:
    code, reason = Code.NONE, None
    refusal = tickets.refusal(acl)
    if acl.entry is None:
        code, reason = Code.INVALID_REQUEST, _OF_RABBITMQ
    elif refusal is not None:
        code, reason = code_of(refusal), str(refusal)
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=reason,
        resource_type=acl.type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


HANDLERS = {"DescribeAcls": handle_describe, "CreateAcls": handle_create, "DeleteAcls": handle_delete}
