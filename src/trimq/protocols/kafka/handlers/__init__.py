"""Handlers of the Kafka APIs, one file per API or pair of APIs. Each file names the APIs that it serves in `HANDLERS`;
ApiVersions announces the sum of them."""

from __future__ import annotations

from collections.abc import Callable

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    client_quotas,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    reassignments,
    sasl,
    scram_credentials,
    sync_group,
    txn_offset_commit,
)
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.wire.apis import ROWS
from trimq.protocols.kafka.wire.connection import Request

Handler = Callable[[Context, Request], Reply | None]

_MODULES = (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    client_quotas,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    reassignments,
    sasl,
    scram_credentials,
    sync_group,
    txn_offset_commit,
)
_KEYS = {api.name: api.key for api in ROWS}

HANDLERS: dict[int, Handler] = {
    _KEYS[name]: handler for module in _MODULES for name, handler in module.HANDLERS.items()
}
HANDLERS[_KEYS["ApiVersions"]] = lambda context, request: api_versions.handle(request, HANDLERS)
