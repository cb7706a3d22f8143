"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053).

Acknowledges popped messages, or changes their invisible time. With a receipt that is no longer valid (its message was
acknowledged or redelivered), an acknowledgement succeeds, and a change is refused with NO_MESSAGE (208)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec

from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.pop.receipts import Receipt
from trimq.errors import Refusal, UnknownTopic
from trimq.formats.rocketmq_unit.retries import pop_retry_topic
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_list, read_object
from trimq.protocols.rocketmq.handlers.pop import check_invisible
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.receipt_text import POP_ORDER_REVIVE_QUEUE, BadReceipt, ReceiptHandle, read_receipt
from trimq.protocols.rocketmq.wire.replies import PendingWrite, done_when_durable, refused_parts, reply_refused
from trimq.protocols.rocketmq.wire.replies import reply_when_durable as when_durable
from trimq.protocols.rocketmq.wire.responses import encode_response
from trimq.wire.remoting import Command

_UNCHANGED = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
_MAX_BITS = 4096  # per entry of a batch ack; one pop returns fewer messages


class _Ack(msgspec.Struct):
    consumerGroup: str
    topic: str
    queueId: Int32
    extraInfo: str
    offset: Int64


class _Change(_Ack):
    invisibleTime: Int64


def ack(context: Context, command: Command) -> Reply:
    header = command.read(_Ack)
    topic, text = _find(context, header)
    return done_when_durable(
        command, context.commit_log.pop_service.ack(context.caller, header.consumerGroup, topic, text.receipt)
    )


def change_invisible(context: Context, command: Command) -> Reply:
    header = command.read(_Change)
    try:
        topic, text = _find(context, header)
        check_invisible(context, header.invisibleTime)
        receipt, ticket = context.commit_log.pop_service.change_invisible(
            context.caller, header.consumerGroup, topic, text.receipt, header.invisibleTime
        )
    except Refusal as refusal:
        return reply_refused(command, refusal, _UNCHANGED)
    fields = {
        "popTime": str(receipt.pop_time_ms),
        "invisibleTime": str(header.invisibleTime),
        "reviveQid": str(POP_ORDER_REVIVE_QUEUE if text.is_ordered else 0),
    }

    def build() -> Parts:
        if ticket.refusal is not None:
            return refused_parts(command, ticket.refusal, _UNCHANGED)
        return encode_response(command.opaque, ResponseCode.SUCCESS, fields)

    return when_durable(command, ticket, build)


def _find(context: Context, header: _Ack) -> tuple[CommitLogTopic, ReceiptHandle]:
    """Returns the topic and the receipt. Queue id and offset of the header replace those in the receipt."""
    topic = _topic(context, header.consumerGroup, header.topic)
    _check_queue(topic, header.queueId)
    try:
        text = read_receipt(header.extraInfo)
    except BadReceipt as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    text = text._replace(receipt=text.receipt._replace(number=header.queueId, offset=header.offset))
    _check_place(topic, text.receipt)
    return topic, text


def _topic(context: Context, group: str, name: str) -> CommitLogTopic:
    """Returns the original topic. For a redelivered message clients send the name of the group's retry topic."""
    name = name.removeprefix(pop_retry_topic(group, ""))
    try:
        return context.commit_log.topics.get(context.caller, name)
    except UnknownTopic:
        raise RemotingRefusal(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name[:200]}] not exist, apply first please!"
        ) from None


def _check_queue(topic: CommitLogTopic, number: int) -> None:
    count = topic.definition.read_streams
    if not 0 <= number < count:
        reason = f"queueId[{number}] is illegal, topic:[{topic.name.name}] has {count} to read"
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, reason)


def _check_place(topic: CommitLogTopic, receipt: Receipt) -> None:
    _check_queue(topic, receipt.number)
    if receipt.is_retry:
        return  # an offset of the retry topic; an invalid one matches no message in flight
    stream = topic.stream(receipt.number)
    if not stream.start <= receipt.offset <= stream.readable_end:
        reason = f"offset is illegal, commit:{receipt.offset}, store:{stream.start}~{stream.readable_end}"
        raise RemotingRefusal(ResponseCode.NO_MESSAGE, reason)


# -- batches


def ack_batch(context: Context, command: Command) -> Reply:
    """Each entry names messages of one queue that were popped together: start offset and a bit set."""
    last: PendingWrite | None = None
    for entry in read_list(read_object(command).get("acks")):
        group, topic = _text(entry, "c"), _text(entry, "t")
        found = _topic(context, group, topic)
        for receipt in _receipts(entry):
            last = context.commit_log.pop_service.ack(context.caller, group, found, receipt) or last
    return done_when_durable(command, last)


def _receipts(entry: dict[str, Any]) -> Iterator[Receipt]:
    is_retry = _text(entry, "r") != "0"
    start, number, pop_time_ms = (_number(entry, name) for name in ("so", "q", "pt"))
    bits = _bits(entry.get("b"))
    for index in range(bits.bit_length()):
        if bits >> index & 1:
            yield Receipt(is_retry, number, start + index, pop_time_ms)


def _bits(value: object) -> int:
    """Reads a Java BitSet: its bytes in base64 or as a list of numbers, lowest first."""
    try:
        raw = base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(_unsigned(value))
    except (TypeError, ValueError, binascii.Error):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "batch ack: b (the bit set) is missing or malformed") from None
    if len(raw) * 8 > _MAX_BITS:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"batch ack: an entry has more than {_MAX_BITS} bits")
    return int.from_bytes(raw, "little")


def _unsigned(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
        raise ValueError("not a list of numbers")
    return [each & 0xFF for each in value]


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"batch ack: missing or of the wrong type: {name}")
    return value


def _number(entry: dict[str, Any], name: str) -> int:
    value = entry.get(name)
    if not isinstance(value, int):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"batch ack: missing or of the wrong type: {name}")
    return value
