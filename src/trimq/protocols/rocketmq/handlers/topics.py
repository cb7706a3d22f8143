"""UPDATE_AND_CREATE_TOPIC (17), UPDATE_AND_CREATE_TOPIC_LIST (18), DELETE_TOPIC_IN_BROKER (215),
GET_TOPIC_CONFIG (351), GET_ALL_TOPIC_CONFIG (21), GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305).

Creates, changes, deletes and lists topics. System topics cannot be changed or deleted.
Not served: static topics; attributes other than message.type and trimq.ttl.ms; message type MIXED."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.errors import Refusal, UnknownTopic
from trimq.formats.rocketmq_unit.ttl import parse_milliseconds
from trimq.protocols.contract import DeferredReply, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_list, read_object
from trimq.protocols.rocketmq.handlers.message_ttl import ATTRIBUTE as TTL_ATTRIBUTE
from trimq.protocols.rocketmq.handlers.send import check_topic_name
from trimq.protocols.rocketmq.state.system_topics import protected_topics
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32
from trimq.protocols.rocketmq.wire.replies import (
    UNORDERED,
    PendingWrite,
    done_when_durable,
    reply,
    reply_json,
    reply_refused,
)
from trimq.wire.remoting import Command


class _Topic(msgspec.Struct):
    topic: str
    readQueueNums: Int32
    writeQueueNums: Int32
    perm: Int32
    topicSysFlag: Int32 = 0
    order: bool = False
    attributes: str = ""
    topicFilterType: Literal["SINGLE_TAG", "MULTI_TAG"] = "SINGLE_TAG"


def update_topic(context: Context, command: Command) -> Reply:
    return done_when_durable(command, _define(context, command.read(_Topic)))


def update_topics(context: Context, command: Command) -> Reply:
    """Applies the topics in order, up to the first that is refused."""
    ticket = None
    for row in read_list(read_object(command).get("topicConfigList")):
        try:
            given = {**row, "topic": row["topicName"], "attributes": _attribute_text(row.get("attributes"))}
            header = msgspec.convert(given, _Topic, strict=False)
        except (KeyError, msgspec.ValidationError) as error:
            raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"invalid topic: {error}") from None
        ticket = _define(context, header)
    return done_when_durable(command, ticket)


def _attribute_text(given: object) -> str:
    """Converts a map of attributes to the text form. Names may lack their sign; `+` is then added."""
    if not isinstance(given, dict):
        return ""
    return ",".join(f"{name if str(name)[:1] in '+-' else f'+{name}'}={value}" for name, value in given.items())


def _define(context: Context, header: _Topic) -> PendingWrite | None:
    check_topic_name(context, header.topic)
    _refuse_system_topic(context, header.topic)
    known = context.commit_log.topics.find(context.caller, header.topic)
    if known is None and (foreign := context.foreign_topic(header.topic)) is not None:
        own = foreign.definition
        asked = (header.readQueueNums, header.writeQueueNums, header.perm & 7, header.attributes)
        if asked != (own.read_streams, own.write_streams, own.permissions, ""):
            raise _not_ours(header.topic)
        return None
    definition = CommitLogTopicDefinition(
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
        _, ticket = context.commit_log.topics.create(context.caller, definition)
    else:
        kept = known.definition
        definition = msgspec.structs.replace(definition, created_ms=kept.created_ms, may_expire=kept.may_expire)
        ticket = context.commit_log.topics.change(context.caller, known, definition)
    return ticket


def _not_ours(name: str) -> RemotingRefusal:
    reason = f"{name} is a topic of another protocol: change or delete it through that protocol, HTTP or trimq"
    return RemotingRefusal(ResponseCode.NO_PERMISSION, reason)


def _refuse_system_topic(context: Context, name: str) -> None:
    identity = context.services.identity
    if name in protected_topics(identity.cluster_name, identity.broker_name):
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")


_MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED")


def _attributes(text: str, known: dict[str, str]) -> dict[str, str]:
    """Applies `+name=value` (set) and `-name` (remove) to the attributes message type and default TTL."""
    found = dict(known)
    for item in text.split(",") if text else ():
        name, _, value = item[1:].partition("=")
        if name not in ("message.type", TTL_ATTRIBUTE) or item[:1] not in ("+", "-"):
            raise RemotingRefusal(
                ResponseCode.SYSTEM_ERROR,
                f"attribute {item[:100]} is unknown; write +name=value or -name of message.type or trimq.ttl.ms",
            )
        if item[0] == "-":
            if name not in known:
                raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"attempt to delete a nonexistent key: {name}")
            found.pop(name, None)
        elif name == TTL_ATTRIBUTE:
            found[name] = _milliseconds(value)
        elif value not in _MESSAGE_TYPES:
            refused = ResponseCode.INVALID_PARAMETER if value == "MIXED" else ResponseCode.SYSTEM_ERROR
            raise RemotingRefusal(refused, f"{value[:100]} is not a supported message type")
        else:
            found[name] = value
    return found


def _milliseconds(text: str) -> str:
    try:
        return str(parse_milliseconds(text))
    except ValueError as error:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"{TTL_ATTRIBUTE} is {error}") from None


def delete_topic(context: Context, command: Command) -> Reply:
    name = command.fields.get("topic", "")
    check_topic_name(context, name)
    _refuse_system_topic(context, name)
    known = context.commit_log.topics.find(context.caller, name)
    if known is None:
        if context.foreign_topic(name) is not None:
            raise _not_ours(name)
        return reply(command)
    # Not when it is durable: with flush = async, the name is free a little later.
    waiting = DeferredReply(UNORDERED, resolves_soon=True)

    def gone(refusal: Refusal | None) -> None:
        waiting.resolve_as(reply(command) if refusal is None else reply_refused(command, refusal))

    context.commit_log.topics.delete(context.caller, known, gone)
    return waiting


def system_topic_list(context: Context, command: Command) -> Reply:
    identity = context.services.identity
    names = protected_topics(identity.cluster_name, identity.broker_name)
    return reply_json(command, {"topicList": sorted(names)})


def topic_config(context: Context, command: Command) -> Reply:
    name = command.fields.get("topic", "")
    try:
        topic = context.commit_log.topics.get(context.caller, name)
    except UnknownTopic:
        raise RemotingRefusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name[:200]}") from None
    return reply_json(command, described(topic))


def all_topic_configs(context: Context, command: Command) -> Reply:
    topics = context.commit_log.topics.all(context.caller)
    newest = max((topic.version for topic in topics), default=0)
    table = {topic.name.name: described(topic) for topic in topics}
    version = {"counter": newest, "stateVersion": 0, "timestamp": context.services.clock.message.now_ms()}
    mappings: dict[str, Any] = {
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }  # there are no static topics
    shown = {"dataVersion": version, "mappingDataVersion": version, "topicConfigTable": table, **mappings}
    return reply(command, fields={"totalTopicNum": str(len(table))}, body=msgspec.json.encode(shown))


def described(topic: CommitLogTopic) -> dict[str, Any]:
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
