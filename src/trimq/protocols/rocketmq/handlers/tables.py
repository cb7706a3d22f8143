"""Tables from request code to handler: broker, VIP port of the broker, and name server. A code in no table is answered
with REQUEST_CODE_NOT_SUPPORTED (3)."""

from __future__ import annotations

from trimq.protocols.rocketmq.handlers import (
    ack,
    acls,
    assignment,
    broker_admin,
    broker_config,
    forbidden_topics,
    groups,
    heartbeat,
    kv_config,
    name_server,
    offsets,
    pop,
    pull,
    query,
    recall,
    register_broker,
    relay_to_client,
    reply_message,
    reset_offset,
    send,
    send_back,
    statistics,
    topics,
    transactions,
    users,
)
from trimq.protocols.rocketmq.handlers.context import Handler
from trimq.protocols.rocketmq.wire.codes import RequestCode

BROKER: dict[int, Handler] = {
    RequestCode.SEND_MESSAGE: send.send,
    RequestCode.SEND_MESSAGE_V2: send.send,
    RequestCode.SEND_BATCH_MESSAGE: send.send,
    RequestCode.SEND_REPLY_MESSAGE: reply_message.send_reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: reply_message.send_reply,
    RequestCode.PULL_MESSAGE: pull.pull,
    RequestCode.LITE_PULL_MESSAGE: pull.pull,
    RequestCode.POP_MESSAGE: pop.pop,
    RequestCode.PEEK_MESSAGE: pop.peek,
    RequestCode.NOTIFICATION: pop.notify,
    RequestCode.POLLING_INFO: pop.polling_info,
    RequestCode.ACK_MESSAGE: ack.ack,
    RequestCode.BATCH_ACK_MESSAGE: ack.ack_batch,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: ack.change_invisible,
    RequestCode.QUERY_ASSIGNMENT: assignment.query_assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: assignment.set_mode,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: assignment.all_modes,
    RequestCode.QUERY_MESSAGE: query.query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: query.view_message,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.query_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search_offset,
    RequestCode.GET_MAX_OFFSET: offsets.max_offset,
    RequestCode.GET_MIN_OFFSET: offsets.min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_time,
    RequestCode.RECALL_MESSAGE: recall.recall,
    RequestCode.CONSUMER_SEND_MSG_BACK: send_back.send_back,
    RequestCode.END_TRANSACTION: transactions.end_transaction,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: transactions.resume_check,
    RequestCode.HEART_BEAT: heartbeat.heartbeat,
    RequestCode.UNREGISTER_CLIENT: heartbeat.unregister,
    RequestCode.CHECK_CLIENT_CONFIG: heartbeat.check_client_config,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: heartbeat.consumer_list,
    RequestCode.LOCK_BATCH_MQ: heartbeat.lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: heartbeat.unlock_queues,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.update_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.update_groups,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.group_config,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.all_group_configs,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete_group,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: forbidden_topics.update_forbidden,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.consumer_connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: groups.producer_connections,
    RequestCode.GET_ALL_PRODUCER_INFO: groups.all_producers,
    RequestCode.GET_ALL_CONSUMER_OFFSET: groups.all_offsets,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: reset_offset.reset,
    RequestCode.CLONE_GROUP_OFFSET: reset_offset.clone_offsets,
    RequestCode.QUERY_CORRECTION_OFFSET: reset_offset.correction_offsets,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relay_to_client.consumer_status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: relay_to_client.running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: relay_to_client.consume_directly,
    RequestCode.GET_TOPIC_STATS_INFO: statistics.topic_stats,
    RequestCode.GET_CONSUME_STATS: statistics.consume_stats,
    RequestCode.GET_BROKER_CONSUME_STATS: statistics.broker_consume_stats,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: statistics.groups_of_topic,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: statistics.topics_of_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: statistics.subscription_of_group,
    RequestCode.QUERY_CONSUME_TIME_SPAN: statistics.time_span,
    RequestCode.VIEW_BROKER_STATS_DATA: statistics.stats_data,
    RequestCode.UPDATE_AND_CREATE_TOPIC: topics.update_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topics.update_topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_topic_list,
    RequestCode.GET_BROKER_CONFIG: broker_config.get_config,
    RequestCode.UPDATE_BROKER_CONFIG: broker_config.update_config,
    RequestCode.GET_BROKER_RUNTIME_INFO: broker_admin.runtime_info,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: broker_admin.clean_expired,
    RequestCode.DELETE_EXPIRED_COMMITLOG: broker_admin.clean_expired,
    RequestCode.GET_BROKER_HA_STATUS: broker_admin.ha_status,
    RequestCode.CLEAN_UNUSED_TOPIC: broker_admin.clean_unused_topics,
    RequestCode.QUERY_CONSUME_QUEUE: query.query_queue,
    RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete_topic,
    RequestCode.GET_TOPIC_CONFIG: topics.topic_config,
    RequestCode.GET_ALL_TOPIC_CONFIG: topics.all_topic_configs,
    RequestCode.AUTH_CREATE_USER: users.create,
    RequestCode.AUTH_UPDATE_USER: users.update,
    RequestCode.AUTH_DELETE_USER: users.delete,
    RequestCode.AUTH_GET_USER: users.get,
    RequestCode.AUTH_LIST_USER: users.list_users,
    RequestCode.AUTH_CREATE_ACL: acls.create,
    RequestCode.AUTH_UPDATE_ACL: acls.update,
    RequestCode.AUTH_DELETE_ACL: acls.delete,
    RequestCode.AUTH_GET_ACL: acls.get,
    RequestCode.AUTH_LIST_ACL: acls.list_acls,
}

