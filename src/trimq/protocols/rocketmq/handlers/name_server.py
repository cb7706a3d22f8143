"""GET_ROUTEINFO_BY_TOPIC (105), GET_BROKER_CLUSTER_INFO (106), GET_ALL_TOPIC_LIST (206), GET_TOPICS_BY_CLUSTER (224),
GET_SYSTEM_TOPIC_LIST_FROM_NS (304), GET_UNIT_TOPIC_LIST (311), GET_HAS_UNIT_SUB_TOPIC_LIST (312),
GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313), WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327),
DELETE_TOPIC_IN_NAMESRV (216), REGISTER_TOPIC_IN_NAMESRV (217).

Routes, topic lists and write permissions of all registered brokers and of the broker in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_list, read_object
from trimq.protocols.rocketmq.handlers.kv_config import ORDER_CONFIG_NAMESPACE, is_on
from trimq.protocols.rocketmq.name_server.broker_registry import BrokerData
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.lenient_json import write_object_keyed
from trimq.protocols.rocketmq.wire.registrations import QueueData, read_queue_data
from trimq.protocols.rocketmq.wire.replies import UNORDERED, reply, reply_json
from trimq.protocols.turns import reply_over_turns
from trimq.wire.remoting import STRICT_JSON_FROM, Command

UNIT, HAS_UNIT_SUBSCRIBERS = 1, 2  # bits of a topic's flags


def route(context: Context, command: Command) -> Reply:
    name = command.fields.get("topic")
    queues = _queues(context, name) if name else {}
    brokers = [found for found in (_broker(context, each) for each in queues) if found is not None]
    if name is None or not brokers:
        shown = "null" if name is None else name[:200]
        raise RemotingRefusal(
            ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {shown}"
        )
    is_strict = command.version >= STRICT_JSON_FROM or command.fields.get("acceptStandardJsonOnly") == "true"
    data: dict[str, Any] = {
        "brokerDatas": [_broker_data(broker, is_strict) for broker in brokers],
        "filterServerTable": {},
        "queueDatas": [_queue_data(broker, each) for broker, each in queues.items()],
    }
    if is_on(context, "orderMessageEnable"):
        order = (context.commit_log.kv_config.all(context.caller, ORDER_CONFIG_NAMESPACE) or {}).get(name)
        data |= {} if order is None else {"orderTopicConf": order}
    return reply_json(command, data)


def _queues(context: Context, name: str) -> dict[str, QueueData]:
    """Returns the queues of a topic by broker name."""
    own = context.services.naming.own_routes.topic(context.caller, name)
    ours = {} if own is None else {context.services.identity.broker_name: own}
    return {**context.services.naming.registry.topic(name), **ours}


def _broker(context: Context, name: str) -> BrokerData | None:
    own = context.services.naming.own_routes.broker
    return own if own is not None and own.name == name else context.services.naming.registry.broker(name)


def _brokers(context: Context) -> list[BrokerData]:
    own = context.services.naming.own_routes.broker
    ours = [] if own is None else [own]
    return ours + [
        broker for broker in context.services.naming.registry.brokers() if own is None or broker.name != own.name
    ]


def _queue_data(broker: str, queues: QueueData) -> dict[str, Any]:
    return {
        "brokerName": broker,
        "perm": queues.permissions,
        "readQueueNums": queues.read,
        "topicSysFlag": queues.flags,
        "writeQueueNums": queues.write,
    }


def _broker_data(broker: BrokerData, is_strict: bool) -> dict[str, Any]:
    """Without `is_strict`, broker ids are keys without quotes, as old clients expect."""
    addresses = broker.addresses
    return {
        "brokerAddrs": addresses if is_strict else msgspec.Raw(write_object_keyed(addresses.items())),
        "brokerName": broker.name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.acts_as_master,
    }


def cluster_info(context: Context, command: Command) -> Reply:
    brokers = _brokers(context)
    clusters: dict[str, list[str]] = {}
    for broker in brokers:
        clusters.setdefault(broker.cluster, []).append(broker.name)
    table = {broker.name: _broker_data(broker, False) for broker in brokers}
    return reply_json(command, {"brokerAddrTable": table, "clusterAddrTable": clusters})


# -- lists of topics


_Topics = dict[str, dict[str, QueueData]]
"""Queues of each topic by broker name."""

# Topics per turn of the loop: about a millisecond.
_AT_ONCE = 100


def _reply_topics(context: Context, command: Command, choose: Callable[[_Topics], Iterable[str]]) -> Reply:
    """Replies with the names that `choose` returns. The topics are collected over several turns of the loop."""
    naming, own_name = context.services.naming, context.services.identity.broker_name
    found = {name: dict(brokers) for name, brokers in naming.registry.topics()}
    own = naming.own_routes.topics(context.caller)

    def add() -> bool:
        taken = list(islice(own, _AT_ONCE))
        for topic in taken:
            if topic is not None:
                found.setdefault(topic[0], {})[own_name] = topic[1]
        return len(taken) == _AT_ONCE

    def finish() -> Reply:
        return reply_json(command, {"topicList": list(choose(found))})

    return reply_over_turns(context.services.clock.liveness, add, finish, UNORDERED)


def topic_list(context: Context, command: Command) -> Reply:
    return _reply_topics(context, command, lambda topics: topics)


def topics_by_cluster(context: Context, command: Command) -> Reply:
    cluster = command.fields.get("cluster")
    members = {broker.name for broker in _brokers(context) if broker.cluster == cluster}
    return _reply_topics(
        context, command, lambda topics: [name for name in topics if not members.isdisjoint(topics[name])]
    )


def system_topic_list(context: Context, command: Command) -> Reply:
    brokers = _brokers(context)
    names = list(dict.fromkeys(name for broker in brokers for name in (broker.cluster, broker.name)))
    address = next((address for broker in brokers for address in broker.addresses.values()), "")
    return reply_json(command, {"brokerAddr": address, "topicList": names})


def unit_topic_list(context: Context, command: Command) -> Reply:
    return _flagged(context, command, UNIT, UNIT)


def unit_subscribed_topic_list(context: Context, command: Command) -> Reply:
    return _flagged(context, command, HAS_UNIT_SUBSCRIBERS, HAS_UNIT_SUBSCRIBERS)


def unit_subscribed_plain_topic_list(context: Context, command: Command) -> Reply:
    return _flagged(context, command, UNIT | HAS_UNIT_SUBSCRIBERS, HAS_UNIT_SUBSCRIBERS)


def _flagged(context: Context, command: Command, mask: int, wanted: int) -> Reply:
    def choose(topics: _Topics) -> list[str]:
        return [name for name, brokers in topics.items() if next(iter(brokers.values())).flags & mask == wanted]

    return _reply_topics(context, command, choose)


# -- write permissions and routes set by hand


def wipe_write_permission(context: Context, command: Command) -> Reply:
    return reply(command, fields={"wipeTopicCount": str(_set_writable(context, command, False))})


def add_write_permission(context: Context, command: Command) -> Reply:
    return reply(command, fields={"addTopicCount": str(_set_writable(context, command, True))})


def _set_writable(context: Context, command: Command, is_writable: bool) -> int:
    context.commit_log.admin.require_administrator(context.caller)
    name = command.fields.get("brokerName", "")
    context.commit_log.admin.record_change(context.caller, "alter", "route", name, writable=is_writable)
    own = context.services.naming.own_routes.broker
    if own is not None and own.name == name:
        return context.services.naming.own_routes.set_writable(context.caller, is_writable)
    return context.services.naming.registry.set_writable(name, is_writable)


def register_topic(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_administrator(context.caller)
    name = command.fields.get("topic", "")
    if not name:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "topic is missing")
    try:
        rows = read_list(read_object(command).get("queueDatas"))
        queue_data = {str(row["brokerName"]): read_queue_data(row) for row in rows}
    except (KeyError, msgspec.MsgspecError) as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"invalid topic route: {error}") from None
    context.commit_log.admin.record_change(context.caller, "register", "route", name)
    context.services.naming.registry.put_topic(
        name, {broker: queues for broker, queues in queue_data.items() if _broker(context, broker)}
    )
    return reply(command)


def delete_topic(context: Context, command: Command) -> Reply:
    """Deletes the routes of other brokers. A topic of the broker in this process keeps its route while it exists."""
    context.commit_log.admin.require_administrator(context.caller)
    name = command.fields.get("topic", "")
    context.services.naming.registry.delete_topic(name, command.fields.get("clusterName") or None)
    context.commit_log.admin.record_change(context.caller, "unregister", "route", name)
    return reply(command)
