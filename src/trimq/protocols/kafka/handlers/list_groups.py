"""ListGroups, versions 0 to 5: lists all groups, or those of given states (from version 4 on) and types (from 5 on).

Names of states and types are case-insensitive; an unknown name matches nothing. A long list is made in several turns of
the event loop, so that it delays no other client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from trimq.core.groups.group import GroupDescription
from trimq.model import Buffer
from trimq.protocols.contract import DeferredReply, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.names.states import state_name, type_name
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.connection import Request, frame_response
from trimq.protocols.kafka.wire.primitives import varint

# Groups per turn of the loop: about a millisecond. At most 126, so that the compact length of an array has one byte.
_AT_ONCE = 100


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListGroupsRequest)
    groups = _wanted(context.broker.groups.iterate(context.caller), message)
    encoder = _ListEncoder(request)
    if not encoder.add(groups):
        return Reply.now(encoder.finish())
    reply = DeferredReply(resolves_soon=True)
    timeline = context.clock.liveness

    def go_on() -> None:
        if encoder.add(groups):
            timeline.call_at(timeline.now_ms(), go_on)
        else:
            reply.resolve(encoder.finish())

    timeline.call_at(timeline.now_ms(), go_on)
    return reply


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


class _ListEncoder:
    """Encodes the response in parts: the codec encodes whole messages, of which the elements are cut out."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._count = 0
        self._parts: list[Buffer] = []
        self._is_compact = codec.is_flexible(request.api_key, request.api_version)
        empty = self._encode([])
        self._tail = empty[-1:] if self._is_compact else b""  # tagged fields
        self._begin = len(empty) - len(self._tail)
        self._head = empty[: self._begin - (1 if self._is_compact else 4)]

    def _encode(self, groups: list[ListedGroup]) -> bytes:
        return codec.encode(ListGroupsResponse(error_code=Code.NONE, groups=groups), self._request.api_version)

    def add(self, groups: Iterator[ListedGroup | None]) -> bool:
        """Encodes some of the groups. Returns False if there were no more."""
        taken = list(islice(groups, _AT_ONCE))
        if some := [group for group in taken if group is not None]:
            encoded = self._encode(some)
            self._parts.append(encoded[self._begin : len(encoded) - len(self._tail)])
            self._count += len(some)
        return len(taken) == _AT_ONCE

    def finish(self) -> list[Buffer]:
        count = self._count
        length = varint(count + 1) if self._is_compact else count.to_bytes(4, "big")
        body = b"".join((self._head, length, *self._parts, self._tail))
        return frame_response(self._request, [body], len(body), self._request.api_version)


HANDLERS = {"ListGroups": handle}
