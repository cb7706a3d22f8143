"""Heartbeat, versions 0 to 4: keeps a member of a classic group alive; REBALANCE_IN_PROGRESS makes it rejoin."""

from __future__ import annotations

from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from trimq.protocols.kafka.names.codes import Code, group_code, require_group_id
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(HeartbeatRequest)
    code = Code.NONE
    try:
        require_group_id(message.group_id)
        context.broker.groups.heartbeat(
            context.caller, message.group_id, message.member_id, message.group_instance_id, message.generation_id
        )
    except Refusal as refusal:
        code = group_code(refusal)
    return Reply.now(encode_response(request, HeartbeatResponse(error_code=code)))


HANDLERS = {"Heartbeat": handle}
