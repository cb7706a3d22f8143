"""Codes 200, 201, 207, 225 and 352 (what is set for groups), 203, 204 and 328 (who is in them), 43 (how far all have
read)."""

from __future__ import annotations

from typing import Any

import msgspec

from trimq.core.shared_groups import SharedGroup
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.codes import Code, Failure
from trimq.protocols.rocketmq.consumers import Client
from trimq.protocols.rocketmq.handlers.bodies import read_list, read_object
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.replies import done_when_durable, reply, reply_json
from trimq.protocols.rocketmq.lenient_json import write_object_keyed
from trimq.protocols.rocketmq.remoting import Command

_LEGAL = frozenset("%|-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_LONGEST_NAME = 120

# What a group may be told besides, and which alone is kept: a broker that serves one node has no other.
_FIXED: dict[str, object] = {
    "brokerId": 0,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupSysFlag": 0,
    "whichBrokerWhenConsumeSlowly": 1,
}


def update_group(context: Context, command: Command) -> Reply:
    return done_when_durable(command, _define(context, read_object(command)))


def update_groups(context: Context, command: Command) -> Reply:
    given = read_object(command).get("groupConfigList")
    tickets = [_define(context, each) for each in read_list(given)]
    return done_when_durable(command, tickets[-1] if tickets else None)


def _define(context: Context, data: dict[str, Any]) -> Any:
    name = data.get("groupName")
    if not isinstance(name, str) or not name or not _LEGAL.issuperset(name) or len(name) > _LONGEST_NAME:
        raise Failure(Code.INVALID_PARAMETER, f"The specified group: {str(name)[:200]}, is no name of a group")
    for field, kept in _FIXED.items():
        if data.get(field, kept) != kept:
            raise Failure(Code.INVALID_PARAMETER, f"{field} cannot be {data[field]!r:.40}: only {kept!r} is served")
    try:
        group = msgspec.convert(
            {
                "name": name,
                "may_consume": data.get("consumeEnable", True),
                "may_broadcast": data.get("consumeBroadcastEnable", True),
                "retry_streams": data.get("retryQueueNums", 1),
                "retry_limit": data.get("retryMaxTimes", 16),
                "is_told_of_members": data.get("notifyConsumerIdsChangedEnable", True),
            },
            SharedGroup,
        )
    except msgspec.ValidationError as error:
        raise Failure(Code.INVALID_PARAMETER, str(error)) from None
    return context.sharing.define_group(context.caller, group)


def group_config(context: Context, command: Command) -> Reply:
    """One that is not there is shown as it would be made."""
    name = command.fields.get("group", "")
    return reply_json(command, described(context.sharing.group(context.caller, name) or SharedGroup(name)))


def all_group_configs(context: Context, command: Command) -> Reply:
    table = {group.name: described(group) for group in context.sharing.groups(context.caller)}
    version = {"counter": len(table), "stateVersion": 0, "timestamp": context.shared.clock.message.now_ms()}
    return reply_json(command, {"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": table})


def delete_group(context: Context, command: Command) -> Reply:
    fields = command.fields
    name = fields.get("groupName", "")
    forgets = fields.get("cleanOffset", fields.get("removeOffset", "false")).lower() == "true"
    return done_when_durable(command, context.sharing.delete_group(context.caller, name, forgets))


def described(group: SharedGroup) -> dict[str, Any]:
    return {
        "attributes": {},
        **_FIXED,
        "consumeBroadcastEnable": group.may_broadcast,
        "consumeEnable": group.may_consume,
        "groupName": group.name,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "notifyConsumerIdsChangedEnable": group.is_told_of_members,
        "retryMaxTimes": group.retry_limit,
        "retryQueueNums": group.retry_streams,
    }


# -- who is there


def consumer_connections(context: Context, command: Command) -> Reply:
    name = command.fields.get("consumerGroup", "")
    group = context.shared.clients.group(name)
    if group is None:
        raise Failure(Code.CONSUMER_NOT_ONLINE, f"the consumer group[{name[:200]}] not online")
    table = {topic: subscription.described() for topic, subscription in group.subscriptions.items()}
    shown = {
        "connectionSet": [_connection(member) for member in group.members.values()],
        "consumeFromWhere": group.consume_from,
        "consumeType": group.consume_type,
        "messageModel": group.message_model,
        "subscriptionTable": table,
    }
    return reply_json(command, {name: value for name, value in shown.items() if value is not None})


def producer_connections(context: Context, command: Command) -> Reply:
    name = command.fields.get("producerGroup", "")
    producers = context.shared.clients.producers(name)
    if not producers:
        raise Failure(Code.SYSTEM_ERROR, f"the producer group[{name[:200]}] not exist")
    return reply_json(command, {"connectionSet": [_connection(producer) for producer in producers]})


def all_producers(context: Context, command: Command) -> Reply:
    table = {
        group: [
            {
                "clientId": client.id,
                "language": client.language,
                "lastUpdateTimestamp": context.shared.clock.message.now_ms(),
                "remoteIP": client.address.rpartition(":")[0],
                "version": client.version,
            }
            for client in context.shared.clients.producers(group)
        ]
        for group in context.shared.clients.producer_groups()
    }
    return reply_json(command, {"data": table})


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientAddr": client.address,
        "clientId": client.id,
        "language": client.language,
        "version": client.version,
    }


# -- how far they have read


def all_offsets(context: Context, command: Command) -> Reply:
    topics = {topic.id: topic.name.name for topic in context.sharing.topics(context.caller)}
    tables: dict[str, dict[int, int]] = {}
    for group in context.sharing.cursor_groups(context.caller):
        for stream, cursor in context.sharing.cursors(context.caller, group).items():
            if stream.topic in topics:
                tables.setdefault(f"{topics[stream.topic]}@{group}", {})[stream.number] = cursor.offset
    shown = b",".join(
        msgspec.json.encode(name) + b":" + write_object_keyed(table.items()) for name, table in tables.items()
    )
    version = msgspec.json.encode({"counter": 0, "stateVersion": 0, "timestamp": 0})
    body = b'{"dataVersion":%b,"groupTopicMap":{},"offsetTable":{%b},"pullOffsetTable":{}}' % (version, shown)
    return reply(command, body=body)
