"""The handlers of what administrators ask for: topics, settings, logs, replicas, quotas and credentials."""

from __future__ import annotations

from trimq.protocols.kafka.handlers import (
    acls,
    alter_configs,
    client_quotas,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    list_config_resources,
    offset_for_leader_epoch,
    reassignments,
    scram_credentials,
)

HANDLERS = {
    19: create_topics.handle,
    20: delete_topics.handle,
    21: delete_records.handle,
    23: offset_for_leader_epoch.handle,
    29: acls.handle_describe,
    30: acls.handle_create,
    31: acls.handle_delete,
    32: describe_configs.handle,
    33: alter_configs.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    43: elect_leaders.handle,
    44: alter_configs.handle_incremental,
    45: reassignments.handle_alter,
    46: reassignments.handle_list,
    48: client_quotas.handle_describe,
    49: client_quotas.handle_alter,
    50: scram_credentials.handle_describe,
    51: scram_credentials.handle_alter,
    60: describe_cluster.handle,
    74: list_config_resources.handle,
    75: describe_topic_partitions.handle,
}
