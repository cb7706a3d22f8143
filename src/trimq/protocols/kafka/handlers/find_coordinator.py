"""FindCoordinator, versions 0 to 6: returns the coordinator of a group or a transaction.

Every name has a coordinator, whether it is in use or not. From version 4 on, a request has several names.
Not served: coordinators of share groups (refused with INVALID_REQUEST).
"""

from __future__ import annotations

from trimq.core.security.resources import Action
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, group_code
from trimq.protocols.kafka.wire.connection import Request, encode_response

_GROUP, _TRANSACTION = 0, 1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(FindCoordinatorRequest)
    keys = message.coordinator_keys if request.api_version >= 4 else [message.key]
    found = [_find(context, key, message.key_type) for key in keys]
    if request.api_version >= 4:
        return Reply.now(encode_response(request, FindCoordinatorResponse(coordinators=found)))
    (only,) = found
    response = FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
    return Reply.now(encode_response(request, response))


def _find(context: Context, key: str, key_type: int) -> Coordinator:
    try:
        if key_type == _GROUP:
            context.broker.groups.require(context.caller, Action.DESCRIBE, key)
        elif key_type == _TRANSACTION:
            context.broker.transactions.require_describe(context.caller, key)
        else:
            raise KafkaRefusal(Code.INVALID_REQUEST, f"unknown coordinator type {key_type}")
        node = context.broker.cluster.coordinator(key)
        address = node.addresses.get("kafka")
        if address is None:
            raise KafkaRefusal(Code.COORDINATOR_NOT_AVAILABLE, "the address of the coordinator is not known yet")
    except Refusal as refusal:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=group_code(refusal), error_message=str(refusal))
    return Coordinator(key=key, node_id=node.id, host=address.host, port=address.port)


HANDLERS = {"FindCoordinator": handle}
