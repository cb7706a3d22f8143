"""Codes 100 to 102 and 219 (small texts that clients keep with the name server), 318 and 319 (how it is set)."""

from __future__ import annotations

from typing import Any

import msgspec

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_property_lines
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.remoting import BadHeader, Command
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply, reply_json

ORDER_CONFIG_NAMESPACE = "ORDER_TOPIC_CONFIG"
_KEPT = "NAMESRV_CONFIG"  # where changes of what is set are kept

# What may be set, and what it is until then.
_SWITCHES = {"orderMessageEnable": "false", "returnOrderTopicConfigToBroker": "true"}
# What a genuine name server has as well; only these values are served.
_FIXED = {"clusterTest": "false", "deleteTopicWithBrokerRegistration": "false", "supportActingMaster": "false"}
_PATHS = frozenset(("rocketmqHome", "kvConfigPath", "configStorePath", "configBlackList"))


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
        command, context.commit_log_api.put_kv_config(context.caller, header.namespace, header.key, header.value)
    )


def get_kv(context: Context, command: Command) -> Reply:
    header = _read(command, _Key)
    value = (context.commit_log_api.kv_config(context.caller, header.namespace) or {}).get(header.key)
    if value is None:
        where = f"Namespace: {header.namespace[:100]} Key: {header.key[:100]}"
        raise RemotingRefusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, {where}")
    return reply(command, fields={"value": value})


def delete_kv(context: Context, command: Command) -> Reply:
    header = _read(command, _Key)
    return done_when_durable(
        command, context.commit_log_api.delete_kv_config(context.caller, header.namespace, header.key)
    )


def list_kv(context: Context, command: Command) -> Reply:
    namespace = command.fields.get("namespace", "")
    found = context.commit_log_api.kv_config(context.caller, namespace)
    if found is None:
        raise RemotingRefusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace[:100]}")
    return reply_json(command, {"table": dict(found)})


def _read(command: Command, kind: type[_Key] | type[_Text]) -> Any:
    try:
        return command.read(kind)
    except BadHeader as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, str(error)) from None


# -- how it is set


def is_on(context: Context, switch: str) -> bool:
    return (context.commit_log_api.kv_config(context.caller, _KEPT) or {}).get(switch, _SWITCHES[switch]) == "true"


def get_config(context: Context, command: Command) -> Reply:
    shown = {"listenPort": str(context.services.identity.name_server_port), **_FIXED}
    shown |= {switch: str(is_on(context, switch)).lower() for switch in _SWITCHES}
    return reply(command, body="".join(f"{name}={value}\n" for name, value in sorted(shown.items())).encode())


def update_config(context: Context, command: Command) -> Reply:
    """All of it, or nothing."""
    given = read_property_lines(command)
    for name, value in given.items():
        if name in _PATHS:
            raise RemotingRefusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if name in _FIXED and value == _FIXED[name]:
            continue
        if name not in _SWITCHES or value not in ("true", "false"):
            raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"{name[:100]} cannot be set to {value[:100]}")
    ticket = None
    for name in given.keys() & _SWITCHES.keys():
        ticket = context.commit_log_api.put_kv_config(context.caller, _KEPT, name, given[name])
    return done_when_durable(command, ticket)
