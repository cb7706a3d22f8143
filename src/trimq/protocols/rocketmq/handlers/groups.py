"""UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), DELETE_SUBSCRIPTIONGROUP (207),
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225), GET_SUBSCRIPTIONGROUP_CONFIG (352), GET_CONSUMER_CONNECTION_LIST (203),
GET_PRODUCER_CONNECTION_LIST (204), GET_ALL_PRODUCER_INFO (328), GET_ALL_CONSUMER_OFFSET (43).

Defines, lists and deletes consumer groups; lists connected clients and all committed offsets.
Not served: values of the settings in `FIXED` other than the ones there; they are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from trimq.core.api.commit_log_groups import CommitLogGroupApi
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.model import Caller
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.clients import retry_policies
from trimq.protocols.rocketmq.clients.registry import Client, ConsumerGroup, subscription_texts
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.forbidden_topics import forbidden_table, forbidden_topics, with_forbidden
from trimq.protocols.rocketmq.handlers.json_bodies import read_list, read_object
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32
from trimq.protocols.rocketmq.wire.lenient_json import write_object_keyed
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply, reply_json
from trimq.wire.remoting import Command

LEGAL_IN_GROUPS = frozenset("%|-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
LONGEST_GROUP = 120

_POLICY = "groupRetryPolicy"
_FROM_MIN = "consumeFromMinEnable"  # kept for tools that show it; no broker uses it

# Settings with one permitted value: a single-node broker supports no other.
FIXED: dict[str, object] = {
    "brokerId": 0,
    "consumeTimeoutMinute": 15,
    "groupSysFlag": 0,
    "whichBrokerWhenConsumeSlowly": 1,
}

# Settings that may change: RocketMQ name to the field of `CommitLogGroup`.
FIELDS = {
    "consumeEnable": "may_consume",
    "consumeBroadcastEnable": "may_broadcast",
    "retryQueueNums": "retry_streams",
    "retryMaxTimes": "retry_limit",
    "notifyConsumerIdsChangedEnable": "is_told_of_members",
    "consumeMessageOrderly": "is_orderly",
}


class _Checked(msgspec.Struct):
    """Settings of a group whose types are checked here; integers are limited to Java's range."""

    retryQueueNums: Int32 = 1
    retryMaxTimes: Int32 = 16
    consumeFromMinEnable: bool = True


def update_group(context: Context, command: Command) -> Reply:
    return done_when_durable(command, _define(context, read_object(command)))


def update_groups(context: Context, command: Command) -> Reply:
    given = read_object(command).get("groupConfigList")
    tickets = [_define(context, each) for each in read_list(given)]
    return done_when_durable(command, tickets[-1] if tickets else None)


def _define(context: Context, data: dict[str, Any]) -> Any:
    name = data.get("groupName")
    if not isinstance(name, str) or not name or not LEGAL_IN_GROUPS.issuperset(name) or len(name) > LONGEST_GROUP:
        raise RemotingRefusal(
            ResponseCode.INVALID_PARAMETER, f"The specified group: {str(name)[:200]}, is not a valid group name"
        )
    for field, kept in FIXED.items():
        if data.get(field, kept) != kept:
            raise RemotingRefusal(
                ResponseCode.INVALID_PARAMETER, f"{field} cannot be {data[field]!r:.40}: only {kept!r} is served"
            )
    _refuse_attributes(data.get("attributes"))
    try:
        group = read_group(name, data)
    except msgspec.ValidationError as error:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
    known = context.commit_log.groups.find(context.caller, name)
    if known is not None:
        group = with_forbidden(group, forbidden_topics(known))
    return context.commit_log.groups.define(context.caller, group)


def _refuse_attributes(given: object) -> None:
    """Refuses attributes: they concern priorities and lite topics. A name with a minus before it removes nothing."""
    if given is None:
        return
    added = [name for name in given if not name.startswith("-")] if isinstance(given, dict) else [given]
    if added:
        raise RemotingRefusal(
            ResponseCode.INVALID_PARAMETER, f"the attribute {str(added[0])[:200]} of a group is not supported"
        )


def read_group(name: str, data: dict[str, Any]) -> CommitLogGroup:
    """Raises msgspec.ValidationError if a value is invalid."""
    checked = msgspec.convert(data, _Checked)
    given = {known: data[field] for field, known in FIELDS.items() if field in data}
    settings = {retry_policies.SETTING: retry_policies.read_policy(data[_POLICY])} if data.get(_POLICY) else {}
    if not checked.consumeFromMinEnable:
        settings[_FROM_MIN] = "false"
    return msgspec.convert({"name": name, **given, "settings": settings}, CommitLogGroup)


def group_config(context: Context, command: Command) -> Reply:
    """Creates an unknown group with the defaults, as a genuine broker does, unless its name is invalid."""
    name = command.fields.get("group", "")
    if not name or not LEGAL_IN_GROUPS.issuperset(name) or len(name) > LONGEST_GROUP:
        return reply_json(command, described(CommitLogGroup(name)))
    return reply_json(command, described(context.get_or_create_group(name)))


