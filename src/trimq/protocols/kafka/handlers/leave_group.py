"""LeaveGroup, versions 0 to 5: removes members from a classic group; the others rebalance at once.

From version 3 on, a request has several members, each with its own error code. A member without id is identified by
its instance id.
"""

from __future__ import annotations

from trimq.core.groups.group import LeaveRequest
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from trimq.protocols.kafka.names.codes import Code, group_code, require_group_id
from trimq.protocols.kafka.wire.connection import Request, encode_response

_LIST_SINCE = 3


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(LeaveGroupRequest)
    leavers = [LeaveRequest(each.member_id, each.group_instance_id) for each in message.members]
    if request.api_version < _LIST_SINCE:
        leavers = [LeaveRequest(message.member_id, None)]
    try:
        require_group_id(message.group_id)
        refusals = context.broker.groups.leave(context.caller, message.group_id, leavers)
    except Refusal as refusal:
        return Reply.now(encode_response(request, LeaveGroupResponse(error_code=group_code(refusal))))
    codes = [Code.NONE if refusal is None else group_code(refusal) for refusal in refusals]
    if request.api_version < _LIST_SINCE:
        return Reply.now(encode_response(request, LeaveGroupResponse(error_code=codes[0])))
    members = [
        MemberResponse(member_id=leaver.member, group_instance_id=leaver.instance, error_code=code)
        for leaver, code in zip(leavers, codes, strict=True)
    ]
    return Reply.now(encode_response(request, LeaveGroupResponse(members=members)))


HANDLERS = {"LeaveGroup": handle}
