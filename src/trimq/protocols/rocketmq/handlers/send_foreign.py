"""Sends to topics of other layouts, one message or a batch: translated and appended in one pass.

Not served: delayed messages, half messages, and recognizing repeated ids."""

from __future__ import annotations

from trimq.core.crossing.units import UnitTopic, foreign_position
from trimq.formats.crossing import rocketmq
from trimq.formats.crossing.rocketmq import UnitFields
from trimq.formats.rocketmq_unit.batch_body import read_batch
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import UNIQUE_KEY, read_properties
from trimq.formats.rocketmq_unit.unit import BadUnit
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import SendHeader
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts
from trimq.protocols.rocketmq.wire.responses import SENT_FIELDS, encode_send_response
from trimq.wire.remoting import Command

# A message with one of these would have to wait before it is stored in its topic.
_WAITING = ("DELAY", "TRAN_MSG", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "__STARTDELIVERTIME")


def send_foreign(context: Context, command: Command, header: SendHeader, topic: UnitTopic) -> Reply:
    count = topic.definition.write_streams
    if header.queueId >= count:
        reason = f"request queueId[{header.queueId}] is illegal, topic {header.topic} has {count} queues"
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, reason)
    number = header.queueId if header.queueId >= 0 else context.services.rng.randrange(count)
    sent = _read(context, command, header)
    for unit in sent:
        waiting = next((name for name in _WAITING if unit.properties.get(name, "0") not in ("0", "false")), None)
        if waiting is not None:
            reason = f"{header.topic} is a topic of another protocol: a message with the property {waiting} is refused"
            raise RemotingRefusal(ResponseCode.NO_PERMISSION, reason)
    messages = [rocketmq.sent_to_neutral(unit) for unit in sent]
    placed = context.services.foreign_topics.append(context.caller, topic.foreign, number, messages)
    store_host = context.services.identity.store_host
    ids = ",".join(
        offset_message_id(store_host, foreign_position(number, placed.base_offset + index))
        for index in range(len(sent))
    )
    unique = "" if header.batch else sent[0].properties.get(UNIQUE_KEY, "")
    now_ms = context.services.clock.message.now_ms()
    for unit in sent:
        context.services.traffic.count_sent(header.topic, now_ms, len(unit.body))

    def build() -> Parts:
        if (refusal := placed.refusal) is not None:
            return refused_parts(command, refusal, SENT_FIELDS)
        return encode_send_response(command.opaque, ids, number, placed.base_offset, unique)

    return Reply.when_durable(placed.number, build, UNORDERED)


def _read(context: Context, command: Command, header: SendHeader) -> list[UnitFields]:
    if not header.batch:
        properties = read_properties(header.properties)
        body = rocketmq.expanded_body(command.body, header.sysFlag, context.services.settings.message_bytes)
        return [UnitFields(body, properties, header.bornTimestamp, header.flag, header.reconsumeTimes, context.host)]
    try:
        batched = list(read_batch(command.body))
    except BadUnit as error:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from None
    if not batched:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, "the batch has no messages")
    return [
        UnitFields(body, read_properties(raw), header.bornTimestamp, flag, header.reconsumeTimes, context.host)
        for flag, body, raw in batched
    ]
