"""Generated steps about topics, partitions and the cluster."""

from __future__ import annotations

from typing import Any

from differential.kafka_world import Fields, World

TOPIC_CONFIGS: dict[str, tuple[list[str], list[str | None]]] = {
    "cleanup.policy": (["delete", "compact", "compact,delete", "delete,compact"], ["", "none", "delete,", None]),
    "compression.type": (["producer", "gzip", "uncompressed"], ["brotli", "", "GZIP"]),
    "retention.ms": (["1000000000", "-1", "604800000"], ["-2", "abc", "", " 5", "9223372036854775808", None]),
    "retention.bytes": (["-1", "1000000"], ["-2", "1.5"]),
    "segment.bytes": (["1048576", "1073741824"], ["0", "1", "-1", "2147483648", "1000"]),
    "max.message.bytes": (["1048588", "100", "200", "0"], ["-1", "x"]),
    "message.timestamp.type": (["CreateTime", "LogAppendTime"], ["createtime", ""]),
    "message.timestamp.after.max.ms": (["3600000", "9223372036854775807", "0"], ["-1"]),
    "message.timestamp.before.max.ms": (["9223372036854775807", "3600000", "1000"], ["-1"]),
    "min.insync.replicas": (["1", "2"], ["0", "-1"]),
    "unclean.leader.election.enable": (["true", "false", "TRUE"], ["yes", ""]),
    "min.cleanable.dirty.ratio": (["0.5", "0", "1", "1e-1"], ["1.1", "-0.1", "x"]),
    "delete.retention.ms": (["86400000", "0"], ["-1"]),
    "flush.messages": (["9223372036854775807", "1"], ["0"]),
    "index.interval.bytes": (["4096", "0"], ["-1"]),
    "preallocate": (["false", "true"], ["1"]),
    "follower.replication.throttled.replicas": (["", "*", "0:1", "0:1,0:2"], ["x", "0", "0:"]),
    "leader.replication.throttled.replicas": (["", "none", "1:1"], ["0:a"]),
    "compression.gzip.level": (["-1", "1", "9"], ["0", "10"]),
    "compression.zstd.level": (["3", "22"], ["23"]),
    "remote.storage.enable": (["false"], ["true", "x"]),
    "local.retention.ms": (["-2", "1000"], ["-3"]),
}
MANY_PARTITIONS = 100_000
UNKNOWN_CONFIGS = ["no.such.config", "", "message.format.version", "log.retention.ms"]


def config(world: World) -> tuple[str, str | None]:
    name = world.pick(list(TOPIC_CONFIGS), UNKNOWN_CONFIGS, 0.06)
    usual, odd = TOPIC_CONFIGS.get(name, (["1", "x"], [""]))
    return name, world.pick(usual, odd, 0.15)


def create_topic(world: World) -> None:
    """A usual topic, with which the next steps work."""
    name = f"t{len(world.topics) + len(world.deleted)}"
    partitions = world.source.choice([1, 1, 2, 3])
    world.topics[name] = partitions
    topic: Fields = {"name": f"%{name}", "num_partitions": partitions, "replication_factor": 1, "configs": []}
    if world.chance(0.4):
        chosen = world.pick(
            [
                ("max.message.bytes", "200"),
                ("message.timestamp.type", "LogAppendTime"),
                ("cleanup.policy", "compact"),
                ("cleanup.policy", "compact,delete"),
                ("message.timestamp.before.max.ms", "1000"),
                ("message.timestamp.before.max.ms", "3600000"),
                ("message.timestamp.after.max.ms", "1000"),
                ("message.timestamp.after.max.ms", "3600000"),
                ("compression.type", "gzip"),
                ("min.insync.replicas", "2"),
                ("compression.type", "uncompressed"),
            ]
        )
        topic["configs"] = [{"name": chosen[0], "value": chosen[1]}]
    world.add("CreateTopics", {"topics": [topic], "timeout_ms": 10_000})


def create_topics(world: World) -> None:
    """Several topics, some of them refused."""
    topics = []
    for _ in range(world.several()):
        odd_names = ["%a b", "__consumer_offsets", "", ".", "..", "%t0", "%a.b", "%a_b", "%" + "l" * 250]
        name = world.pick(["%t5", "%t6", "%t7"], odd_names, 0.3)
        topic: Fields = {"name": name, "num_partitions": world.pick([1, 2], [0, -1, -2, 20_000_000])}
        topic["replication_factor"] = world.pick([1, -1], [0, 2, -2])
        if world.chance(0.2):
            brokers = [world.pick([[1]], [[], [1, 1], [2], [1, 2], [-1]], 0.4) for _ in range(world.several())]
            indexes = range(len(brokers)) if world.chance(0.8) else [0, 0, 2]
            topic["assignments"] = [
                {"partition_index": index, "broker_ids": each} for index, each in zip(indexes, brokers, strict=False)
            ]
            if world.chance(0.8):
                topic["num_partitions"] = topic["replication_factor"] = -1
        if world.chance(0.5):
            configs = [config(world) for _ in range(world.several())]
            topic["configs"] = [{"name": name, "value": value} for name, value in configs]
        topics.append(topic)
    validate_only = world.chance(0.25)
    world.add("CreateTopics", {"topics": topics, "timeout_ms": 10_000, "validate_only": validate_only})
    if not validate_only:
        world.topics.update({each["name"][1:]: 1 for each in topics if each["name"] in ("%t5", "%t6", "%t7")})


