"""Rights that every Kafka API needs, as a table: a request of each API and the operations on resources that it needs,
as documented for Apache Kafka's authorizer. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.schema import RequestMessage, Struct
from trimq.protocols.kafka.wire.apis import APIS, request_class

TOPIC, GROUP, TXID, CLUSTER = "topic", "group", "transactional id", "cluster"
NAMES = {TOPIC: "orders", GROUP: "billing", TXID: "tx", CLUSTER: "kafka-cluster"}
TYPES = {TOPIC: 2, GROUP: 3, CLUSTER: 4, TXID: 5}
CODES = {TOPIC: 29, GROUP: 30, CLUSTER: 31, TXID: 53}
OPERATIONS = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
IMPLIED = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
CONFIGURE = {"CREATE", "DELETE", "ALTER", "ALTER_CONFIGS"}

Need = tuple[str, str]
"""An operation and the kind of the resource."""


class Row(NamedTuple):
    """`ways`: alternatives, each a set of operations that are all needed; without one, only administrators pass. `case`
    distinguishes rows of one API. `seen`: name that the response has only if the request is allowed, for APIs that
    leave out what the caller may not see."""

    api: str
    fields: Mapping[str, Any]
    ways: tuple[frozenset[Need], ...]
    case: str = ""
    version: int | None = None
    seen: str = ""
    restore: str = ""
    """What an allowed request removed, and the next one needs again."""

    @property
    def id(self) -> str:
        return f"{self.api} {self.case}".strip()

    def request(self) -> RequestMessage:
        return build(request_class(_KEYS[self.api]), self.fields)


_KEYS = {api.name: api.key for api in APIS.values()}


def build(kind: type[Struct], values: Mapping[str, Any]) -> Any:
    """Builds a message from nested dicts and lists."""
    given = {}
    for field in kind.FIELDS:
        if field.name not in values:
            if field.nullable != "none" and field.default is not None:
                given[field.name] = None
            continue
        value = values[field.name]
        if isinstance(field.element, type) and value is not None:
            element: type[Struct] = field.element
            value = build(element, value) if isinstance(value, dict) else [build(element, each) for each in value]
        given[field.name] = value
    assert set(values) <= {field.name for field in kind.FIELDS}, (kind, values)
    return kind(**given)


def all_of(*needs: Need) -> tuple[frozenset[Need], ...]:
    return (frozenset(needs),)


def one_of(*needs: Need) -> tuple[frozenset[Need], ...]:
    return tuple(frozenset({need}) for need in needs)


def holds(granted: Need, need: Need) -> bool:
    """Returns whether a granted operation allows the needed one."""
    if granted[1] != need[1]:
        return False
    return granted[0] == need[0] or granted[0] in IMPLIED.get(need[0], ())


NOBODY: tuple[frozenset[Need], ...] = ()
EVERYBODY: tuple[frozenset[Need], ...] = (frozenset(),)

_BATCH = bytearray(from_records([Record(b"1")]))
_PRODUCED = [{"name": "orders", "partition_data": [{"index": 0, "records": _BATCH}]}]
_PRODUCER = {"producer_id": 4711, "producer_epoch": 0}
_CONFIG = [{"name": "retention.ms", "value": "1000"}]
_CHANGE = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
_GROUP_CONFIG = [{"name": "consumer.session.timeout.ms", "value": "45000"}]
_GROUP_CHANGE = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "45000"}]
_BROKER_CONFIG = [{"name": "log.retention.ms", "value": "1000"}]
_BROKER_CHANGE = [{"name": "log.retention.ms", "config_operation": 0, "value": "1000"}]
_ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}
_ACL = {
    "resource_type": 2,
    "resource_name": "other",
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_MEMBER = {"group_id": "billing", "member_id": "stranger"}

LOGIN = ("SaslHandshake", "SaslAuthenticate")
"""APIs that need no right, and no row: they are the login."""

ROWS = (
    Row("Produce", {"acks": -1, "topic_data": _PRODUCED}, all_of(("WRITE", TOPIC)), version=12),
    Row("Fetch", {"topics": [{"topic": "orders", "partitions": [{"partition": 0}]}]}, all_of(("READ", TOPIC)),
        version=12),
    Row("ListOffsets", {"topics": [{"name": "orders", "partitions": [{"timestamp": -1}]}]},
        all_of(("DESCRIBE", TOPIC))),
    Row("Metadata", {"topics": [{"name": "orders"}]}, all_of(("DESCRIBE", TOPIC)), "of a topic"),
    Row("Metadata", {"topics": None}, all_of(("DESCRIBE", TOPIC)), "of all topics", seen="orders"),
    Row("Metadata", {"topics": []}, EVERYBODY, "of no topic"),
    Row("OffsetCommit",
        {"group_id": "billing", "topics": [{"name": "orders", "partitions": [{"committed_offset": 1}]}]},
        all_of(("READ", GROUP), ("READ", TOPIC)), version=9),
    Row("OffsetFetch",
        {"groups": [{"group_id": "billing", "topics": [{"name": "orders", "partition_indexes": [0]}]}]},
        all_of(("DESCRIBE", GROUP), ("DESCRIBE", TOPIC)), version=9),
    Row("FindCoordinator", {"key_type": 0, "coordinator_keys": ["billing"]}, all_of(("DESCRIBE", GROUP)), "of a group"),
    Row("FindCoordinator", {"key_type": 1, "coordinator_keys": ["tx"]}, all_of(("DESCRIBE", TXID)), "of a transaction"),
    Row("JoinGroup", {**_MEMBER, "session_timeout_ms": 10_000, "protocol_type": "consumer",
                      "protocols": [{"name": "range", "metadata": b""}]}, all_of(("READ", GROUP))),
    Row("Heartbeat", {**_MEMBER, "generation_id": 1}, all_of(("READ", GROUP))),
    Row("LeaveGroup", {"group_id": "billing", "members": [{"member_id": "stranger"}]}, all_of(("READ", GROUP))),
    Row("SyncGroup", {**_MEMBER, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"},
        all_of(("READ", GROUP))),
    Row("DescribeGroups", {"groups": ["billing"]}, all_of(("DESCRIBE", GROUP))),
    Row("ListGroups", {}, one_of(("DESCRIBE", GROUP), ("DESCRIBE", CLUSTER)), seen="billing"),
    Row("ApiVersions", {"client_software_name": "a", "client_software_version": "1"}, EVERYBODY),
    Row("CreateTopics", {"topics": [{"name": "orders", "num_partitions": 1, "replication_factor": 1}],
                         "timeout_ms": 1000}, one_of(("CREATE", TOPIC), ("CREATE", CLUSTER))),
    Row("DeleteTopics", {"topics": [{"name": "orders"}], "timeout_ms": 1000},
        one_of(("DELETE", TOPIC), ("DELETE", CLUSTER)),
        restore="topic"),
    Row("DeleteRecords", {"topics": [{"name": "orders", "partitions": [{"offset": 0}]}], "timeout_ms": 1000},
        all_of(("DELETE", TOPIC))),
    Row("InitProducerId", {"transactional_id": "tx", "transaction_timeout_ms": 60_000, "producer_id": -1,
                           "producer_epoch": -1}, all_of(("WRITE", TXID)), "of a transaction"),
    Row("InitProducerId", {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        one_of(("IDEMPOTENT_WRITE", CLUSTER), ("WRITE", TOPIC)), "without a transaction"),
    Row("OffsetForLeaderEpoch", {"topics": [{"topic": "orders", "partitions": [{"leader_epoch": 0}]}]},
        one_of(("DESCRIBE", TOPIC), ("CLUSTER_ACTION", CLUSTER))),
    Row("AddPartitionsToTxn",
        {"v3_and_below_transactional_id": "tx", "v3_and_below_producer_id": 4711, "v3_and_below_producer_epoch": 0,
         "v3_and_below_topics": [{"name": "orders", "partitions": [0]}]}, all_of(("WRITE", TXID), ("WRITE", TOPIC)),
        version=3),
    Row("AddOffsetsToTxn", {"transactional_id": "tx", **_PRODUCER, "group_id": "billing"},
        all_of(("WRITE", TXID), ("READ", GROUP))),
    Row("EndTxn", {"transactional_id": "tx", **_PRODUCER, "committed": False}, all_of(("WRITE", TXID))),
    Row("WriteTxnMarkers", {"markers": [{**_PRODUCER, "topics": [{"name": "orders", "partition_indexes": [9]}]}]},
        one_of(("CLUSTER_ACTION", CLUSTER), ("ALTER", CLUSTER))),
    Row("TxnOffsetCommit",
        {"transactional_id": "tx", "group_id": "billing", **_PRODUCER, "generation_id": -1,
         "topics": [{"name": "orders", "partitions": [{"committed_offset": 1}]}]},
        all_of(("WRITE", TXID), ("READ", GROUP), ("READ", TOPIC))),
    Row("DescribeAcls", _ANY_ACL, all_of(("DESCRIBE", CLUSTER))),
    Row("CreateAcls", {"creations": [_ACL]}, all_of(("ALTER", CLUSTER))),
    Row("DeleteAcls", {"filters": [_ANY_ACL]}, all_of(("ALTER", CLUSTER))),
    *(
        Row("DescribeConfigs", {"resources": [{"resource_type": type, "resource_name": name}]},
            all_of(("DESCRIBE_CONFIGS", kind)), f"of {name}")
        for type, name, kind in ((2, "orders", TOPIC), (4, "1", CLUSTER), (8, "1", CLUSTER), (32, "billing", GROUP))
    ),
    *(
        Row(api, {"resources": [{"resource_type": type, "resource_name": name, "configs": change}],
                  "validate_only": True}, all_of(("ALTER_CONFIGS", kind)), f"of {name}")
        for type, name, kind, replaced, changed in (
            (2, "orders", TOPIC, _CONFIG, _CHANGE),
            (4, "1", CLUSTER, _BROKER_CONFIG, _BROKER_CHANGE),
            (32, "billing", GROUP, _GROUP_CONFIG, _GROUP_CHANGE),
        )
        for api, change in (("AlterConfigs", replaced), ("IncrementalAlterConfigs", changed))
    ),
    Row("AlterReplicaLogDirs", {"dirs": [{"path": "/none", "topics": [{"name": "orders", "partitions": [0]}]}]},
        all_of(("ALTER", CLUSTER))),
    Row("DescribeLogDirs", {"topics": None}, all_of(("DESCRIBE", CLUSTER))),
    Row("CreatePartitions", {"topics": [{"name": "orders", "count": 2}], "timeout_ms": 1000, "validate_only": True},
        all_of(("ALTER", TOPIC))),
    Row("DeleteGroups", {"groups_names": ["billing"]}, all_of(("DELETE", GROUP)), restore="group"),
    Row("ElectLeaders", {"topic_partitions": [{"topic": "orders", "partitions": [0]}]}, all_of(("ALTER", CLUSTER))),
    Row("AlterPartitionReassignments",
        {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}]},
        all_of(("ALTER", CLUSTER))),
    Row("ListPartitionReassignments", {"topics": None}, all_of(("DESCRIBE", CLUSTER))),
    Row("OffsetDelete",
        {"group_id": "billing", "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]},
        all_of(("DELETE", GROUP), ("READ", TOPIC)), restore="group"),
    Row("DescribeClientQuotas", {"components": []}, all_of(("DESCRIBE_CONFIGS", CLUSTER))),
    Row("AlterClientQuotas",
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "x"}],
                      "ops": [{"key": "producer_byte_rate", "value": 9.0}]}], "validate_only": True},
        all_of(("ALTER_CONFIGS", CLUSTER))),
    # Kafka asks for DESCRIBE and ALTER of the cluster: here credentials are for administrators, since whoever changes
    # those of an administrator becomes one.
    Row("DescribeUserScramCredentials", {"users": [{"name": "x"}]}, NOBODY),
    Row("AlterUserScramCredentials", {"deletions": [{"name": "x", "mechanism": 1}]}, NOBODY),
    Row("DescribeQuorum", {"topics": []}, all_of(("DESCRIBE", CLUSTER))),
    Row("DescribeCluster", {"endpoint_type": 1}, EVERYBODY),
    Row("DescribeProducers", {"topics": [{"name": "orders", "partition_indexes": [0]}]}, all_of(("READ", TOPIC))),
    Row("DescribeTransactions", {"transactional_ids": ["tx"]}, all_of(("DESCRIBE", TXID))),
    Row("ListTransactions", {"duration_filter": -1}, all_of(("DESCRIBE", TXID)), seen="tx"),
    Row("ConsumerGroupHeartbeat",
        {**_MEMBER, "member_epoch": 7, "subscribed_topic_names": ["orders"], "rebalance_timeout_ms": 1000},
        all_of(("READ", GROUP), ("DESCRIBE", TOPIC))),
    Row("ConsumerGroupDescribe", {"group_ids": ["billing"]}, all_of(("DESCRIBE", GROUP))),
    Row("ListConfigResources", {"resource_types": [2]}, all_of(("DESCRIBE_CONFIGS", CLUSTER))),
    Row("DescribeTopicPartitions", {"topics": [{"name": "orders"}], "response_partition_limit": 10},
        all_of(("DESCRIBE", TOPIC))),
)  # fmt: skip


def error_codes(response: Struct) -> set[int]:
    """Returns all error codes of a response, except those of settings beside a created topic."""
    found: set[int] = set()
    for field in response.FIELDS:
        value = getattr(response, field.name)
        if field.name.endswith("error_code") and not field.name.startswith("topic_config"):
            found.add(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                found |= error_codes(each)
    return found


def names(response: Struct) -> set[str]:
    """Returns all texts of a response."""
    found: set[str] = set()
    for field in response.FIELDS:
        value = getattr(response, field.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                found |= names(each)
            elif isinstance(each, str):
                found.add(each)
    return found
