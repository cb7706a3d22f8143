"""ListGroups, versions 0 to 5: lists all groups, or those of given states (from version 4 on) and types (from 5 on).

Names of states and types are case-insensitive; an unknown name matches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.names.states import state_name, type_name
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListGroupsRequest)
    groups = []
    for group in context.broker.groups.groups(context.caller):
        state, type = state_name(group), type_name(group)
        if _is_wanted(state, message.states_filter) and _is_wanted(type, message.types_filter):
            groups.append(
                ListedGroup(group_id=group.name, protocol_type=group.protocol_type, group_state=state, group_type=type)
            )
    return Reply.now(encode_response(request, ListGroupsResponse(error_code=Code.NONE, groups=groups)))


def _is_wanted(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or name.lower() in (each.lower() for each in wanted)


HANDLERS = {"ListGroups": handle}
