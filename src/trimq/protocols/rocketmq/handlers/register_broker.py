"""REGISTER_BROKER (103), UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322), BROKER_HEARTBEAT (904),
GET_BROKER_MEMBER_GROUP (901).

Registers other brokers, with their topics, at this name server; 322 and 904 keep a registration alive. The name of the
broker in this process is refused.
Not served: changes of broker roles and controllers (902, 903, 905, 906, 908, 1001 to 1013)."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.kv_config import ORDER_CONFIG_NAMESPACE, is_on
from trimq.protocols.rocketmq.name_server.broker_registry import HEARTBEAT_TIMEOUT_MS, MASTER, RegisteredBroker
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.registrations import BadRegistration, read_registration, read_version
from trimq.protocols.rocketmq.wire.replies import reply, reply_json
from trimq.wire.remoting import NO_FIELDS, Command


class _Broker(msgspec.Struct):
    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: Int64 = 0


class _Register(_Broker):
    haServerAddr: str = ""
    compressed: bool = False
    bodyCrc32: Int32 = 0
    heartbeatTimeoutMillis: Int64 | None = None
    enableActingMaster: bool | None = None


def _require_registrant(context: Context, command: Command) -> None:
    """A broker may register if `rocketmq.allowed_brokers` lists its address and it connects from that host, or as an
    administrator. Without users and without a list, every broker may."""
    allowed = [each.strip() for each in context.services.settings.allowed_brokers.split(";") if each.strip()]
    address = command.fields.get("brokerAddr", "")
    if address in allowed and _host(address) == _host(context.caller.address):
        return
    context.commit_log.admin.require_administrator(context.caller)
    if allowed and not context.services.signatures.is_login_required:
        reason = f"{address} is not in rocketmq.allowed_brokers, or connects from another host"
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, reason)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def register(context: Context, command: Command) -> Reply:
    _require_registrant(context, command)
    header = command.read(_Register)
    if header.bodyCrc32 and zlib.crc32(command.body) & 0x7FFFFFFF != header.bodyCrc32:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    own = context.services.naming.own_routes.broker
    if own is not None and header.brokerName == own.name:
        reason = f"{own.name} is the broker in this process: take another brokerName, or set rocketmq.broker_name here"
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)
    try:
        registration = read_registration(command.body, header.compressed, context.services.settings.frame_bytes)
    except BadRegistration as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    registrant = RegisteredBroker(header.clusterName, header.brokerName, header.brokerAddr, header.brokerId)
    registry = context.services.naming.registry
    if registry.version(header.clusterName, header.brokerAddr) is None:
        named = {"broker": header.brokerName, "cluster": header.clusterName}
        context.commit_log.admin.record_change(context.caller, "register", "route", header.brokerAddr, **named)
    registry.register(
        registrant,
        context.outlet,
        header.haServerAddr,
        registration,
        header.heartbeatTimeoutMillis or HEARTBEAT_TIMEOUT_MS,
        header.enableActingMaster,
    )
    master = registry.master(header.brokerName) if header.brokerId != MASTER else None
    fields = NO_FIELDS if master is None else {"masterAddr": master[0], "haServerAddr": master[1]}
    return reply(command, fields=fields, body=_order_config(context))


def _order_config(context: Context) -> bytes:
    found = context.commit_log.kv_config.all(context.caller, ORDER_CONFIG_NAMESPACE)
    if found is None or not is_on(context, "returnOrderTopicConfigToBroker"):
        return b""
    return msgspec.json.encode({"table": dict(found)})


def unregister(context: Context, command: Command) -> Reply:
    _require_registrant(context, command)
    header = command.read(_Broker)
    registry = context.services.naming.registry
    if registry.version(header.clusterName, header.brokerAddr) is not None:
        context.commit_log.admin.record_change(context.caller, "unregister", "route", header.brokerAddr)
    registry.unregister(header.clusterName, header.brokerAddr)
    return reply(command)


def query_version(context: Context, command: Command) -> Reply:
    """An unchanged version counts as a heartbeat."""
    _require_registrant(context, command)
    header = command.read(_Broker)
    try:
        registration = read_version(command.body)
    except BadRegistration as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    known = context.services.naming.registry.version(header.clusterName, header.brokerAddr)
    if known is None:
        return reply(command, fields={"changed": "true"})
    if known == registration:
        context.services.naming.registry.record_heartbeat(header.clusterName, header.brokerAddr)
    fields = {"changed": "false" if known == registration else "true"}
    return reply(command, fields=fields, body=msgspec.json.encode(known))


def heartbeat(context: Context, command: Command) -> Reply:
    _require_registrant(context, command)
    header = command.read(_Broker)
    context.services.naming.registry.record_heartbeat(header.clusterName, header.brokerAddr)
    return reply(command)


def member_group(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_known(context.caller)
    fields = command.fields
    cluster, name = fields.get("clusterName", ""), fields.get("brokerName", "")
    own = context.services.naming.own_routes.broker
    found = own if own is not None and own.name == name else context.services.naming.registry.broker(name)
    members: dict[str, Any] = {"brokerAddrs": {}, "brokerName": name, "cluster": cluster}
    if found is not None and found.cluster == cluster:
        members["brokerAddrs"] = found.addresses
    return reply_json(command, {"brokerMemberGroup": members})
