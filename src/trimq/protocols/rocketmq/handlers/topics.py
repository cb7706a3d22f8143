"""Codes 17 (make or change a topic), 215 (delete it), 351 and 21 (what topics are like)."""

from __future__ import annotations

from typing import Any

import msgspec

from trimq.core.shared_topics import SharedDefinition, SharedTopic
from trimq.errors import UnknownTopic
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.codes import Code, Failure
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.replies import done_when_durable, reply, reply_json
from trimq.protocols.rocketmq.handlers.sending import check_topic_name
from trimq.protocols.rocketmq.remoting import Command


class _Topic(msgspec.Struct):
    topic: str
    readQueueNums: int
    writeQueueNums: int
    perm: int
    topicSysFlag: int = 0
    order: bool = False
    attributes: str = ""


def update_topic(context: Context, command: Command) -> Reply:
    header = command.read(_Topic)
    check_topic_name(context, header.topic)
    known = context.sharing.find(context.caller, header.topic)
    definition = SharedDefinition(
        context.caller.namespace,
        header.topic,
        header.readQueueNums,
        header.writeQueueNums,
        header.perm & 7,
        header.order,
        header.topicSysFlag,
        _attributes(header.attributes, {} if known is None else known.definition.attributes),
    )
    if known is None:
        _, ticket = context.sharing.create(context.caller, definition)
    else:
        definition = msgspec.structs.replace(definition, created_ms=known.definition.created_ms)
        ticket = context.sharing.change(context.caller, known, definition)
    return done_when_durable(command, ticket)


_MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED")


def _attributes(text: str, known: dict[str, str]) -> dict[str, str]:
    """`+name=value` sets and `-name` removes; only the kind of a topic's messages may be set."""
    found = dict(known)
    for item in text.split(",") if text else ():
        name, _, value = item[1:].partition("=")
        if name != "message.type" or item[:1] not in ("+", "-"):
            raise Failure(Code.INVALID_PARAMETER, f"the attribute {item[:100]} is not known")
        if item[0] == "-":
            found.pop(name, None)
        elif value not in _MESSAGE_TYPES:
            raise Failure(Code.INVALID_PARAMETER, f"{value[:100]} is no kind of message")
        else:
            found[name] = value
    return found


def delete_topic(context: Context, command: Command) -> Reply:
    name = command.fields.get("topic", "")
    check_topic_name(context, name)
    known = context.sharing.find(context.caller, name)
    return (
        reply(command) if known is None else done_when_durable(command, context.sharing.delete(context.caller, known))
    )


def topic_config(context: Context, command: Command) -> Reply:
    name = command.fields.get("topic", "")
    try:
        topic = context.sharing.topic(context.caller, name)
    except UnknownTopic:
        raise Failure(Code.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name[:200]}") from None
    return reply_json(command, described(topic))


def all_topic_configs(context: Context, command: Command) -> Reply:
    topics = context.sharing.topics(context.caller)
    newest = max((topic.version for topic in topics), default=0)
    table = {topic.name.name: described(topic) for topic in topics}
    version = {"counter": newest, "stateVersion": 0, "timestamp": context.shared.clock.message.now_ms()}
    return reply_json(command, {"dataVersion": version, "topicConfigTable": table})


def described(topic: SharedTopic) -> dict[str, Any]:
    definition = topic.definition
    return {
        "attributes": dict(definition.attributes),
        "order": definition.is_ordered,
        "perm": definition.permissions,
        "readQueueNums": definition.read_streams,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic.name.name,
        "topicSysFlag": definition.flags,
        "writeQueueNums": definition.write_streams,
    }
