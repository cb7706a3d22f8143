"""Codes 200050 (pop), 200052 (peek), 200054 (is there anything?) and 200055 (how many wait): messages of any queue of a
topic for whoever of a group asks first.

What is there is given at once; where there is nothing, a client that allows it waits until something it wants arrives
or its time is over. What came back to the group is given as if it were of the topic itself, with its receipt among its
properties."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimq.core.commit_log.topics import READABLE, SharedTopic
from trimq.core.pop.receipts import Popped, Received, Wish
from trimq.errors import Refusal, UnknownTopic
from trimq.formats.rocketmq_unit.copies import copied_properties
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.retries import OPTIONAL_IN_RETURNED, RECEIPT, can_come_back
from trimq.formats.rocketmq_unit.unit import Draft, encode_unit
from trimq.model import Buffer
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.clients.subscriptions import read_interest
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.forbidden_topics import refuse_forbidden
from trimq.protocols.rocketmq.handlers.groups import LEGAL_IN_GROUPS
from trimq.protocols.rocketmq.waiting.pop_requests import Outcome, Poll, Taker
from trimq.protocols.rocketmq.wire.codes import Code, Failure
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.receipt_text import (
    IN_ORDER_QUEUE,
    starts,
    write_offsets,
    write_receipt,
    write_starts,
    write_tries,
)
from trimq.protocols.rocketmq.wire.remoting import Command
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts, reply, reply_refused
from trimq.protocols.rocketmq.wire.responses import answer_parts

_MOST_MESSAGES = 32
_FROM_END = 1
_ANY_QUEUE = -1

_NOTHING = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
_NOT_TOLD = {"hasMsg": "false", "pollingFull": "false"}


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
        return _taker(context, command, header).take(header.pollTime)
    except Refusal as refusal:
        return reply_refused(command, refusal, _NOTHING)


def _taker(context: Context, command: Command, header: _Pop) -> Taker:
    check_count(header.maxMsgNums)
    check_invisible(context, header.invisibleTime)
    topic = find_topic(context, header.consumerGroup, header.topic)
    wish = Wish(
        find_numbers(context, topic, header.queueId),
        max(header.maxMsgNums, 1),
        header.invisibleTime,
        read_interest(header.exp, header.expType, context.filter_limits),
        header.initMode == _FROM_END,
        header.order,
        header.attemptId or "",
    )

    def build(received: Received | Refusal) -> Parts:
        return _answer(context, command, header, received)

    return Taker(context.shared.pop, context.caller, header.consumerGroup, topic, wish, header.queueId, build)


def check_count(count: int) -> None:
    if count > _MOST_MESSAGES:
        raise Failure(Code.INVALID_PARAMETER, f"pop message's num is greater than {_MOST_MESSAGES}")


def check_invisible(context: Context, invisible_ms: int) -> None:
    limit_ms = context.shared.settings.pop_invisible_limit_ms
    if not 0 <= invisible_ms <= limit_ms:
        raise Failure(Code.INVALID_PARAMETER, f"invisibleTime {invisible_ms} is not between 0 and {limit_ms}")


def find_topic(context: Context, group: str, name: str) -> SharedTopic:
    """The topic, for a group that may read it."""
    if not group or not LEGAL_IN_GROUPS.issuperset(group):
        raise Failure(Code.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group[:200]}] does not exist")
    known = context.known_group(group)
    if not known.may_consume:
        raise Failure(Code.NO_PERMISSION, f"subscription group no permission, {group}")
    refuse_forbidden(known, name)
    try:
        topic = context.sharing.topic(context.caller, name)
    except UnknownTopic:
        raise Failure(Code.TOPIC_NOT_EXIST, f"topic[{name[:200]}] not exist, apply first please!") from None
    if not topic.definition.permissions & READABLE:
        raise Failure(Code.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
    return topic


def find_numbers(context: Context, topic: SharedTopic, queue_id: int) -> Sequence[int]:
    """The queues to look into; of all of them any comes first, so that none starves."""
    count = topic.definition.read_streams
    if queue_id == _ANY_QUEUE:
        first = context.shared.chance.randrange(max(count, 1))
        return [*range(first, count), *range(first)]
    if not 0 <= queue_id < count:
        reason = f"queueId[{queue_id}] is illegal, topic:[{topic.name.name}] has {count} to read"
        raise Failure(Code.INVALID_PARAMETER, reason)
    return [queue_id]


def _answer(context: Context, command: Command, header: _Pop, received: Received | Refusal) -> Parts:
    if isinstance(received, Refusal):
        return refused_parts(command, received, _NOTHING)
    messages = [popped for popped in received.messages if _can_be_shown(popped)]
    begins = starts(messages)
    now_ms = messages[0].receipt.taken_ms if messages else context.shared.clock.message.now_ms()
    fields = {
        "popTime": str(now_ms),
        "invisibleTime": str(header.invisibleTime),
        "reviveQid": str(IN_ORDER_QUEUE if header.order else 0),
        "restNum": str(received.rest if messages else 0),
        "startOffsetInfo": write_starts(begins),
        "msgOffsetInfo": write_offsets(messages),
    }
    if header.order:
        fields["orderCountInfo"] = write_tries(messages)
    if not messages:
        return answer_parts(command.opaque, Code.POLLING_TIMEOUT, fields, "NO_MESSAGE_IN_QUEUE")
    broker = context.shared.identity.broker_name
    units = [
        _shown(popped, header, broker, begins[True, popped.receipt.number])
        if popped.receipt.is_returned
        else popped.data
        for popped in messages
    ]
    return answer_parts(command.opaque, Code.SUCCESS, fields, "FOUND", units)


def _can_be_shown(popped: Popped) -> bool:
    """What came back and has no room for its receipt is left out; it is out all the same, and goes to the dead letters
    when its time is over."""
    return not popped.receipt.is_returned or can_come_back(popped.unit())


def _shown(popped: Popped, header: _Pop, broker: str, start: int) -> Buffer:
    """What came back, as a message of the topic that was asked for."""
    unit = popped.unit()
    properties = read_properties(unit.properties)
    properties[RECEIPT] = write_receipt(popped.receipt, header.invisibleTime, broker, header.order, start)
    draft = Draft(
        header.topic.encode(),
        unit.queue_id,
        unit.body,
        copied_properties(properties, OPTIONAL_IN_RETURNED),
        unit.flag,
        unit.sys_flag,
        unit.born_ms,
        unit.born_host,
        unit.reconsume_times,
        unit.prepared_position,
    )
    return encode_unit(draft, unit.queue_offset, unit.position, unit.store_ms, unit.store_host)


# -- looking only


def peek(context: Context, command: Command) -> Reply:
    header = command.read(_Peek)
    try:
        check_count(header.maxMsgNums)
        topic = find_topic(context, header.consumerGroup, header.topic)
        numbers = find_numbers(context, topic, header.queueId)
        count = max(header.maxMsgNums, 1)
        found = context.sharing.popping.peek(context.caller, header.consumerGroup, topic, numbers, count)
    except Refusal as refusal:
        return reply_refused(command, refusal, _NOTHING)
    now_ms = context.shared.clock.message.now_ms()
    # What is shown is still there, and counts.
    fields = {**_NOTHING, "popTime": str(now_ms), "restNum": str(found.rest + len(found.messages))}
    if not found.messages:
        return reply(command, Code.PULL_NOT_FOUND, fields, "NO_MESSAGE_IN_QUEUE")
    units = [popped.data for popped in found.messages]
    return Reply.now(answer_parts(command.opaque, Code.SUCCESS, fields, "FOUND", units), UNORDERED)


def notify(context: Context, command: Command) -> Reply:
    """Whether there is anything, or comes within the time that the client waits."""
    header = command.read(_Notification)
    popping, caller, group = context.sharing.popping, context.caller, header.consumerGroup
    try:
        topic = find_topic(context, group, header.topic)
        numbers = find_numbers(context, topic, header.queueId)
        has_any = popping.has_any(caller, group, topic, numbers)
    except Refusal as refusal:
        return reply_refused(command, refusal, _NOT_TOLD)
    if has_any or header.pollTime <= 0:
        return Reply.now(_told(command, has_any), UNORDERED)

    def attempt() -> Outcome | None:
        try:
            return Outcome(lambda: _told(command, True)) if popping.has_any(caller, group, topic, numbers) else None
        except Refusal as refusal:
            parts = refused_parts(command, refusal, _NOT_TOLD)
        return Outcome(lambda: parts)

    poll = Poll(
        context.shared.pop,
        (header.topic, group, header.queueId),
        lambda callback: popping.watch(group, topic, numbers, callback).cancel,
        attempt,
        lambda: _told(command, False),
        lambda: _told(command, False, is_full=True),
    )
    return poll.hold(header.pollTime)


def _told(command: Command, has_any: bool, is_full: bool = False) -> Parts:
    fields = {"hasMsg": "true" if has_any else "false", "pollingFull": "true" if is_full else "false"}
    return answer_parts(command.opaque, Code.SUCCESS, fields)


def polling_info(context: Context, command: Command) -> Reply:
    header = command.read(_PollingInfo)
    count = context.shared.pop.polls.count((header.topic, header.consumerGroup, header.queueId))
    return reply(command, fields={"pollingNum": str(count)})
