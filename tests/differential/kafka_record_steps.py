"""Generated steps about records: produce, fetch, offsets, deletion of records."""

from __future__ import annotations

from typing import Any

from differential.kafka_topic_steps import create_topics, delete_topic, delete_topics
from differential.kafka_world import Fields, World

HOUR_MS = 3_600_000
# Connection of requests that wait; the other steps use the first ones.
WAITING = 7


def batch(world: World, most: int = 4) -> Fields:
    """A batch; seldom with a fault."""
    values: list[Any] = []
    for number in range(world.several(most) if world.chance(0.9) else 9):
        value = world.pick(["v", "value", None, "x" * 50], ["x" * 300])
        key = world.pick([None, "k", f"k{number}"])
        headers = [["h", world.pick(["1", None])]] if world.chance(0.2) else []
        values.append([key, value, headers])
    spec: Fields = {"values": values}
    if world.chance(0.3):
        spec["ts"] = world.pick([0, 1000, -5000], ["none", 2 * HOUR_MS, -2 * HOUR_MS, HOUR_MS], 0.6)
        if spec["ts"] == "none" or world.chance(0.15):
            spec["maxts"] = world.pick(["none", 0])
    if world.chance(0.15):
        spec["dts"] = world.pick([1, 1000], [-1, 2 * HOUR_MS], 0.3)
    elif world.chance(0.12):
        spec["times"] = [world.pick([0, 1000], [-2 * HOUR_MS, 2 * HOUR_MS, -5000], 0.4) for _ in values]
    if world.chance(0.12):
        spec["gzip"] = True
    if world.chance(0.14):
        spoil(world, spec)
    return spec


def spoil(world: World, spec: Fields) -> None:
    count = len(spec["values"])
    name, value = world.source.choice(
        [
            ("attrs", 8),
            ("attrs", 32),
            ("attrs", 16),
            ("attrs", 5),
            ("attrs", 7),
            ("attrs", 64),
            ("attrs", 1),
            ("magic", 1),
            ("magic", 3),
            ("crc", 1),
            ("delta", count),
            ("delta", -1),
            ("delta", 0),
            ("count", count + 1),
            ("count", 0),
            ("count", count - 1),
            ("count", -1),
            ("base", 7),
            ("base", -1),
            ("epoch", 5),
            ("length", 10),
            ("cut", 1),
            ("cut", 30),
            ("values", []),
            ("seq", 0),
            ("pid", 12345),
            ("pepoch", 0),
        ]
    )
    spec[name] = value


def produce(world: World) -> None:
    topics = []
    for each in world.some_topics(0.06):
        partitions: list[Fields] = []
        for index in world.partitions(each["name"], 0.06):
            batches = [batch(world) for _ in range(world.pick([1], [0, 2], 0.08))]
            # Kafka does not answer a request with null records.
            partitions.append({"index": index, "records": {"batches": batches}})
        topics.append({**each, "partition_data": partitions})
    fields: Fields = {"topic_data": topics, "acks": world.pick([-1, 1, -1], [0, 2, -2]), "timeout_ms": 5000}
    fields["transactional_id"] = world.pick([None], ["%x9", ""], 0.03)
    world.add("Produce", fields)


def produce_one(world: World) -> None:
    """One usual batch, so that there is something to read."""
    name = world.topic(0)
    partition = {"index": world.partition(name, 0), "records": {"batches": [batch(world)]}}
    topic = {"name": f"%{name}", "topic_id": {"$": f"topic.{name}"}, "partition_data": [partition]}
    world.add("Produce", {"topic_data": [topic], "acks": -1, "timeout_ms": 5000, "transactional_id": None})


def fetch_topics(world: World, odd: float = 0.08, internal: bool = True) -> list[Fields]:
    topics = []
    for each in world.some_topics(odd, internal):
        partitions = [
            {
                "partition": index,
                "current_leader_epoch": world.pick([-1, 0], [1, -2], 0.06),
                "fetch_offset": world.pick([0, 0, 1, 2], [3, 7, -1, 1000, 2**62], 0.15),
                "last_fetched_epoch": world.pick([-1], [0, 1], 0.05),
                "log_start_offset": -1,
                "partition_max_bytes": world.pick([1 << 20], [0, 1, 100, -1], 0.12),
            }
            for index in world.partitions(each["name"], odd)
        ]
        topics.append({"topic": each["name"], "topic_id": each["topic_id"], "partitions": partitions})
    return topics


def fetch_fields(world: World, internal: bool = True) -> Fields:
    return {
        "max_wait_ms": 0,
        "min_bytes": world.pick([1, 0], [-1, 1000]),
        "max_bytes": world.pick([1 << 20], [0, 1, 150, -1], 0.12),
        "isolation_level": world.pick([0, 1], [2, -1], 0.03),
        "topics": fetch_topics(world, internal=internal),
        "replica_id": world.pick([-1], [-2, 1, 5], 0.03),
    }