# Not limited by `rocketmq.command_bytes`: messages and registrations of brokers have limits of their own.
WITH_LARGE_BODIES = frozenset(
    (
        *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
        *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.REGISTER_BROKER),
    )
)

# Of brokers that register, whom a setting can allow: these check their callers themselves.
OF_REGISTRANTS = frozenset(
    (
        *(RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION),
        *(RequestCode.BROKER_HEARTBEAT, RequestCode.GET_BROKER_MEMBER_GROUP),
    )
)

# Old clients send to the VIP port, and never consume from it.
_NOT_FOR_OLD_CLIENTS = frozenset(
    (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE)
)
VIP: dict[int, Handler] = {code: handler for code, handler in BROKER.items() if code not in _NOT_FOR_OLD_CLIENTS}

NAME_SERVER: dict[int, Handler] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: name_server.route,
    RequestCode.GET_BROKER_CLUSTER_INFO: name_server.cluster_info,
    RequestCode.GET_ALL_TOPIC_LIST: name_server.topic_list,
    RequestCode.GET_TOPICS_BY_CLUSTER: name_server.topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: name_server.system_topic_list,
    RequestCode.GET_UNIT_TOPIC_LIST: name_server.unit_topic_list,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: name_server.unit_subscribed_topic_list,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: name_server.unit_subscribed_plain_topic_list,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: name_server.wipe_write_permission,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: name_server.add_write_permission,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: name_server.register_topic,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: name_server.delete_topic,
    RequestCode.REGISTER_BROKER: register_broker.register,
    RequestCode.UNREGISTER_BROKER: register_broker.unregister,
    RequestCode.QUERY_DATA_VERSION: register_broker.query_version,
    RequestCode.BROKER_HEARTBEAT: register_broker.heartbeat,
    RequestCode.GET_BROKER_MEMBER_GROUP: register_broker.member_group,
    RequestCode.PUT_KV_CONFIG: kv_config.put_kv,
    RequestCode.GET_KV_CONFIG: kv_config.get_kv,
    RequestCode.DELETE_KV_CONFIG: kv_config.delete_kv,
    RequestCode.GET_KVLIST_BY_NAMESPACE: kv_config.list_kv,
    RequestCode.GET_NAMESRV_CONFIG: kv_config.get_config,
    RequestCode.UPDATE_NAMESRV_CONFIG: kv_config.update_config,
}
