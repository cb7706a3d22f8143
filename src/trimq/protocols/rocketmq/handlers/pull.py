"""PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).

Returns messages of one queue from an offset on, filtered by the subscription. With the suspend flag, an empty queue
makes the request a long poll, until a matching message arrives or `suspendTimeoutMillis` is over. Every response has
the minimum and maximum offset of the queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from trimq.core.cold_reads import ColdReadRetry
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.stream import MessageFilter, QueueReadResult
from trimq.core.commit_log.topics import READABLE
from trimq.core.crossing.units import UnitQueue
from trimq.core.security.resources import Action
from trimq.errors import AccessDenied, OtherHome, Refusal, UnknownTopic
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.long_poll import LongPoll, WaitingRequest, Watch
from trimq.protocols.rocketmq.clients.registry import BROADCASTING
from trimq.protocols.rocketmq.clients.subscriptions import read_interest
from trimq.protocols.rocketmq.handlers.context import AnyQueue, AnyTopic, Context
from trimq.protocols.rocketmq.handlers.forbidden_topics import refuse_forbidden
from trimq.protocols.rocketmq.waiting.cold_reads import reply_after_cold_read
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import PullHeader
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts
from trimq.protocols.rocketmq.wire.responses import encode_pull_response
from trimq.wire.remoting import Command

COMMITS, SUSPENDS, SUBSCRIBES = 1, 2, 4  # bits of sysFlag

_MAX_MESSAGES = 32
_MAX_BYTES = 256 * 1024
_MIN_WINDOW = 800  # messages examined per response
_LEGAL_GROUP = frozenset("%|-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def pull(context: Context, command: Command) -> Reply:
    return _pull(context, command, command.read(PullHeader), is_new=True)


def _pull(
    context: Context, command: Command, header: PullHeader, is_new: bool, retry: ColdReadRetry | None = None
) -> Reply:
    """Handles a pull. After a long poll or a cold read (`is_new` False) everything is checked again, without another
    commit or long poll. `retry`: state of the cold reads of this request."""
    group = _find_group(context, header)
    topic, stream = _find_stream(context, header)
    message_filter = _find_filter(context, header, group)
    moved = context.services.consuming.offset_resets.take(header.consumerGroup, topic.id, header.queueId)
    if moved is not None:
        found = QueueReadResult([], 0, moved)
        parts = _answer(context, command, header, stream, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", found)
        return Reply.now(parts, UNORDERED)
    if is_new and header.sysFlag & COMMITS and header.commitOffset >= 0:
        _commit(context, header, topic)
    may_wait = retry is not None and retry.may_wait
    if not may_wait and (cold := stream.find_cold(header.queueOffset)) is not None:
        retry = retry or ColdReadRetry(context.commit_log.messages.warm)
        again = partial(_pull, context, command, header, False, retry)
        return reply_after_cold_read(retry, cold, again, partial(refused_parts, command))
    clock = context.services.clock
    begun_ms = clock.liveness.now_ms()
    code, remark, found = _read_messages(stream, header, message_filter)
    took_ms = clock.liveness.now_ms() - begun_ms
    context.services.traffic.count_request(clock.message.now_ms(), bool(found.messages), took_ms)
    waits = is_new and header.sysFlag & SUSPENDS and header.suspendTimeoutMillis > 0
    if code == ResponseCode.PULL_NOT_FOUND and waits:
        request = _WaitingPull(context, command, header, stream, message_filter)
        services = context.services
        return LongPoll(request, services.clock.liveness, services.counts, header.suspendTimeoutMillis, UNORDERED).reply
    return Reply.now(_answer(context, command, header, stream, code, remark, found), UNORDERED)


def _find_group(context: Context, header: PullHeader) -> CommitLogGroup:
    if not header.consumerGroup or not _LEGAL_GROUP.issuperset(header.consumerGroup):
        reason = f"subscription group [{header.consumerGroup[:200]}] does not exist"
        raise RemotingRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, reason)
    group = context.get_or_create_group(header.consumerGroup)
    if not group.may_consume:
        reason = f"subscription group no permission, {group.name}"
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, reason, {"forbiddenType": "2"})
    return group


def _find_stream(context: Context, header: PullHeader) -> tuple[AnyTopic, AnyQueue]:
    topic: AnyTopic
    try:
        topic = context.commit_log.topics.get(context.caller, header.topic)
    except (UnknownTopic, OtherHome, AccessDenied) as refusal:
        foreign = context.foreign_topic(header.topic, Action.READ)
        if foreign is not None:
            topic = foreign
        elif isinstance(refusal, UnknownTopic):
            raise RemotingRefusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic[:200]}] not exist, apply first please!"
            ) from None
        else:
            raise
    definition = topic.definition
    if not definition.permissions & READABLE:
        reason = f"the topic[{header.topic}] pulling message is forbidden"
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, reason, {"forbiddenType": "3"})
    if not 0 <= header.queueId < definition.read_streams:
        reason = f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] has {definition.read_streams} to read"
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, reason)
    return topic, cast("AnyQueue", context.commit_log.messages.readable(context.caller, topic, header.queueId))


def _find_filter(context: Context, header: PullHeader, group: CommitLogGroup) -> MessageFilter | None:
    """Returns the filter of the request, or of the group's subscription in its last heartbeat."""
    if header.sysFlag & SUBSCRIBES:
        refuse_forbidden(group, header.topic)
        return read_interest(header.subscription, header.expressionType, context.filter_limits)
    members = context.services.clients.group(header.consumerGroup)
    if members is None:
        raise RemotingRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
    if members.message_model == BROADCASTING and not group.may_broadcast:
        reason = f"the consumer group[{group.name}] can not consume by broadcast way"
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, reason, {"forbiddenType": "4"})
    refuse_forbidden(group, header.topic)
    subscription = members.subscriptions.get(header.topic)
    if subscription is None:
        raise RemotingRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    if subscription.version < header.subVersion:
        raise RemotingRefusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    return subscription.message_filter(context.filter_limits)


