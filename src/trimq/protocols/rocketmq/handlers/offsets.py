"""QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15), SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30),
GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32).

Committed offsets of groups; first and last offset, earliest time and offset by time of a queue. Commits are ignored
while an offset reset of the group is pending. An unknown queue is treated as empty."""

from __future__ import annotations

from trimq.core.crossing.units import UnitQueue
from trimq.errors import OffsetOutOfRange, UnknownStream
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import AnyQueue, AnyTopic, Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import QueryOffsetHeader, QueueHeader, SearchOffsetHeader, UpdateOffsetHeader
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply
from trimq.wire.remoting import BadHeader, Command


def query_offset(context: Context, command: Command) -> Reply:
    header = command.read(QueryOffsetHeader)
    topic = context.readable_topic(header.topic)
    found = None
    if topic is not None:
        found = context.commit_log.groups.last_cursor(context.caller, header.consumerGroup, topic, header.queueId)
    if found is not None and found.offset >= 0:
        return reply(command, fields={"offset": str(found.offset)})
    if not header.setZeroIfNotFound:
        raise RemotingRefusal(
            ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
        )
    stream = _find(topic, header.queueId)
    if stream is None or stream.start > 0 or not stream.readable_end:
        raise RemotingRefusal(
            ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )
    return reply(command, fields={"offset": "0"})  # nothing has expired yet: a new group reads the queue from its start


def update_offset(context: Context, command: Command) -> Reply:
    try:
        header = command.read(UpdateOffsetHeader)
    except BadHeader as error:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
    if context.commit_log.groups.find(context.caller, header.consumerGroup) is None:
        raise RemotingRefusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumerGroup[:200]} not exist!"
        )
    topic = context.readable_topic(header.topic)
    if topic is None:
        raise RemotingRefusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic[:200]} not exist!")
    context.commit_log.groups.require_commit(context.caller, header.consumerGroup, topic)
    if context.services.consuming.offset_resets.is_pending(header.consumerGroup, topic.id, header.queueId):
        return reply(command, remark="Offset has been previously reset")
    ticket = context.commit_log.groups.commit(
        context.caller, header.consumerGroup, topic, header.queueId, header.commitOffset
    )
    return done_when_durable(command, ticket)


def max_offset(context: Context, command: Command) -> Reply:
    stream = _requested_queue(context, command)
    return reply(command, fields={"offset": str(stream.readable_end if stream else 0)})


def min_offset(context: Context, command: Command) -> Reply:
    stream = _requested_queue(context, command)
    return reply(command, fields={"offset": str(stream.start if stream else 0)})


def earliest_time(context: Context, command: Command) -> Reply:
    stream = _requested_queue(context, command)
    time_ms = -1
    if stream is not None and stream.start < stream.readable_end:
        time_ms = stream.first_time_ms() if isinstance(stream, UnitQueue) else stream.unit(stream.start).store_ms
    return reply(command, fields={"timestamp": str(time_ms)})


def search_offset(context: Context, command: Command) -> Reply:
    header = command.read(SearchOffsetHeader)
    stream = _find(context.readable_topic(header.topic), header.queueId)
    offset = 0 if stream is None else _search(stream, header.timestamp, header.boundaryType.upper() == "UPPER")
    return reply(command, fields={"offset": str(offset)})


def _search(stream: AnyQueue, time_ms: int, is_upper: bool) -> int:
    """Returns the first offset stored at `time_ms` or later; if `is_upper`, the last offset stored at `time_ms` or
    earlier."""
    if not is_upper:
        return stream.find_time(time_ms)
    return max(stream.find_time(time_ms + 1) - 1, stream.start)


def _requested_queue(context: Context, command: Command) -> AnyQueue | None:
    header = command.read(QueueHeader)
    return _find(context.readable_topic(header.topic), header.queueId)


def _find(topic: AnyTopic | None, number: int) -> AnyQueue | None:
    """Returns None for an unknown queue."""
    if topic is None:
        return None
    try:
        return topic.stream(number)
    except (UnknownStream, OffsetOutOfRange):
        return None
