"""Generated steps about the cluster: brokers, folders, replicas, the metadata quorum, rights and logins."""

from __future__ import annotations

from differential.kafka_world import Fields, World


def describe_cluster(world: World) -> None:
    fields: Fields = {
        "include_cluster_authorized_operations": world.chance(0.4),
        "endpoint_type": world.pick([1], [0, 2, 3], 0.2),
        "include_fenced_brokers": world.chance(0.3),
    }
    world.add("DescribeCluster", fields)


def describe_log_dirs(world: World) -> None:
    topics = [
        {"topic": each["name"], "partitions": world.partitions(each["name"])}
        for each in world.some_topics(0.15, internal=False)
    ]
    world.add("DescribeLogDirs", {"topics": topics})


def alter_replica_log_dirs(world: World) -> None:
    """To a folder that does not exist: the folders of the two brokers have different names."""
    topics = [
        {"name": each["name"], "partitions": world.partitions(each["name"])}
        for each in world.some_topics(0.15, internal=False)
    ]
    paths = [world.pick(["/no/such/folder"], ["", "relative", "/no/other"], 0.3) for _ in range(world.several(2))]
    dirs = [{"path": path, "topics": topics} for path in dict.fromkeys(paths)]
    world.add("AlterReplicaLogDirs", {"dirs": dirs})


def describe_quorum(world: World) -> None:
    name = world.pick(["__cluster_metadata"], ["%t0", ""], 0.3)
    partitions = [{"partition_index": world.pick([0], [1, -1], 0.2)}]
    world.add("DescribeQuorum", {"topics": [{"topic_name": name, "partitions": partitions}]})


def describe_acls(world: World) -> None:
    fields = {
        "resource_type_filter": world.pick([1, 2, 3, 4], [0, 99]),
        "resource_name_filter": world.pick([None, "%t0"], [""]),
        "pattern_type_filter": world.pick([1, 3, 4], [0, 2, 99], 0.2),
        "principal_filter": None,
        "host_filter": None,
        "operation": world.pick([1, 3], [0, 99]),
        "permission_type": world.pick([1, 3], [0, 99]),
    }
    world.add("DescribeAcls", fields)


def handshake(world: World) -> None:
    """On a listener without logins."""
    world.add("SaslHandshake", {"mechanism": world.pick(["PLAIN", "SCRAM-SHA-256"], ["", "x"])})


AREA = [
    (3, describe_cluster),
    (3, describe_log_dirs),
    (2, alter_replica_log_dirs),
    (2, describe_quorum),
    (1, describe_acls),
    (1, handshake),
]
