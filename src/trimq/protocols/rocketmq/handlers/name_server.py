"""Codes 105 (where a topic is), 106, 206, 224 and 304 (brokers and topics), 100 to 102 and 219 (small texts that
clients keep here)."""

from __future__ import annotations

from typing import Any

import msgspec

from trimq.core.shared_topics import SharedTopic
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.codes import Code, Failure
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.replies import done_when_durable, reply, reply_json
from trimq.protocols.rocketmq.remoting import STRICT_JSON_FROM, BadHeader, Command

MASTER = "0"


def route(context: Context, command: Command) -> Reply:
    name = command.fields.get("topic")
    topic = context.sharing.find(context.caller, name) if name else None
    identity = context.shared.identity
    if topic is None or not identity.address:
        shown = "null" if name is None else name[:200]
        raise Failure(Code.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {shown}")
    body = msgspec.json.encode(_route_data(context, topic))
    is_strict = command.version >= STRICT_JSON_FROM or command.fields.get("acceptStandardJsonOnly") == "true"
    return reply(command, body=body if is_strict else _unquoted(body))


def _route_data(context: Context, topic: SharedTopic) -> dict[str, Any]:
    definition = topic.definition
    queues = {
        "brokerName": context.shared.identity.broker_name,
        "perm": definition.permissions,
        "readQueueNums": definition.read_streams,
        "topicSysFlag": definition.flags,
        "writeQueueNums": definition.write_streams,
    }
    return {"brokerDatas": [_broker_data(context)], "filterServerTable": {}, "queueDatas": [queues]}


def _broker_data(context: Context) -> dict[str, Any]:
    identity = context.shared.identity
    return {
        "brokerAddrs": {MASTER: identity.address},
        "brokerName": identity.broker_name,
        "cluster": identity.cluster_name,
        "enableActingMaster": False,
    }


def _unquoted(body: bytes) -> bytes:
    """The form that old clients were given: the number of a broker is no text."""
    return body.replace(b'"brokerAddrs":{"0":', b'"brokerAddrs":{0:')


def cluster_info(context: Context, command: Command) -> Reply:
    identity = context.shared.identity
    brokers = {identity.broker_name: _broker_data(context)} if identity.address else {}
    clusters = {identity.cluster_name: [identity.broker_name]} if identity.address else {}
    body = msgspec.json.encode({"brokerAddrTable": brokers, "clusterAddrTable": clusters})
    return reply(command, body=_unquoted(body))


def topic_list(context: Context, command: Command) -> Reply:
    return reply_json(command, {"topicList": _names(context)})


def topics_by_cluster(context: Context, command: Command) -> Reply:
    is_ours = command.fields.get("cluster") == context.shared.identity.cluster_name
    return reply_json(command, {"topicList": _names(context) if is_ours else []})


def system_topic_list(context: Context, command: Command) -> Reply:
    identity = context.shared.identity
    names = [identity.cluster_name, identity.broker_name]
    return reply_json(command, {"brokerAddr": identity.address, "topicList": names})


def _names(context: Context) -> list[str]:
    return [topic.name.name for topic in context.sharing.topics(context.caller)]


# -- small texts


class _Key(msgspec.Struct):
    namespace: str
    key: str


class _Text(msgspec.Struct):
    namespace: str
    key: str
    value: str


def put_kv(context: Context, command: Command) -> Reply:
    header = _read(command, _Text)
    return done_when_durable(
        command, context.sharing.put_note(context.caller, header.namespace, header.key, header.value)
    )


def get_kv(context: Context, command: Command) -> Reply:
    header = _read(command, _Key)
    value = (context.sharing.notes(context.caller, header.namespace) or {}).get(header.key)
    if value is None:
        where = f"Namespace: {header.namespace[:100]} Key: {header.key[:100]}"
        raise Failure(Code.QUERY_NOT_FOUND, f"No config item, {where}")
    return reply(command, fields={"value": value})


def delete_kv(context: Context, command: Command) -> Reply:
    header = _read(command, _Key)
    return done_when_durable(command, context.sharing.delete_note(context.caller, header.namespace, header.key))


def list_kv(context: Context, command: Command) -> Reply:
    namespace = command.fields.get("namespace", "")
    found = context.sharing.notes(context.caller, namespace)
    if found is None:
        raise Failure(Code.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace[:100]}")
    return reply_json(command, {"table": dict(found)})


def _read(command: Command, kind: type[_Key] | type[_Text]) -> Any:
    try:
        return command.read(kind)
    except BadHeader as error:
        raise Failure(Code.SYSTEM_ERROR, str(error)) from None