def fetch(world: World) -> None:
    fields = fetch_fields(world)
    fields["session_id"], fields["session_epoch"] = world.pick([(0, -1)], [(0, 0), (0, 1), (99, 1), (-1, -1)], 0.1)
    world.add("Fetch", fields)


def fetch_session(world: World) -> None:
    """Opens a session, and continues it in the next steps. Internal topics, whose reads are refused, would be in each
    of their answers."""
    fields = fetch_fields(world, internal=False)
    version = fields["version"] = world.source.randint(7, 18)
    fields.update(session_id=0, session_epoch=0)
    world.add("Fetch", fields, save="s0")
    for epoch in range(1, world.source.randint(2, 5)):
        if world.chance(0.5):
            world.pick([produce_one, delete_records] if world.topics else [produce], [], 0)(world)
        if world.chance(0.15):
            world.pick([delete_topics, create_topics])(world)
        following = fetch_fields(world, internal=False)
        following["version"] = world.pick([version], [12, 13], 0.06)
        following["topics"] = fetch_topics(world, internal=False) if world.chance(0.25) else []
        if world.chance(0.2):
            following["forgotten_topics_data"] = [
                {"topic": each["name"], "topic_id": each["topic_id"], "partitions": world.partitions(each["name"])}
                for each in world.some_topics()
            ]
        following["session_id"] = {"$": "s0.session_id", "default": 0}
        following["session_epoch"] = world.pick([epoch], [epoch + 1, 0, -1, epoch - 1], 0.1)
        world.add("Fetch", following)


def waiting_fetch(world: World) -> None:
    """Waits for records while something happens to the topic; the next request on its connection shows its answer."""
    name = world.topic(0.03)
    fields = fetch_fields(world)
    is_session = world.chance(0.3)
    fields.update(
        version=world.source.randint(7, 18) if is_session else world.source.randint(4, 18),
        session_id=0,
        session_epoch=0 if is_session else -1,
        max_wait_ms=20_000,
        min_bytes=world.pick([1, 1, 100], [1000]),
        max_bytes=1 << 20,
        topics=[
            {
                "topic": f"%{name}",
                "topic_id": {"$": f"topic.{name}"},
                "partitions": [
                    {
                        "partition": index,
                        "fetch_offset": world.pick([0, 1, 2, 3]),
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                    for index in world.partitions(name, 0)
                ],
            }
        ],
    )
    world.add("Fetch", fields, connection=WAITING)
    for _ in range(world.pick([1, 2])):
        world.pick([produce_one, delete_topic], [delete_records], 0.1)(world)
    world.add("Metadata", {"version": 9, "topics": []}, connection=WAITING)


def list_offsets(world: World) -> None:
    topics = []
    for each in world.some_topics():
        partitions = [
            {
                "partition_index": index,
                "current_leader_epoch": world.pick([-1, 0], [1], 0.05),
                "timestamp": world.pick([-1, -2, -3, 0], [-4, -5, -6, -7, 1, 2**62], 0.3),
            }
            for index in world.partitions(each["name"])
        ]
        topics.append({"name": each["name"], "partitions": partitions})
    fields = {"replica_id": world.pick([-1], [-2, 1], 0.03), "isolation_level": world.pick([0, 1], [2], 0.02)}
    world.add("ListOffsets", {**fields, "topics": topics, "timeout_ms": 1000})


def delete_records(world: World) -> None:
    topics = []
    for each in world.some_topics():
        partitions = [
            {"partition_index": index, "offset": world.pick([-1, 0, 1, 2], [-2, 1000])}
            for index in world.partitions(each["name"])
        ]
        topics.append({"name": each["name"], "partitions": partitions})
    world.add("DeleteRecords", {"topics": topics, "timeout_ms": 1000})


def leader_epochs(world: World) -> None:
    topics = []
    for each in world.some_topics():
        partitions = [
            {
                "partition": index,
                "current_leader_epoch": world.pick([-1, 0], [1, -2]),
                "leader_epoch": world.pick([0], [-1, 1, 5, -2], 0.4),
            }
            for index in world.partitions(each["name"])
        ]
        topics.append({"topic": each["name"], "partitions": partitions})
    world.add("OffsetForLeaderEpoch", {"replica_id": world.pick([-1], [-2, 1]), "topics": topics})


AREA = [
    (8, produce),
    (3, produce_one),
    (6, fetch),
    (3, fetch_session),
    (2, waiting_fetch),
    (4, list_offsets),
    (2, delete_records),
    (1, leader_epochs),
]
