"""HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42),
CHECK_CLIENT_CONFIG (46).

Registers producers and consumers with their subscriptions, lists the members of a group, locks queues for one member,
and validates the filter expression of a subscription."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.topics import CommitLogTopicDefinition
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.clients.queue_locks import QueueName
from trimq.protocols.rocketmq.clients.registry import Client, ConsumerGroup
from trimq.protocols.rocketmq.clients.subscriptions import parse_subscription, read_interest
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_list, read_object
from trimq.protocols.rocketmq.state.system_topics import RETRY_PREFIX
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import reply, reply_json
from trimq.wire.remoting import Command

# Some clients send the ordinal of an enum value instead of its name.
_CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MODELS = ("BROADCASTING", "CLUSTERING")
_CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


def heartbeat(context: Context, command: Command) -> Reply:
    data = read_object(command)
    id = data.get("clientID")
    if not isinstance(id, str):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "heartbeat: clientID is missing")
    address = context.caller.address
    client = Client(id, address, command.language, command.version, context.outlet, caller=context.caller)
    fingerprint = _number(data.get("heartbeatFingerprint"))
    is_changed = context.services.clients.note_fingerprint(context.outlet, fingerprint, bool(data.get("isWithoutSub")))
    producers, consumers = read_list(data.get("producerDataSet")), read_list(data.get("consumerDataSet"))
    try:
        _check_counts(context, producers, consumers)
        for producer in producers:
            context.services.clients.add_producer(client, _name(producer.get("groupName")))
        for consumer in consumers:
            _consume(context, client, consumer, bool(data.get("isWithoutSub")))
    except (TypeError, ValueError) as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"invalid heartbeat: {error}") from None
    return reply(
        command, fields={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if is_changed else "false"}
    )


def _check_counts(context: Context, producers: list[dict[str, Any]], consumers: list[dict[str, Any]]) -> None:
    """Limits the groups and subscriptions of one client: a heartbeat, and the cleanup when its connection ends, block
    the event loop."""
    settings = context.services.settings
    produced, consumed = ({_name(each.get("groupName")) for each in data} for data in (producers, consumers))
    if context.services.clients.groups_with(context.outlet, produced, consumed) > settings.client_groups:
        reason = f"one client may be in {settings.client_groups} groups, see rocketmq.client_groups"
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)
    if sum(len(read_list(each.get("subscriptionDataSet"))) for each in consumers) > settings.client_subscriptions:
        reason = f"one client may subscribe {settings.client_subscriptions} times, see rocketmq.client_subscriptions"
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)


def _consume(context: Context, client: Client, data: dict[str, Any], is_without_topics: bool) -> None:
    name = _name(data.get("groupName"))
    known = context.get_or_create_group(name) if name else CommitLogGroup(name)
    group = ConsumerGroup(
        name,
        _enum_name(data.get("consumeType"), _CONSUME_TYPES),
        _enum_name(data.get("messageModel"), _MODELS) or "CLUSTERING",
        _enum_name(data.get("consumeFromWhere"), _CONSUME_FROM_WHERE) or _CONSUME_FROM_WHERE[0],
        known.is_told_of_members,
    )
    subscriptions = [parse_subscription(each) for each in read_list(data.get("subscriptionDataSet"))]
    _make_retry_topic(context, known, any(_is_ordered(context, each.topic) for each in subscriptions))
    context.services.clients.add_consumer(client, group, None if is_without_topics else subscriptions)


def _is_ordered(context: Context, topic: str) -> bool:
    found = context.commit_log.topics.find(context.caller, topic)
    return found is not None and found.definition.is_ordered


def _make_retry_topic(context: Context, group: CommitLogGroup, is_ordered: bool) -> None:
    name = f"{RETRY_PREFIX}{group.name}"
    if context.commit_log.topics.find(context.caller, name) is None:
        count = group.retry_streams
        definition = CommitLogTopicDefinition(context.caller.namespace, name, count, count, is_ordered=is_ordered)
        try:
            context.commit_log.topics.create(context.caller, definition)
        except Refusal:
            return  # the group name is not valid in a topic name: the group consumes without retries


def unregister(context: Context, command: Command) -> Reply:
    fields = command.fields
    if group := fields.get("producerGroup"):
        context.services.clients.remove_producer(context.outlet, group)
    if group := fields.get("consumerGroup"):
        with suppress(Refusal):  # creates an unknown group, as a genuine broker does
            context.get_or_create_group(group)
        context.services.clients.remove_consumer(context.outlet, group)
    return reply(command)


def check_client_config(context: Context, command: Command) -> Reply:
    data = read_object(command).get("subscriptionData")
    if not isinstance(data, dict):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "subscriptionData is missing")
    expression, kind = data.get("subString"), data.get("expressionType")
    read_interest(str(expression or ""), str(kind or ""), context.filter_limits)
    return reply(command)


def consumer_list(context: Context, command: Command) -> Reply:
    name = command.fields.get("consumerGroup", "")
    context.commit_log.groups.require_describe(context.caller, name)
    group = context.services.clients.group(name)
    if group is None:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name[:200]}")
    return reply_json(command, {"consumerIdList": group.client_ids})


def lock_queues(context: Context, command: Command) -> Reply:
    group, client, queues = _lock_request(command)
    context.commit_log.groups.require_read(context.caller, group)
    locked = context.services.consuming.locks.lock(group, client, queues)
    shown = [
        {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.queue_id} for queue in dict.fromkeys(locked)
    ]
    return reply_json(command, {"lockOKMQSet": shown})


def unlock_queues(context: Context, command: Command) -> Reply:
    group, client, queues = _lock_request(command)
    context.commit_log.groups.require_read(context.caller, group)
    for queue in queues:
        context.services.consuming.locks.unlock(group, client, queue)
    return reply(command)


def _lock_request(command: Command) -> tuple[str, str, list[QueueName]]:
    data = read_object(command)
    try:
        queues = [
            QueueName(str(each["topic"]), str(each["brokerName"]), int(each["queueId"]))
            for each in read_list(data.get("mqSet"))
        ]
        return str(data["consumerGroup"]), str(data["clientId"]), queues
    except (KeyError, TypeError, ValueError) as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"invalid lock request: {error}") from None


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("groupName is missing")
    return value


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _enum_name(value: object, words: tuple[str, ...]) -> str | None:
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    return value if isinstance(value, str) and value in words else None
