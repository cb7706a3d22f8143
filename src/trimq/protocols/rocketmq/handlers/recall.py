"""RECALL_MESSAGE (370): cancels a delayed message by the recall handle in the response to its send."""

from __future__ import annotations

from trimq.errors import Refusal, UnknownTopic
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import reply_refused, reply_when_durable
from trimq.protocols.rocketmq.wire.responses import REGION, encode_response
from trimq.wire.remoting import Command

_FIELDS = {"MSG_REGION": REGION}


def recall(context: Context, command: Command) -> Reply:
    fields = command.fields
    try:
        topic = context.commit_log.topics.get(context.caller, fields.get("topic", ""))
        context.commit_log.messages.require_write(context.caller, topic.name.name)
        unique, placed = context.services.sending.scheduler.recall(topic, fields.get("recallHandle", ""))
    except UnknownTopic as refusal:
        return reply_refused(command, RemotingRefusal(ResponseCode.TOPIC_NOT_EXIST, str(refusal)), _FIELDS)
    except Refusal as refusal:
        return reply_refused(command, refusal, _FIELDS)

    def build() -> Parts:
        return encode_response(command.opaque, ResponseCode.SUCCESS, {**_FIELDS, "msgId": unique})

    return reply_when_durable(command, placed.ticket, build)