def all_group_configs(context: Context, command: Command) -> Reply:
    groups = context.commit_log.groups.all(context.caller)
    table, forbidden = {group.name: described(group) for group in groups}, forbidden_table(groups)
    version = {"counter": len(table), "stateVersion": 0, "timestamp": context.services.clock.message.now_ms()}
    shown = {"dataVersion": version, "forbiddenTable": forbidden, "subscriptionGroupTable": table}
    return reply(command, fields={"totalGroupNum": str(len(table))}, body=msgspec.json.encode(shown))


def delete_group(context: Context, command: Command) -> Reply:
    fields = command.fields
    name = fields.get("groupName", "")
    forgets = fields.get("cleanOffset", fields.get("removeOffset", "false")).lower() == "true"
    context.services.traffic.forget_group(name)
    context.services.consuming.offset_resets.forget_group(name)
    return done_when_durable(command, context.commit_log.groups.delete(context.caller, name, forgets))


def described(group: CommitLogGroup) -> dict[str, Any]:
    return {
        "attributes": {},
        **FIXED,
        _FROM_MIN: group.settings.get(_FROM_MIN) != "false",
        "consumeBroadcastEnable": group.may_broadcast,
        "consumeEnable": group.may_consume,
        "consumeMessageOrderly": group.is_orderly,
        "groupName": group.name,
        _POLICY: retry_policies.describe_policy(group.settings),
        "notifyConsumerIdsChangedEnable": group.is_told_of_members,
        "retryMaxTimes": group.retry_limit,
        "retryQueueNums": group.retry_streams,
    }


# -- connected clients


def consumer_connections(context: Context, command: Command) -> Reply:
    name = command.fields.get("consumerGroup", "")
    context.commit_log.groups.require_describe(context.caller, name)
    group = context.services.clients.group(name)
    if group is None:
        raise RemotingRefusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name[:200]}] not online")
    table = {topic: subscription.described() for topic, subscription in group.subscriptions.items()}
    shown = {
        "connectionSet": [_connection(member) for member in group.members.values()],
        "consumeFromWhere": group.consume_from,
        "consumeType": group.consume_type,
        "memberSubscriptions": _member_subscriptions(group),
        "messageModel": group.message_model,
        "subscriptionTable": table,
    }
    return reply_json(command, {name: value for name, value in shown.items() if value is not None})


def _member_subscriptions(group: ConsumerGroup) -> dict[str, list[str]] | None:
    """Returns the subscriptions of each member if they differ, else None. Tools ignore the field if they do not know
    it."""
    if not group.is_inconsistent:
        return None
    return {
        member.id: subscription_texts(group.member_subscriptions.get(member.outlet, ()))
        for member in group.members.values()
    }


def producer_connections(context: Context, command: Command) -> Reply:
    name = command.fields.get("producerGroup", "")
    context.commit_log.groups.require_describe(context.caller, name)
    producers = context.services.clients.producers(name)
    if not producers:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name[:200]}] not exist")
    return reply_json(command, {"connectionSet": [_connection(producer) for producer in producers]})


def all_producers(context: Context, command: Command) -> Reply:
    table = {
        group: [
            {
                "clientId": client.id,
                "language": client.language,
                "lastUpdateTimestamp": context.services.clock.message.now_ms(),
                "remoteIP": f"/{client.address}",
                "version": client.version,
            }
            for client in context.services.clients.producers(group)
        ]
        for group in context.services.clients.producer_groups()
        if context.commit_log.groups.is_visible(context.caller, group)
    }
    return reply_json(command, {"data": table})


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientAddr": client.address,
        "clientId": client.id,
        "language": client.language,
        "version": client.version,
    }


# -- committed offsets


def all_offsets(context: Context, command: Command) -> Reply:
    return reply(command, body=encode_offsets(context.commit_log.topics, context.commit_log.groups, context.caller))


def encode_offsets(
    topic_api: CommitLogTopicApi, group_api: CommitLogGroupApi, caller: Caller, unlisted: frozenset[str] = frozenset()
) -> bytes:
    """Encodes the committed offsets of all groups except the `unlisted` ones."""
    return join_offsets(encode_each_offset(topic_api, group_api, caller, unlisted))


def encode_each_offset(
    topic_api: CommitLogTopicApi, group_api: CommitLogGroupApi, caller: Caller, unlisted: frozenset[str] = frozenset()
) -> Iterator[bytes]:
    """Yields the offsets for `join_offsets`, one piece for each group and topic. Each piece is read when it is
    requested."""
    topics = {topic.id: topic.name.name for topic in topic_api.all(caller)}
    for group in group_api.cursor_groups(caller):
        tables: dict[str, dict[int, int]] = {}
        for stream, cursor in group_api.cursors(caller, group).items():
            if stream.topic in topics and group not in unlisted:
                tables.setdefault(f"{topics[stream.topic]}@{group}", {})[stream.number] = cursor.offset
        for name, table in tables.items():
            yield msgspec.json.encode(name) + b":" + write_object_keyed(table.items())


def join_offsets(pieces: Iterable[bytes]) -> bytes:
    version = msgspec.json.encode({"counter": 0, "stateVersion": 0, "timestamp": 0})
    shown = b",".join(pieces)
    return b'{"dataVersion":%b,"groupTopicMap":{},"offsetTable":{%b},"pullOffsetTable":{}}' % (version, shown)
