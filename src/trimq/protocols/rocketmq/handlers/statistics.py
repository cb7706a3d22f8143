"""GET_TOPIC_STATS_INFO (202), GET_CONSUME_STATS (208), GET_BROKER_CONSUME_STATS (317),
QUERY_TOPIC_CONSUME_BY_WHO (300), QUERY_TOPICS_BY_CONSUMER (343), QUERY_SUBSCRIPTION_BY_CONSUMER (345),
QUERY_CONSUME_TIME_SPAN (303), VIEW_BROKER_STATS_DATA (315).

Offsets and rates of topics, lag of groups, readers of topics, times of read and unread messages, and traffic of the
last minute, hour and day.
Not served: statistics of 315 other than those in `_COUNTED`; in-flight messages are counted as 0 in 317."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.reset_offset import known_topic, queue_key
from trimq.protocols.rocketmq.state.statistics import TrafficCounter, TrafficSum
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.lenient_json import write_object_keyed
from trimq.protocols.rocketmq.wire.replies import reply, reply_json
from trimq.wire.remoting import Command

_SECONDS = (60, 3600, 86_400)


def topic_stats(context: Context, command: Command) -> Reply:
    topic = known_topic(context, command.fields.get("topic", ""))
    name = topic.name.name
    rows = []
    for stream in topic.streams()[: max(topic.definition.read_streams, topic.definition.write_streams)]:
        ends = {"lastUpdateTimestamp": _time(stream, stream.readable_end - 1), "maxOffset": stream.readable_end}
        rows.append((queue_key(context, name, stream.id.number), {**ends, "minOffset": stream.start}))
    rate = _rate(context, context.services.traffic.sent(name))
    return reply(command, body=b'{"offsetTable":%b,"topicPutTps":%.3f}' % (write_object_keyed(rows), rate))


def _time(stream: MessageQueue, offset: int) -> int:
    """Returns the store time of the message at `offset`, 0 if there is none."""
    return stream.unit(offset).store_ms if stream.start <= offset < stream.readable_end else 0


def _rate(context: Context, flow: TrafficCounter | None) -> float:
    """Returns messages per second over the last minute."""
    return 0.0 if flow is None else flow.windows(context.services.clock.message.now_ms()).minute.messages / _SECONDS[0]


# -- committed offsets and lag of groups


class _ConsumeStats(NamedTuple):
    """Offsets, lag (`behind`) and read rate of a group."""

    table: list[tuple[Any, Any]]
    behind: int
    rate: float

    def encoded(self) -> bytes:
        return b'{"consumeTps":%.3f,"offsetTable":%b}' % (self.rate, write_object_keyed(self.table))


def _consume_stats(context: Context, group: str, topics: Iterable[CommitLogTopic]) -> _ConsumeStats:
    rows, behind, rate = [], 0, 0.0
    for topic in topics:
        name = topic.name.name
        rate += _rate(context, context.services.traffic.read(name, group))
        for number in range(topic.definition.read_streams):
            stream = topic.stream(number)
            known = context.commit_log.groups.cursor(context.caller, group, topic, number)
            offset = 0 if known is None else max(known.offset, 0)
            row = {"brokerOffset": stream.readable_end, "consumerOffset": offset, "pullOffset": offset}
            rows.append((queue_key(context, name, number), {**row, "lastTimestamp": _time(stream, offset - 1)}))
            behind += max(stream.readable_end - offset, 0)
    return _ConsumeStats(rows, behind, rate)


def _topics_read(context: Context, group: str) -> list[CommitLogTopic]:
    read = {stream.topic for stream in context.commit_log.groups.cursors(context.caller, group)}
    return [topic for topic in context.commit_log.topics.all(context.caller) if topic.id in read]


def consume_stats(context: Context, command: Command) -> Reply:
    """Reports the named topics, or all topics that the group reads."""
    fields = command.fields
    group = fields.get("consumerGroup", "")
    context.commit_log.groups.require_describe(context.caller, group)
    members = context.services.clients.group(group)
    subscribed = None if members is None else members.subscriptions
    named = [name for name in (fields.get("topic"), *fields.get("topicList", "").split(";")) if name]
    found = (context.commit_log.topics.find(context.caller, name) for name in named)
    topics = [topic for topic in found if topic is not None] if named else _topics_read(context, group)
    # Offsets of topics that the connected members no longer subscribe to would look like a lag.
    shown = [topic for topic in topics if not subscribed or topic.name.name in subscribed]
    return reply(command, body=_consume_stats(context, group, shown).encoded())


def broker_consume_stats(context: Context, command: Command) -> Reply:
    """Reports all groups; with `isOrder` only their ordered topics."""
    is_ordered = command.fields.get("isOrder", "false").lower() == "true"
    listed, behind = [], 0
    for group in context.commit_log.groups.cursor_groups(context.caller):
        each = [
            _consume_stats(context, group, [topic])
            for topic in _topics_read(context, group)
            if topic.definition.is_ordered or not is_ordered
        ]
        behind += sum(progress.behind for progress in each)
        shown = b",".join(progress.encoded() for progress in each)
        listed.append(b"{%b:[%b]}" % (msgspec.json.encode(group), shown))
    address = msgspec.json.encode(context.services.identity.address)
    body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":0}'
    return reply(command, body=body % (address, b",".join(listed), behind))


# -- groups of topics, topics of groups


def groups_of_topic(context: Context, command: Command) -> Reply:
    name = command.fields.get("topic", "")
    topic = context.commit_log.topics.find(context.caller, name)
    groups = {
        group.name
        for group in context.services.clients.groups()
        if name in group.subscriptions and context.commit_log.groups.is_visible(context.caller, group.name)
    }
    if topic is not None:
        for group in context.commit_log.groups.cursor_groups(context.caller):
            if any(stream.topic == topic.id for stream in context.commit_log.groups.cursors(context.caller, group)):
                groups.add(group)
    return reply_json(command, {"groupList": sorted(groups)})


def topics_of_group(context: Context, command: Command) -> Reply:
    topics = [topic.name.name for topic in _topics_read(context, command.fields.get("group", ""))]
    return reply_json(command, {"brokerAddr": context.services.identity.address, "topicList": sorted(topics)})


def subscription_of_group(context: Context, command: Command) -> Reply:
    name, topic = command.fields.get("group", ""), command.fields.get("topic", "")
    context.commit_log.groups.require_describe(context.caller, name)
    group = context.services.clients.group(name)
    subscription = None if group is None else group.subscriptions.get(topic)
    shown = {} if subscription is None else {"subscriptionData": subscription.described()}
    return reply_json(command, {"group": name, "topic": topic, **shown})


# -- time span of a queue


def time_span(context: Context, command: Command) -> Reply:
    topic = known_topic(context, command.fields.get("topic", ""))
    group = command.fields.get("group", "")
    now_ms = context.services.clock.message.now_ms()
    spans = []
    for number in range(topic.definition.write_streams):
        stream = topic.stream(number)
        known = context.commit_log.groups.cursor(context.caller, group, topic, number)
        offset = 0 if known is None else max(known.offset, 0)
        first_ms = _time(stream, stream.start)
        waiting_ms = _time(stream, offset)
        span = {
            "minTimeStamp": first_ms,
            "maxTimeStamp": _time(stream, stream.readable_end - 1),
            "consumeTimeStamp": _time(stream, offset - 1) or -1 if offset else first_ms,
        }
        if stream.start == stream.readable_end:  # as a genuine broker shows an empty queue
            span = dict.fromkeys(span, -1)
        texts = {f"{name}Str": _written(time_ms) for name, time_ms in span.items()}
        queue = queue_key(context, topic.name.name, number)
        delay_ms = now_ms - waiting_ms if waiting_ms else 0
        spans.append({**span, **texts, "delayTime": delay_ms, "messageQueue": queue})
    return reply_json(command, {"consumeTimeSpanSet": spans})


def _written(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{time:%Y-%m-%d#%H:%M:%S}:{time_ms % 1000:03}"


# -- traffic


def stats_data(context: Context, command: Command) -> Reply:
    name, key = command.fields.get("statsName", ""), command.fields.get("statsKey", "")
    counted = _COUNTED.get(name)
    if counted is None:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name[:100]}> not exist")
    _require_visible(context, counted[0], key)
    flow = _find_flow(context, counted[0], key)
    if flow is None:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key[:200]}> not exist")
    windows = flow.windows(context.services.clock.message.now_ms())
    names = ("statsMinute", "statsHour", "statsDay")
    shown = {
        window: _item(found, seconds, counted[1])
        for window, found, seconds in zip(names, windows, _SECONDS, strict=True)
    }
    return reply_json(command, shown)


# Statistics by name: the counter, and whether its bytes are returned.
_COUNTED = {
    "TOPIC_PUT_NUMS": ("sent", False),
    "TOPIC_PUT_SIZE": ("sent", True),
    "GROUP_GET_NUMS": ("read", False),
    "GROUP_GET_SIZE": ("read", True),
    "SNDBCK_PUT_NUMS": ("returned", False),
    "BROKER_PUT_NUMS": ("all sent", False),
    "BROKER_GET_NUMS": ("all read", False),
}


def _require_visible(context: Context, counter: str, key: str) -> None:
    """Raises AccessDenied unless the caller may see the topic and the group that the key names."""
    if counter in ("sent", "read", "returned"):
        topic, _, group = key.partition("@")
        context.commit_log.topics.find(context.caller, topic)
        if group:
            context.commit_log.groups.require_describe(context.caller, group)


def _find_flow(context: Context, counter: str, key: str) -> TrafficCounter | None:
    """Finds a counter. The key is a topic, `topic@group`, or for the whole broker the cluster name."""
    traffic, (topic, _, group) = context.services.traffic, key.partition("@")
    match counter:
        case "sent":
            return traffic.sent(key)
        case "read":
            return traffic.read(topic, group)
        case "returned":
            return traffic.returned(topic, group)
    if key != context.services.identity.cluster_name:
        return None
    return traffic.all_sent() if counter == "all sent" else traffic.all_read()


def _item(found: TrafficSum, seconds: int, is_bytes: bool) -> dict[str, float]:
    total = found.bytes if is_bytes else found.messages
    average = total / found.messages if found.messages else 0.0
    return {"sum": total, "tps": round(total / seconds, 3), "avgpt": round(average, 3)}
