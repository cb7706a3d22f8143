"""Expected answers to the calls of the Java client's administrator, as Apache Kafka 4.3.1 gives them."""

from __future__ import annotations

from typing import Any

from compat.brokers import CompatBroker
from compat.programs import Program

FINE = {"refused": "none"}
TOPIC = {"internal": False, "replicas": 1, "leader": 1}
OWN = {"source": "DYNAMIC_TOPIC_CONFIG", "segment.bytes": "1073741824"}


def refused(why: str) -> dict[str, Any]:
    return {"refused": why}


def answers(program: Program, broker: CompatBroker, scenario: str, **options: str) -> list[tuple[str, dict[str, Any]]]:
    """Each call with its answer, in order."""
    lines = program.run(broker.address, scenario, **options)
    return [(line.pop("call"), line) for line in lines]


def judge_topics(program: Program, broker: CompatBroker) -> None:
    port = int(broker.address.rpartition(":")[2])
    assert answers(program, broker, "admin") == [
        ("describeCluster", {"nodes": 1, "controller": port}),
        ("createTopics", FINE),
        ("createTopics again", refused("TopicExistsException")),
        ("createTopics badly", refused("InvalidTopicException")),
        ("createTopics replicated", refused("InvalidReplicationFactorException")),
        ("describeTopics", {"partitions": 3, **TOPIC}),
        ("createPartitions", FINE),
        ("createPartitions less", refused("InvalidPartitionsException")),
        ("describeTopics", {"partitions": 5, **TOPIC}),
        ("describeConfigs", {"retention.ms": "86400000", "cleanup.policy": "compact,delete", **OWN}),
        ("incrementalAlterConfigs", FINE),
        ("incrementalAlterConfigs badly", refused("InvalidConfigurationException")),
        ("describeConfigs", {"retention.ms": "5000", "cleanup.policy": "delete", **OWN}),
        ("deleteRecords", FINE),
        ("listOffsets", {"earliest": 4, "latest": 10}),
        ("deleteRecords too far", refused("OffsetOutOfRangeException")),
        ("deleteTopics", FINE),
        ("deleteTopics again", refused("UnknownTopicOrPartitionException")),
    ]


def judge_groups(program: Program, broker: CompatBroker, protocol: str) -> None:
    group = f"governed-{protocol}"
    used, unused = ("range", "") if protocol == "classic" else ("uniform", "uniform")
    members = [["me", "/127.0.0.1", 2]]
    assert answers(program, broker, "admin-groups", protocol=protocol) == [
        ("describeConsumerGroups", {"state": "Stable", "assignor": used, "members": members}),
        ("deleteConsumerGroups used", refused("GroupNotEmptyException")),
        ("describeConsumerGroups", {"state": "Empty", "assignor": unused, "members": []}),
        ("listConsumerGroupOffsets", {"offsets": {f"{group}-0": [3, "noted"]}}),
        ("alterConsumerGroupOffsets", FINE),
        ("listConsumerGroupOffsets", {"offsets": {f"{group}-0": [1, ""]}}),
        ("deleteConsumerGroupOffsets", FINE),
        ("listConsumerGroupOffsets", {"offsets": {}}),
        ("listConsumerGroups", {"groups": [group]}),
        ("deleteConsumerGroups", FINE),
        ("deleteConsumerGroups again", refused("GroupIdNotFoundException")),
    ]


def judge_the_rest(program: Program, broker: CompatBroker) -> None:
    assert answers(program, broker, "admin-rest") == [
        ("describeProducers", {"open": 1}),
        ("listTransactions", {"states": ["Ongoing"]}),
        ("describeTransactions", {"partitions": 1}),
        ("fenceProducers", FINE),
        ("describeProducers", {"open": 0}),
        ("listTransactions", {"states": ["Empty"]}),
        ("describeTransactions", {"partitions": 0}),
        ("describeLogDirs", {"topic": True}),
        ("electLeaders", refused("ElectionNotNeededException")),
        ("alterPartitionReassignments", refused("InvalidReplicaAssignmentException")),
        ("listPartitionReassignments", {"found": 0}),
        ("describeAcls", refused("SecurityDisabledException")),
        ("alterClientQuotas", FINE),
        ("describeClientQuotas", {"quotas": {"consumer_byte_rate": 1e6}}),
        ("alterUserScramCredentials", FINE),
        ("describeUserScramCredentials", {"users": ["alice"]}),
    ]