def _commit(context: Context, header: PullHeader, topic: AnyTopic) -> None:
    known = context.commit_log.groups.cursor(context.caller, header.consumerGroup, topic, header.queueId)
    if known is None or known.offset != header.commitOffset:
        context.commit_log.groups.commit(
            context.caller, header.consumerGroup, topic, header.queueId, header.commitOffset
        )


def _read_messages(
    stream: AnyQueue, header: PullHeader, message_filter: MessageFilter | None
) -> tuple[ResponseCode, str, QueueReadResult]:
    """Reads the queue. Returns the response code, Apache RocketMQ's name of the status, and the messages with the next
    offset."""
    offset, start, end = header.queueOffset, stream.start, stream.readable_end
    if end == 0:
        code = ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        return code, "NO_MESSAGE_IN_QUEUE", QueueReadResult([], 0, 0)
    if offset < start and not (isinstance(stream, UnitQueue) and stream.gives_away):
        return ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", QueueReadResult([], 0, start)
    if offset == end:
        return ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", QueueReadResult([], 0, end)
    if offset > end:
        return ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", QueueReadResult([], 0, end)
    count = min(max(header.maxMsgNums, 1), _MAX_MESSAGES)
    found = stream.read(offset, count, _MAX_BYTES, max(_MIN_WINDOW, count), message_filter)
    if found.messages:
        return ResponseCode.SUCCESS, "FOUND", found
    return ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", found


def _answer(
    context: Context,
    command: Command,
    header: PullHeader,
    stream: AnyQueue,
    code: ResponseCode,
    remark: str,
    found: QueueReadResult,
) -> Parts:
    end = stream.readable_end
    if found.messages:
        now_ms, size = context.services.clock.message.now_ms(), sum(map(len, found.parts))
        context.services.traffic.count_read(header.topic, header.consumerGroup, now_ms, found.messages, size)
    return encode_pull_response(command.opaque, code, remark, found.next_offset, stream.start, end, found.parts)


class _WaitingPull(WaitingRequest):
    """Long poll for a message that matches the filter."""

    def __init__(
        self,
        context: Context,
        command: Command,
        header: PullHeader,
        stream: AnyQueue,
        message_filter: MessageFilter | None,
    ) -> None:
        self._context = context
        self._command = command
        self._header = header
        self._stream = stream
        self._interest = message_filter
        self._seen = header.queueOffset

    def watch(self, wake: Callable[[], None]) -> Watch:
        return self._stream.watch(wake)

    def ended(self) -> None:
        """Holds nothing that must be released."""

    def attempt(self) -> Reply | None:
        if self._has_match():
            return self.answer_now()
        self._seen = self._stream.readable_end
        return None

    def _has_match(self) -> bool:
        stream, message_filter = self._stream, self._interest
        try:
            return message_filter is None or stream.is_gone or stream.has_match(self._seen, message_filter)
        except Exception:
            return True  # the response fails in the same way, and logs the error

    def answer_now(self) -> Reply:
        try:
            return _pull(self._context, self._command, self._header, is_new=False)
        except Refusal as refusal:
            return Reply.now(refused_parts(self._command, refusal), UNORDERED)
