"""RecallMessage: cancels a delayed message by the recall handle in the response to its send."""

from __future__ import annotations

from typing import Any

from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.grpc.clients.call import Call, refusal_status, reply_when_durable, status
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_topic
from trimq.protocols.rocketmq.grpc.handlers.route import accepted_type
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import Code, MessageType


def recall(call: Call, request: Any) -> Reply:
    check_topic(call, request.topic.name)
    call.commit_log.messages.require_write(call.caller, request.topic.name)
    topic = call.commit_log.topics.find(call.caller, request.topic.name)
    if topic is None or accepted_type(topic.definition) is not MessageType.DELAY:
        reason = f"there is no topic {request.topic.name} for delayed messages"
        raise GrpcRefusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, reason)
    unique, placed = call.services.sending.scheduler.recall(topic, request.recall_handle)

    def build(refusal: Refusal | None) -> Any:
        if refusal is not None:
            return wire.RecallMessageResponse(status=refusal_status(refusal))
        return wire.RecallMessageResponse(status=status(), message_id=unique)

    return reply_when_durable([placed.ticket], build)
