"""SyncGroup, versions 0 to 5: the leader sends the assignment, every member gets its part.

Followers wait for the leader. All are answered when the assignment is durable, so that it survives a restart. From
version 5 on, protocol type and name are required and must match those of the group.
"""

from __future__ import annotations

from trimq.core.groups.group import JoinResult, SyncRequest, SyncResult
from trimq.errors import Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import SyncGroupRequest, SyncGroupResponse
from trimq.protocols.kafka.names.codes import (
    Code,
    GroupTicket,
    KafkaRefusal,
    group_code,
    require_group_id,
    resolve_after,
)
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(SyncGroupRequest)
    reply = DeferredReply()

    def answer(outcome: JoinResult | SyncResult | Refusal, ticket: GroupTicket | None) -> None:
        def build(lost: Refusal | None) -> Parts:
            if lost is None and isinstance(outcome, SyncResult):
                return encode_response(request, _synced(outcome))
            refusal = lost if lost is not None else outcome
            assert isinstance(refusal, Refusal)
            return _refused(request, refusal)

        resolve_after(reply, ticket, build)

    try:
        asked = _read_request(request.api_version, message)
        require_group_id(message.group_id)
        context.broker.groups.sync(context.caller, message.group_id, asked, answer)
    except Refusal as refusal:
        return Reply.now(_refused(request, refusal))
    return reply


def _read_request(version: int, message: SyncGroupRequest) -> SyncRequest:
    if version >= 5 and (message.protocol_type is None or message.protocol_name is None):
        raise KafkaRefusal(Code.INCONSISTENT_GROUP_PROTOCOL, "protocol type and protocol name are required")
    return SyncRequest(
        member=message.member_id,
        instance=message.group_instance_id,
        generation=message.generation_id,
        protocol_type=message.protocol_type,
        strategy=message.protocol_name,
        assignments={each.member_id: each.assignment for each in message.assignments},
    )


def _synced(outcome: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=outcome.protocol_type, protocol_name=outcome.strategy, assignment=outcome.assignment
    )


def _refused(request: Request, refusal: Refusal) -> Parts:
    return encode_response(request, SyncGroupResponse(error_code=group_code(refusal)))


HANDLERS = {"SyncGroup": handle}
