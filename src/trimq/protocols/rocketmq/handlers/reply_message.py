"""SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325): reply to a request message.

Stores the reply in the reply topic, and pushes it to the requesting client over its producer connection
(PUSH_REPLY_MESSAGE_TO_CLIENT, 326). Responds when the reply is durable and the client has accepted it, refused it, or
not responded for 10 s."""

from __future__ import annotations

from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import TAGS, read_properties, tags_code, write_properties
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.clients.requests_to_clients import OneShotCallback
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.send import add_broker_properties, encode_properties, find_stream, make_draft
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, RequestCode, ResponseCode
from trimq.protocols.rocketmq.wire.headers import SendHeader, SendV2Header
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts, reply_refused
from trimq.protocols.rocketmq.wire.responses import SENT_FIELDS, encode_response, encode_send_response
from trimq.wire.remoting import Command

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
CLIENT_TIMEOUT_MS = 10_000


def send_reply(context: Context, command: Command) -> Reply:
    header = command.read(SendHeader) if command.code == RequestCode.SEND_REPLY_MESSAGE else command.read(SendV2Header)
    try:
        return _send_reply(context, command, header)
    except Refusal as refusal:
        context.services.counts.refused_write(type(refusal).__name__)
        return reply_refused(command, refusal, SENT_FIELDS)


def _send_reply(context: Context, command: Command, header: SendHeader) -> Reply:
    topic, stream = find_stream(context, header)
    if not command.body:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
    properties = add_broker_properties(context, read_properties(header.properties))
    draft = make_draft(context, header, topic, stream, command.body, header.flag, encode_properties(properties))
    store_host = context.services.identity.store_host
    placed = context.commit_log.messages.append(
        context.caller, topic, stream, draft, tags_code(properties.get(TAGS, "")), store_host
    )
    queue_id, queue_offset = stream.id.number, placed.queue_offset
    id = offset_message_id(store_host, placed.position)

    def build(failure: str) -> Parts:
        if placed.ticket.refusal is not None:
            return refused_parts(command, placed.ticket.refusal, SENT_FIELDS)
        if not failure:
            return encode_send_response(command.opaque, id, queue_id, queue_offset, "")
        kept = {**SENT_FIELDS, "msgId": id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
        return encode_response(command.opaque, ResponseCode.SYSTEM_ERROR, kept, failure)

    waiting: OneShotCallback[str] = OneShotCallback(
        lambda failure: reply.resolve_when_durable(placed.ticket.number, lambda: build(failure))
    )
    reply = DeferredReply(
        UNORDERED, on_abandon=waiting.end, on_resolve_now=lambda: waiting.invoke("the broker is stopping")
    )
    _push(context, header, command.body, {**properties}, queue_id, waiting)
    return reply


def _push(
    context: Context,
    header: SendHeader,
    body: bytes,
    properties: dict[str, str],
    queue_id: int,
    waiting: OneShotCallback[str],
) -> None:
    """Pushes the reply and calls `waiting` with the reason for a failure, empty if the client accepted it."""
    asker = properties.get(REPLY_TO_CLIENT)
    client = None if asker is None else context.services.clients.producer(asker)
    if asker is None or client is None:
        waiting.invoke(f"push reply message fail, channel of <{str(asker)[:200]}> not found.")
        return

    def taken(encode_response: Command | None) -> None:
        is_taken = encode_response is not None and encode_response.code == ResponseCode.SUCCESS
        waiting.invoke("" if is_taken else f"push reply message to {asker[:200]} fail.")

    fields = _fields(context, header, properties, queue_id)
    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    context.services.client_requests.send_request(client.outlet, code, fields, body, CLIENT_TIMEOUT_MS, taken)


def _fields(context: Context, header: SendHeader, properties: dict[str, str], queue_id: int) -> dict[str, str]:
    now_ms = context.services.clock.message.now_ms()
    del properties["CLUSTER"]
    properties["PUSH_REPLY_TIME"] = str(now_ms)
    return {
        "bornHost": context.caller.address,
        "bornTimestamp": str(header.bornTimestamp),
        "defaultTopic": header.defaultTopic,
        "defaultTopicQueueNums": str(header.defaultTopicQueueNums),
        "flag": str(header.flag),
        "producerGroup": header.producerGroup,
        "properties": write_properties(properties).decode(),
        "queueId": str(queue_id),
        "reconsumeTimes": str(header.reconsumeTimes),
        "storeHost": context.services.identity.address,
        "storeTimestamp": str(now_ms),
        "sysFlag": str(header.sysFlag),
        "topic": header.topic,
        "unitMode": "false",
    }
