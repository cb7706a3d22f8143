"""UPDATE_AND_GET_GROUP_FORBIDDEN (353): topics that a group may not read, whatever its members subscribe to.

Stored with the group, and checked at every pull, pop and receive."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.topics import READABLE
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import reply_json, reply_when_durable
from trimq.protocols.rocketmq.wire.responses import encode_response
from trimq.wire.remoting import Command

SETTING = "forbidden"
"""Key in the settings of a group. The value is a comma-separated list of topics; their names contain no comma."""


class _Forbidden(msgspec.Struct):
    group: str
    topic: str
    readable: bool | None = None


def update_forbidden(context: Context, command: Command) -> Reply:
    """Without `readable` the request is a query and changes nothing."""
    header = command.read(_Forbidden)
    shown = {"group": header.group, "readable": True, "topic": header.topic}
    if header.readable is None:
        group = context.commit_log.groups.find(context.caller, header.group)
        shown["readable"] = group is None or not is_forbidden(group, header.topic)
        return reply_json(command, shown)
    context.commit_log.admin.require_administrator(context.caller)
    context.commit_log.topics.check_name(header.topic)
    if header.readable and context.commit_log.groups.find(context.caller, header.group) is None:
        return reply_json(command, shown)
    group = context.get_or_create_group(header.group)
    topics = set(forbidden_topics(group)) - {header.topic} | (set() if header.readable else {header.topic})
    ticket = context.commit_log.groups.define(context.caller, with_forbidden(group, topics))
    body = msgspec.json.encode({**shown, "readable": header.readable})
    return reply_when_durable(command, ticket, lambda: encode_response(command.opaque, ResponseCode.SUCCESS, body=body))


def forbidden_topics(group: CommitLogGroup) -> list[str]:
    kept = group.settings.get(SETTING)
    return kept.split(",") if kept else []


def is_forbidden(group: CommitLogGroup, topic: str) -> bool:
    return SETTING in group.settings and topic in forbidden_topics(group)


def refuse_forbidden(group: CommitLogGroup, topic: str) -> None:
    if is_forbidden(group, topic):
        reason = f"the consumer group[{group.name}] is forbidden for topic[{topic}]"
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, reason, {"forbiddenType": "5"})


def with_forbidden(group: CommitLogGroup, topics: Iterable[str]) -> CommitLogGroup:
    settings = {name: value for name, value in group.settings.items() if name != SETTING}
    if kept := ",".join(sorted(topics)):
        settings[SETTING] = kept
    return msgspec.structs.replace(group, settings=settings)


def forbidden_table(groups: Iterable[CommitLogGroup]) -> dict[str, dict[str, int]]:
    """Returns the forbidden permission bits by group and topic, as Apache RocketMQ lists them."""
    tables = {group.name: dict.fromkeys(forbidden_topics(group), READABLE) for group in groups}
    return {name: table for name, table in tables.items() if table}
