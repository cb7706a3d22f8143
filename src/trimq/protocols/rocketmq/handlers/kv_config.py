"""PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102), GET_KVLIST_BY_NAMESPACE (219),
UPDATE_NAMESRV_CONFIG (318), GET_NAMESRV_CONFIG (319).

Stores the KV config of clients at the name server, and the name server's own settings.
Not served: settings other than the two in `_SWITCHES`; to change them is refused."""

from __future__ import annotations

from typing import Any

import msgspec

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_property_lines
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply, reply_json
from trimq.wire.remoting import BadHeader, Command

ORDER_CONFIG_NAMESPACE = "ORDER_TOPIC_CONFIG"
_NAMESPACE = "NAMESRV_CONFIG"  # KV config namespace of changed settings

# Settings that may change, with their defaults.
_SWITCHES = {"orderMessageEnable": "false", "returnOrderTopicConfigToBroker": "true"}
# Other settings of the name server of Apache RocketMQ; only these values are supported.
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
        command, context.commit_log.kv_config.put(context.caller, header.namespace, header.key, header.value)
    )


def get_kv(context: Context, command: Command) -> Reply:
    header = _read(command, _Key)
    value = (context.commit_log.kv_config.all(context.caller, header.namespace) or {}).get(header.key)
    if value is None:
        where = f"Namespace: {header.namespace[:100]} Key: {header.key[:100]}"
        raise RemotingRefusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, {where}")
    return reply(command, fields={"value": value})


def delete_kv(context: Context, command: Command) -> Reply:
    header = _read(command, _Key)
    return done_when_durable(command, context.commit_log.kv_config.delete(context.caller, header.namespace, header.key))


def list_kv(context: Context, command: Command) -> Reply:
    namespace = command.fields.get("namespace", "")
    found = context.commit_log.kv_config.all(context.caller, namespace)
    if found is None:
        raise RemotingRefusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace[:100]}")
    return reply_json(command, {"table": dict(found)})


def _read(command: Command, kind: type[_Key] | type[_Text]) -> Any:
    try:
        return command.read(kind)
    except BadHeader as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, str(error)) from None


# -- settings of the name server


def is_on(context: Context, switch: str) -> bool:
    return (context.commit_log.kv_config.all(context.caller, _NAMESPACE) or {}).get(switch, _SWITCHES[switch]) == "true"


def get_config(context: Context, command: Command) -> Reply:
    shown = {"listenPort": str(context.services.identity.name_server_port), **_FIXED}
    shown |= {switch: str(is_on(context, switch)).lower() for switch in _SWITCHES}
    return reply(command, body="".join(f"{name}={value}\n" for name, value in sorted(shown.items())).encode())


def update_config(context: Context, command: Command) -> Reply:
    """Applies all settings of the request, or none."""
    context.commit_log.admin.require_administrator(context.caller)
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
        ticket = context.commit_log.kv_config.put(context.caller, _NAMESPACE, name, given[name])
    return done_when_durable(command, ticket)
