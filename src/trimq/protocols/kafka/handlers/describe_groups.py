"""DescribeGroups, versions 0 to 6: returns state and members of classic groups.

Metadata and assignments of members are included while the group is stable. A group that is unknown, or that has
broker-side assignment, is returned as Dead; from version 6 on with an error.
"""

from __future__ import annotations

from trimq.core.groups.group import GroupDescription, GroupKind, MemberDescription
from trimq.core.security.access import group_resource
from trimq.errors import Refusal, UnknownGroup
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from trimq.protocols.kafka.names.codes import Code, group_code
from trimq.protocols.kafka.names.operations import group_operations
from trimq.protocols.kafka.names.states import DEAD, state_name
from trimq.protocols.kafka.wire.connection import Request, encode_response

_ERROR_SINCE = 6


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeGroupsRequest)
    groups = []
    for name in message.groups:
        group = _describe(context, name, request.api_version)
        if message.include_authorized_operations and not group.error_code:
            resource = group_resource(name)
            group.authorized_operations = group_operations(context.broker, context.caller, resource)
        groups.append(group)
    return Reply.now(encode_response(request, DescribeGroupsResponse(groups=groups)))


def _describe(context: Context, name: str, version: int) -> DescribedGroup:
    try:
        group = context.broker.groups.describe(context.caller, name)
        if group.kind is not GroupKind.MEMBER_ASSIGNED:
            raise UnknownGroup(name)
    except UnknownGroup as refusal:
        if version < _ERROR_SINCE:
            return DescribedGroup(error_code=Code.NONE, group_id=name, group_state=DEAD)
        code, text = group_code(refusal), str(refusal)
        return DescribedGroup(error_code=code, error_message=text, group_id=name, group_state=DEAD)
    except Refusal as refusal:
        return DescribedGroup(error_code=group_code(refusal), error_message=str(refusal), group_id=name)
    return _described(group)


def _described(group: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        error_code=Code.NONE,
        group_id=group.name,
        group_state=state_name(group),
        protocol_type=group.protocol_type,
        protocol_data=group.strategy,
        members=[_member(member) for member in group.members],
    )


def _member(member: MemberDescription) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance,
        client_id=member.client_id,
        client_host=f"/{member.host}",
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )


HANDLERS = {"DescribeGroups": handle}
