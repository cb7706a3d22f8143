"""INVOKE_BROKER_TO_RESET_OFFSET (222), CLONE_GROUP_OFFSET (314), QUERY_CORRECTION_OFFSET (308).

Resets the committed offsets of a group, copies them from another group, or reports the slowest group per queue. Members
get the new offset with their next pull; their commits until then are ignored.
Not served: RESET_CONSUMER_CLIENT_OFFSET (220), the notification of clients; Apache RocketMQ 5.5.0 does not send it."""

from __future__ import annotations

import msgspec

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.errors import UnknownTopic
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.lenient_json import write_object_keyed
from trimq.protocols.rocketmq.wire.replies import PendingWrite, done_when_durable, reply, reply_when_durable
from trimq.protocols.rocketmq.wire.responses import encode_response
from trimq.wire.remoting import Command

_ALL = -1
_TO_THE_END = -1


class _Reset(msgspec.Struct):
    topic: str
    group: str
    timestamp: Int64
    queueId: Int32 = _ALL
    offset: Int64 | None = None


def reset(context: Context, command: Command) -> Reply:
    header = command.read(_Reset)
    topic = known_topic(context, header.topic)
    if context.commit_log.groups.find(context.caller, header.group) is None:
        reason = f"Group {header.group[:200]} does not exist"
        raise RemotingRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, reason)
    count = topic.definition.read_streams
    if header.queueId >= count or header.queueId < _ALL:
        raise RemotingRefusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId {header.queueId} is out of range; read queues of the topic: {count}",
        )
    numbers = range(count) if header.queueId == _ALL else [header.queueId]
    moved = {number: _target(header, topic, number) for number in numbers}
    ticket: PendingWrite | None = None
    for number, offset in moved.items():
        ticket = context.commit_log.groups.reset(context.caller, header.group, topic, number, offset)
        context.services.consuming.offset_resets.move(header.group, topic.id, number, offset)
    rows = [(queue_key(context, header.topic, number), offset) for number, offset in moved.items()]
    body = b'{"offsetTable":%b}' % write_object_keyed(rows)
    if ticket is None:
        return reply(command, body=body)
    return reply_when_durable(command, ticket, lambda: encode_response(command.opaque, ResponseCode.SUCCESS, body=body))


def _target(header: _Reset, topic: CommitLogTopic, number: int) -> int:
    stream = topic.stream(number)
    if header.offset is not None and header.queueId != _ALL:
        if not stream.start <= header.offset <= stream.readable_end:
            reason = f"Target offset {header.offset} not in consume queue range [{stream.start}-{stream.readable_end}]"
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)
        return header.offset
    return stream.readable_end if header.timestamp == _TO_THE_END else _at_time(stream, header.timestamp)


def _at_time(stream: MessageQueue, time_ms: int) -> int:
    return stream.find_time(time_ms) if stream.start < stream.readable_end else stream.start


def known_topic(context: Context, name: str) -> CommitLogTopic:
    try:
        return context.commit_log.topics.get(context.caller, name)
    except UnknownTopic:
        raise RemotingRefusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name[:200]}] not exist") from None


def queue_key(context: Context, topic: str, number: int) -> dict[str, object]:
    return {"brokerName": context.services.identity.broker_name, "queueId": number, "topic": topic}


# -- cloning


class _Clone(msgspec.Struct):
    srcGroup: str
    destGroup: str
    topic: str = ""
    offline: bool = False


def clone_offsets(context: Context, command: Command) -> Reply:
    """Copies the offsets of one topic, or of all topics that the source has read. Skips a topic that is unknown, or
    that the connected members of the source do not subscribe to, as Apache RocketMQ does."""
    header = command.read(_Clone)
    context.commit_log.groups.require_describe(context.caller, header.srcGroup)
    source = context.services.clients.group(header.srcGroup)
    subscribed = None if source is None or header.offline else source.subscriptions
    if header.topic:
        named = context.commit_log.topics.find(context.caller, header.topic)
        wanted = [] if named is None else [named]
    else:
        wanted = context.commit_log.topics.all(context.caller)
    topics = {topic.id: topic for topic in wanted if not subscribed or topic.name.name in subscribed}
    ticket: PendingWrite | None = None
    for stream, cursor in list(context.commit_log.groups.cursors(context.caller, header.srcGroup).items()):
        topic = topics.get(stream.topic)
        if topic is not None:
            ticket = context.commit_log.groups.commit(
                context.caller, header.destGroup, topic, stream.number, cursor.offset
            )
    return done_when_durable(command, ticket)


# -- comparing


class _Correction(msgspec.Struct):
    topic: str
    compareGroup: str = ""
    filterGroups: str = ""


def correction_offsets(context: Context, command: Command) -> Reply:
    """Returns the committed offset of the slowest group in each queue. As in Apache RocketMQ, offsets before the first
    message do not count, and `compareGroup` is one of the groups: it only must not be the one without such an offset.
    Unlike there, the offsets of `filterGroups` are left out and not deleted."""
    header = command.read(_Correction)
    topic = context.commit_log.topics.find(context.caller, header.topic)
    if topic is None:
        return reply(command, body=b'{"correctionOffsets":{}}')
    left_out = set(header.filterGroups.split(","))
    least: dict[int, int] = {}
    compared: set[int] = set()
    for group in context.commit_log.groups.cursor_groups(context.caller):
        if group in left_out:
            continue
        for stream, cursor in context.commit_log.groups.cursors(context.caller, group).items():
            if stream.topic != topic.id:
                continue
            if group == header.compareGroup:
                compared.add(stream.number)
            start = topic.stream_or_retired(stream.number).start if stream.number >= 0 else 0
            if cursor.offset >= start:
                least[stream.number] = min(cursor.offset, least.get(stream.number, cursor.offset))
    for number in sorted(compared - least.keys()):
        reason = f"no group has an offset behind the first message of queue {number}, only {header.compareGroup[:200]}"
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)
    return reply(command, body=b'{"correctionOffsets":%b}' % write_object_keyed(sorted(least.items())))
