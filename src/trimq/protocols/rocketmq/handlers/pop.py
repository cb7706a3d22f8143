"""POP_MESSAGE (200050), PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO (200055).

Delivers messages of any queue of a topic to the first member of a group that asks, at once or by long poll for
`pollTime`. Messages of the group's retry topic are delivered as messages of the original topic, with the receipt in
their property POP_CK.
Not served: lite topics (200070 to 200079)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trimq.core.commit_log.topics import READABLE, CommitLogTopic
from trimq.core.pop.receipts import PoppedMessage, PopRequest, PopResult
from trimq.errors import Refusal, UnknownTopic
from trimq.formats.rocketmq_unit.copies import copied_properties
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.retries import OPTIONAL_IN_RETRY, RECEIPT, can_be_retried
from trimq.formats.rocketmq_unit.unit import UnitDraft, encode_unit
from trimq.model import Buffer
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.long_poll import WaitingRequest, Watch
from trimq.protocols.rocketmq.clients.subscriptions import read_interest
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.forbidden_topics import refuse_forbidden
from trimq.protocols.rocketmq.handlers.groups import LEGAL_IN_GROUPS
from trimq.protocols.rocketmq.waiting.pop_requests import PollKey, PopOperation
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.receipt_text import (
    POP_ORDER_REVIVE_QUEUE,
    first_offsets,
    write_first_offsets,
    write_offsets,
    write_order_counts,
    write_receipt,
)
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts, reply, reply_refused
from trimq.protocols.rocketmq.wire.responses import encode_response_parts
from trimq.wire.remoting import Command

_MAX_MESSAGES = 32
_FROM_END = 1
_ANY_QUEUE = -1

_EMPTY_FIELDS = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
_NO_POLLS = {"pollingNum": "0"}
_NO_MESSAGE_FIELDS = {"hasMsg": "false", "pollingFull": "false"}


class _Pop(msgspec.Struct):
    consumerGroup: str
    topic: str
    queueId: Int32
    maxMsgNums: Int32
    invisibleTime: Int64
    pollTime: Int64
    initMode: Int32 = 0
    exp: str | None = None
    expType: str | None = None
    order: bool = False
    attemptId: str | None = None


class _Peek(msgspec.Struct):
    consumerGroup: str
    topic: str
    queueId: Int32
    maxMsgNums: Int32


class _Notification(msgspec.Struct):
    consumerGroup: str
    topic: str
    queueId: Int32
    pollTime: Int64 = 0


class _PollingInfo(msgspec.Struct):
    consumerGroup: str
    topic: str
    queueId: Int32


def pop(context: Context, command: Command) -> Reply:
    header = command.read(_Pop)
    try:
        return _pop_operation(context, command, header).take(header.pollTime)
    except Refusal as refusal:
        return reply_refused(command, refusal, _EMPTY_FIELDS)


def _pop_operation(context: Context, command: Command, header: _Pop) -> PopOperation:
    check_count(header.maxMsgNums)
    check_invisible(context, header.invisibleTime)
    topic = find_topic(context, header.consumerGroup, header.topic, header.queueId)
    pop_request = PopRequest(
        queues_to_read(context, topic, header.queueId),
        max(header.maxMsgNums, 0),
        header.invisibleTime,
        read_interest(header.exp, header.expType, context.filter_limits),
        header.initMode == _FROM_END,
        header.order,
        header.attemptId or "",
    )

    def build(received: PopResult | Refusal) -> Parts:
        return _answer(context, command, header, received)

    return PopOperation(
        context.services.consuming.pop, context.caller, header.consumerGroup, topic, pop_request, header.queueId, build
    )


def check_count(count: int) -> None:
    if count > _MAX_MESSAGES:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"pop message's num is greater than {_MAX_MESSAGES}")


def check_invisible(context: Context, invisible_ms: int) -> None:
    limit_ms = context.services.settings.pop_invisible_limit_ms
    if not 0 <= invisible_ms <= limit_ms:
        raise RemotingRefusal(
            ResponseCode.INVALID_PARAMETER, f"invisibleTime {invisible_ms} is not between 0 and {limit_ms}"
        )


def find_topic(context: Context, group: str, name: str, queue_id: int = _ANY_QUEUE) -> CommitLogTopic:
    """Returns the topic; refuses a queue that it lacks, and then a group that may not read it. Creates an unknown
    group."""
    try:
        topic = context.commit_log.topics.get(context.caller, name)
    except UnknownTopic:
        if context.foreign_topic(name) is not None:
            reason = f"{name} is a topic of another protocol: POP consumers receive only from topics of RocketMQ"
            raise RemotingRefusal(ResponseCode.NO_PERMISSION, reason) from None
        raise RemotingRefusal(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name[:200]}] not exist, apply first please!"
        ) from None
    if not topic.definition.permissions & READABLE:
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
    count = topic.definition.read_streams
    if queue_id != _ANY_QUEUE and not 0 <= queue_id < count:
        reason = f"queueId[{queue_id}] is illegal, topic:[{name}] has {count} to read"
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, reason)
    if not group or not LEGAL_IN_GROUPS.issuperset(group):
        raise RemotingRefusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group[:200]}] does not exist"
        )
    known = context.get_or_create_group(group)
    if not known.may_consume:
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
    refuse_forbidden(known, name)
    return topic


def queues_to_read(context: Context, topic: CommitLogTopic, queue_id: int) -> Sequence[int]:
    """Returns the queues to read. For any queue, starts with a random one, so that no queue starves."""
    if queue_id != _ANY_QUEUE:
        return [queue_id]
    count = topic.definition.read_streams
    first = context.services.rng.randrange(max(count, 1))
    return [*range(first, count), *range(first)]


def _answer(context: Context, command: Command, header: _Pop, received: PopResult | Refusal) -> Parts:
    if isinstance(received, Refusal):
        return refused_parts(command, received, _EMPTY_FIELDS)
    messages = [popped for popped in received.messages if _can_be_shown(popped)]
    begins = first_offsets(messages)
    now_ms = messages[0].receipt.pop_time_ms if messages else context.services.clock.message.now_ms()
    fields = {
        "popTime": str(now_ms),
        "invisibleTime": str(header.invisibleTime),
        "reviveQid": str(POP_ORDER_REVIVE_QUEUE if header.order else 0),
        "restNum": str(received.rest if messages else 0),
        "startOffsetInfo": write_first_offsets(begins),
        "msgOffsetInfo": write_offsets(messages),
    }
    if header.order:
        fields["orderCountInfo"] = write_order_counts(messages)
    if not messages:
        return encode_response_parts(command.opaque, ResponseCode.POLLING_TIMEOUT, fields, "NO_MESSAGE_IN_QUEUE")
    broker = context.services.identity.broker_name
    units = [
        _as_topic_message(popped, header, broker, begins[True, popped.receipt.number])
        if popped.receipt.is_retry
        else popped.data
        for popped in messages
    ]
    return encode_response_parts(command.opaque, ResponseCode.SUCCESS, fields, "FOUND", units)


def _can_be_shown(popped: PoppedMessage) -> bool:
    """Returns False for a message of the retry topic without room for its receipt. It stays in flight, and is
    dead-lettered when its invisible time is over."""
    return not popped.receipt.is_retry or can_be_retried(popped.unit())


def _as_topic_message(popped: PoppedMessage, header: _Pop, broker: str, start: int) -> Buffer:
    """Encodes a message of the retry topic as a message of the requested topic."""
    unit = popped.unit()
    properties = read_properties(unit.properties)
    properties[RECEIPT] = write_receipt(popped.receipt, header.invisibleTime, broker, header.order, start)
    draft = UnitDraft(
        header.topic.encode(),
        unit.queue_id,
        unit.body,
        copied_properties(properties, OPTIONAL_IN_RETRY),
        unit.flag,
        unit.sys_flag,
        unit.born_ms,
        unit.born_host,
        unit.reconsume_times,
        unit.prepared_position,
    )
    return encode_unit(draft, unit.queue_offset, unit.position, unit.store_ms, unit.store_host)


# -- peek and notification


def peek(context: Context, command: Command) -> Reply:
    header = command.read(_Peek)
    try:
        check_count(header.maxMsgNums)
        topic = find_topic(context, header.consumerGroup, header.topic, header.queueId)
        numbers = queues_to_read(context, topic, header.queueId)
        found = context.commit_log.pop_service.peek(
            context.caller, header.consumerGroup, topic, numbers, header.maxMsgNums
        )
    except Refusal as refusal:
        return reply_refused(command, refusal, _EMPTY_FIELDS)
    now_ms = context.services.clock.message.now_ms()
    # Peeked messages stay in the queue, so they count as remaining.
    fields = {**_EMPTY_FIELDS, "popTime": str(now_ms), "restNum": str(found.rest + len(found.messages))}
    if not found.messages:
        return reply(command, ResponseCode.PULL_NOT_FOUND, fields, "NO_MESSAGE_IN_QUEUE")
    units = [popped.data for popped in found.messages]
    return Reply.now(encode_response_parts(command.opaque, ResponseCode.SUCCESS, fields, "FOUND", units), UNORDERED)


def notify(context: Context, command: Command) -> Reply:
    """Responds whether there is a message, at once or when one arrives within `pollTime`."""
    header = command.read(_Notification)
    pop_service, caller, group = context.commit_log.pop_service, context.caller, header.consumerGroup
    try:
        topic = find_topic(context, group, header.topic, header.queueId)
        numbers = queues_to_read(context, topic, header.queueId)
        has_any = pop_service.has_any(caller, group, topic, numbers)
    except Refusal as refusal:
        return reply_refused(command, refusal, _NO_MESSAGE_FIELDS)
    if has_any or header.pollTime <= 0:
        return Reply.now(_notification(command, has_any), UNORDERED)

    key = header.topic, group, header.queueId
    request = _WaitingNotification(context, command, group, topic, numbers, key)
    return context.services.consuming.pop.hold(request, key, header.pollTime)


class _WaitingNotification(WaitingRequest):
    """Waits for a message that the group may take."""

    def __init__(
        self,
        context: Context,
        command: Command,
        group: str,
        topic: CommitLogTopic,
        numbers: Sequence[int],
        key: PollKey,
    ) -> None:
        self._context = context
        self._command = command
        self._group = group
        self._topic = topic
        self._numbers = numbers
        self._key = key

    def watch(self, wake: Callable[[], None]) -> Watch:
        return self._context.commit_log.pop_service.watch(self._group, self._topic, self._numbers, wake)

    def attempt(self) -> Reply | None:
        context, command = self._context, self._command
        pop_service = context.commit_log.pop_service
        try:
            has_any = pop_service.has_any(context.caller, self._group, self._topic, self._numbers)
        except Refusal as refusal:
            return Reply.now(refused_parts(command, refusal, _NO_MESSAGE_FIELDS), UNORDERED)
        return Reply.now(_notification(command, True), UNORDERED) if has_any else None

    def answer_now(self) -> Reply:
        return Reply.now(_notification(self._command, False), UNORDERED)

    def reject(self) -> Reply:
        return Reply.now(_notification(self._command, False, is_full=True), UNORDERED)

    def ended(self) -> None:
        self._context.services.consuming.pop.poll_counts.end(self._key)


def _notification(command: Command, has_any: bool, is_full: bool = False) -> Parts:
    fields = {"hasMsg": "true" if has_any else "false", "pollingFull": "true" if is_full else "false"}
    return encode_response_parts(command.opaque, ResponseCode.SUCCESS, fields)


def polling_info(context: Context, command: Command) -> Reply:
    header = command.read(_PollingInfo)
    context.commit_log.groups.require_describe(context.caller, header.consumerGroup)
    try:
        find_topic(context, header.consumerGroup, header.topic, header.queueId)
    except Refusal as refusal:
        return reply_refused(command, refusal, _NO_POLLS)
    count = context.services.consuming.pop.poll_counts.count((header.topic, header.consumerGroup, header.queueId))
    return reply(command, fields={"pollingNum": str(count)})