def delete_topics(world: World) -> None:
    version = world.source.randint(1, 6)
    chosen = world.some_topics(0.25, internal=False)
    if world.chance(0.6):
        chosen = chosen[:1]
    topics = []
    for each in chosen:
        by = world.pick(["name", "id"], ["both", "neither"])
        no_id = "00" * 16
        topics.append(
            {
                "name": each["name"] if by in ("name", "both") else None,
                "topic_id": each["topic_id"] if by in ("id", "both") else no_id,
            }
        )
    names = [each["name"] for each in chosen]
    world.add("DeleteTopics", {"version": version, "topics": topics, "topic_names": names, "timeout_ms": 10_000})
    for name in names:
        if world.topics.pop(name[1:], None) is not None:
            world.deleted.append(name[1:])


def delete_topic(world: World) -> None:
    """One usual topic."""
    name = world.topic(0)
    world.add("DeleteTopics", {"version": 5, "topic_names": [f"%{name}"], "timeout_ms": 10_000})
    if world.topics.pop(name, None) is not None:
        world.deleted.append(name)


def create_partitions(world: World) -> None:
    topics = []
    validate_only = world.chance(0.2)
    for each in world.some_topics(0.15, internal=validate_only):
        before = world.topics.get(each["name"][1:], 1)
        # Kafka would create any number of partitions, and be busy with that for minutes.
        most = [MANY_PARTITIONS] if validate_only else []
        count = world.pick([before + 1, before + 2], [before, 0, -1, before - 1, *most])
        assignments = None
        if world.chance(0.25):
            brokers = [
                world.pick([[1]], [[], [2], [1, 1]]) for _ in range(world.pick([max(0, count - before)], [0, 1]))
            ]
            assignments = [{"broker_ids": each} for each in brokers[:5]]
        topics.append({"name": each["name"], "count": count, "assignments": assignments})
    world.add("CreatePartitions", {"topics": topics, "timeout_ms": 10_000, "validate_only": validate_only})


def metadata(world: World) -> None:
    version = world.source.randint(0, 13)
    topics: list[Any] | None = []
    for each in world.some_topics(0.15):
        by = world.pick(["name"], ["id", "both"], 0.3) if version >= 10 else "name"
        if by == "name":
            each["topic_id"] = "00" * 16
        elif by == "id":
            each["name"] = None
        topics.append(each)
    if world.chance(0.1) and version:
        topics = world.pick([None, []])
    fields = {"version": version, "topics": topics, "allow_auto_topic_creation": world.chance(0.2)}
    if world.chance(0.2):
        fields["include_topic_authorized_operations"] = True
    world.add("Metadata", fields)


def describe_topic_partitions(world: World) -> None:
    topics = [{"name": each["name"]} for each in world.some_topics(0.15)]
    fields: Fields = {"topics": topics, "response_partition_limit": world.pick([2000, 1, 2], [0, -1]), "cursor": None}
    if world.chance(0.3):
        topic = world.topic()
        fields["cursor"] = {"topic_name": f"%{topic}", "partition_index": world.partition(topic, 0.2)}
    world.add("DescribeTopicPartitions", fields)


def elect_leaders(world: World) -> None:
    topics = [
        {"topic": each["name"], "partitions": world.partitions(each["name"], 0.15)} for each in world.some_topics(0.15)
    ]
    fields = {"election_type": world.pick([0, 1], [2, -1]), "topic_partitions": topics, "timeout_ms": 1000}
    world.add("ElectLeaders", fields)


def reassign(world: World) -> None:
    topics = []
    for each in world.some_topics(0.15):
        partitions = [
            {"partition_index": index, "replicas": world.pick([[1], None], [[], [2], [1, 1], [1, 2]], 0.3)}
            for index in world.partitions(each["name"], 0.15)
        ]
        topics.append({"name": each["name"], "partitions": partitions})
    world.add("AlterPartitionReassignments", {"topics": topics, "timeout_ms": 1000})


def list_reassignments(world: World) -> None:
    topics = [
        {"name": each["name"], "partition_indexes": world.partitions(each["name"])} for each in world.some_topics(0.15)
    ]
    world.add("ListPartitionReassignments", {"topics": topics, "timeout_ms": 1000})


AREA = [
    (3, create_topic),
    (4, create_topics),
    (3, delete_topics),
    (3, create_partitions),
    (4, metadata),
    (2, describe_topic_partitions),
    (1, elect_leaders),
    (1, reassign),
    (1, list_reassignments),
]
