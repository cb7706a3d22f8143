"""Which handler serves which code, at the broker and at the name server. A code that is in no table is answered with
"not supported"."""

from __future__ import annotations

from trimq.protocols.rocketmq.codes import Request
from trimq.protocols.rocketmq.handlers import (
    clients,
    groups,
    name_server,
    offsets,
    pulling,
    queries,
    recalling,
    retrying,
    sending,
    topics,
    transactions,
)
from trimq.protocols.rocketmq.handlers.context import Handler

BROKER: dict[int, Handler] = {
    Request.SEND_MESSAGE: sending.send,
    Request.SEND_MESSAGE_V2: sending.send,
    Request.SEND_BATCH_MESSAGE: sending.send,
    Request.PULL_MESSAGE: pulling.pull,
    Request.LITE_PULL_MESSAGE: pulling.pull,
    Request.QUERY_MESSAGE: queries.query_message,
    Request.VIEW_MESSAGE_BY_ID: queries.view_message,
    Request.QUERY_CONSUMER_OFFSET: offsets.query_offset,
    Request.UPDATE_CONSUMER_OFFSET: offsets.update_offset,
    Request.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search_offset,
    Request.GET_MAX_OFFSET: offsets.max_offset,
    Request.GET_MIN_OFFSET: offsets.min_offset,
    Request.GET_EARLIEST_MSG_STORETIME: offsets.earliest_time,
    Request.RECALL_MESSAGE: recalling.recall,
    Request.CONSUMER_SEND_MSG_BACK: retrying.send_back,
    Request.END_TRANSACTION: transactions.end_transaction,
    Request.HEART_BEAT: clients.heartbeat,
    Request.UNREGISTER_CLIENT: clients.unregister,
    Request.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
    Request.LOCK_BATCH_MQ: clients.lock_queues,
    Request.UNLOCK_BATCH_MQ: clients.unlock_queues,
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.update_group,
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.update_groups,
    Request.GET_SUBSCRIPTIONGROUP_CONFIG: groups.group_config,
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.all_group_configs,
    Request.DELETE_SUBSCRIPTIONGROUP: groups.delete_group,
    Request.GET_CONSUMER_CONNECTION_LIST: groups.consumer_connections,
    Request.GET_PRODUCER_CONNECTION_LIST: groups.producer_connections,
    Request.GET_ALL_PRODUCER_INFO: groups.all_producers,
    Request.GET_ALL_CONSUMER_OFFSET: groups.all_offsets,
    Request.UPDATE_AND_CREATE_TOPIC: topics.update_topic,
    Request.DELETE_TOPIC_IN_BROKER: topics.delete_topic,
    Request.GET_TOPIC_CONFIG: topics.topic_config,
    Request.GET_ALL_TOPIC_CONFIG: topics.all_topic_configs,
}

# Old clients send here, and never pull.
VIP: dict[int, Handler] = {
    code: handler for code, handler in BROKER.items() if code not in (Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE)
}

NAME_SERVER: dict[int, Handler] = {
    Request.GET_ROUTEINFO_BY_TOPIC: name_server.route,
    Request.GET_BROKER_CLUSTER_INFO: name_server.cluster_info,
    Request.GET_ALL_TOPIC_LIST: name_server.topic_list,
    Request.GET_TOPICS_BY_CLUSTER: name_server.topics_by_cluster,
    Request.GET_SYSTEM_TOPIC_LIST_FROM_NS: name_server.system_topic_list,
    Request.PUT_KV_CONFIG: name_server.put_kv,
    Request.GET_KV_CONFIG: name_server.get_kv,
    Request.DELETE_KV_CONFIG: name_server.delete_kv,
    Request.GET_KVLIST_BY_NAMESPACE: name_server.list_kv,
}
