"""ListGroups, versions 0 to 5: lists all groups, or those of given states (from version 4 on) and types (from 5 on).

Names of states and types are case-insensitive; an unknown name matches nothing. A long list is made in several turns of
the event loop, so that it delays no other client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from trimq.core.groups.group import GroupDescription
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.long_lists import LongList
from trimq.protocols.kafka.messages.classic_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.names.states import state_name, type_name
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.connection import Request


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListGroupsRequest)
    groups = _wanted(context.broker.groups.iterate(context.caller), message)
    return LongList(request, groups, partial(_encode, request.api_version)).reply(context)


def _encode(version: int, groups: list[ListedGroup]) -> bytes:
    return codec.encode(ListGroupsResponse(error_code=Code.NONE, groups=groups), version)


def _wanted(groups: Iterator[GroupDescription | None], message: ListGroupsRequest) -> Iterator[ListedGroup | None]:
    """Yields None for a group that is left out."""
    for group in groups:
        if group is None:
            yield None
            continue
        state, type = state_name(group), type_name(group)
        is_wanted = _is_wanted(state, message.states_filter) and _is_wanted(type, message.types_filter)
        yield (
            ListedGroup(group_id=group.name, protocol_type=group.protocol_type, group_state=state, group_type=type)
            if is_wanted
            else None
        )


def _is_wanted(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or name.lower() in (each.lower() for each in wanted)


HANDLERS = {"ListGroups": handle}
