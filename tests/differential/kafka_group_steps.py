"""Generated steps about classic groups: members that join, synchronise and leave, and committed offsets."""

from __future__ import annotations

from typing import Any

from differential.kafka_world import Fields, World

MEMBERS = (0, 1, 2)
# The last member is static.
STATIC = 2
STATES = ["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling"]


def group(world: World) -> str:
    return str(world.pick(["g0", "g0", "g0", "g1"]))


def group_id(world: World, name: str, odd: float = 0.04) -> str:
    return str(world.pick([f"%{name}"], ["", "%g9"], odd))


def saved(name: str, number: int, field: str, **more: Any) -> Fields:
    """A field of the last good join of a member."""
    return {"$": f"{name}m{number}.{field}", **more}


def member_id(world: World, name: str, number: int) -> Any:
    return world.pick([saved(name, number, "member_id", default="")], ["", "unknown"], 0.05)


def generation(world: World, name: str, number: int) -> Any:
    usual = saved(name, number, "generation_id", default=-1)
    return world.pick([usual], [{**usual, "plus": 1}, {**usual, "plus": -1}, -1, 0], 0.08)


def instance(world: World, number: int) -> Any:
    if number == STATIC:
        return world.pick([f"%i{number}"], [None, "%i9"], 0.06)
    return world.pick([None], ["%i2", ""], 0.03)


def subscription(world: World, number: int) -> Fields:
    """Each member has topics of its own, for the case that the broker assigns the partitions."""
    known = [topic for topic in sorted(world.topics) if int(topic[1:]) % len(MEMBERS) == number]
    topics = [f"%{world.pick(known, [f't8{number}'], 0.05)}" for _ in range(world.several())]
    metadata: Fields = {"subscription": list(dict.fromkeys(topics))}
    if world.chance(0.5):
        metadata["format"] = world.pick([1, 2, 3], [4], 0.1)
        if world.chance(0.4):
            metadata["owned"] = {topic: [world.partition(topic, 0.1)] for topic in metadata["subscription"]}
    if world.chance(0.03):
        metadata["cut"] = world.pick([1, 5])
    return metadata


def _join_fields(world: World, name: str, number: int) -> Fields:
    metadata = subscription(world, number)
    protocols = [{"name": each, "metadata": metadata} for each in world.pick([["range"], ["range", "roundrobin"]])]
    return {
        "version": world.source.randint(0, 9),
        "group_id": group_id(world, name),
        "session_timeout_ms": world.pick([30_000], [0, 5999, 1_800_001], 0.03),
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id(world, name, number),
        "group_instance_id": instance(world, number),
        "protocol_type": world.pick(["consumer"], ["", "connect"], 0.04),
        "protocols": world.pick([protocols], [[], [{"name": "other", "metadata": metadata}]], 0.05),
        "reason": None,
    }


def join(world: World) -> None:
    """One request. From version 4 on, the first of a member gets its id, and the next one with this id joins."""
    name, number = group(world), world.pick(MEMBERS)
    fields = _join_fields(world, name, number)
    for _ in range(world.pick([1, 2])):
        world.add("JoinGroup", dict(fields), save=f"{name}m{number}", connection=number)


def _assignments(world: World, name: str) -> list[Fields]:
    chosen = [world.topic(0.03) for _ in MEMBERS]
    return [
        {
            "member_id": saved(name, number, "member_id", default=""),
            "assignment": {"assigned": {f"%{topic}": [world.partition(topic, 0)]}},
        }
        for number, topic in zip(MEMBERS, chosen, strict=True)
    ]


def _sync(world: World, name: str, number: int) -> None:
    fields = {
        "group_id": group_id(world, name),
        "generation_id": generation(world, name, number),
        "member_id": member_id(world, name, number),
        "group_instance_id": instance(world, number),
        "protocol_type": world.pick(["consumer"], [None, "connect"], 0.05),
        "protocol_name": world.pick(["range"], [None, "other"], 0.05),
        "assignments": world.pick([_assignments(world, name)], [[]], 0.1),
    }
    world.add("SyncGroup", fields, connection=number)


def sync(world: World) -> None:
    _sync(world, group(world), world.pick(MEMBERS))


def gather(world: World) -> None:
    """Members join one after the other, each time with a rebalance."""
    name = group(world)
    version = world.source.randint(4, 9)
    joined: list[int] = []
    for number in MEMBERS[: world.source.choice([1, 2, 2, 3])]:
        fields = _join_fields(world, name, number)
        fields.update(version=version, group_id=f"%{name}", session_timeout_ms=30_000, protocol_type="consumer")
        fields["member_id"] = saved(name, number, "member_id", default="")
        for _ in range(2):
            world.add("JoinGroup", dict(fields), save=f"{name}m{number}", connection=number)
        for older in joined:
            rejoin = _join_fields(world, name, older)
            rejoin.update(version=version, member_id=saved(name, older, "member_id", default=""))
            world.add("JoinGroup", rejoin, save=f"{name}m{older}", connection=older)
        joined.append(number)
        for each in joined:
            _sync(world, name, each)


def heartbeat(world: World) -> None:
    name, number = group(world), world.pick(MEMBERS)
    fields = {
        "group_id": group_id(world, name),
        "generation_id": generation(world, name, number),
        "member_id": member_id(world, name, number),
        "group_instance_id": instance(world, number),
    }
    world.add("Heartbeat", fields, connection=number)


def leave(world: World) -> None:
    name, number = group(world), world.pick(MEMBERS)
    members = []
    for each in world.pick([[number], [number, world.pick(MEMBERS)]]):
        static = instance(world, each)
        by_instance = static is not None and world.chance(0.5)
        members.append({"member_id": "" if by_instance else member_id(world, name, each), "group_instance_id": static})
    world.add(
        "LeaveGroup",
        {"group_id": group_id(world, name), "member_id": member_id(world, name, number), "members": members},
        connection=number,
    )


# -- committed offsets


def offset_topics(world: World) -> list[Fields]:
    topics = []
    for each in world.some_topics(0.08, internal=False):
        partitions = [
            {
                "partition_index": index,
                "committed_offset": world.pick([0, 1, 5], [-1, -2, 2**62], 0.08),
                "committed_leader_epoch": world.pick([-1, 0], [5]),
                "committed_metadata": world.pick(["", "m", None], ["x" * 4096, "x" * 4097], 0.06),
            }
            for index in world.partitions(each["name"])
        ]
        topics.append({**each, "partitions": partitions})
    return topics


def commit(world: World) -> None:
    """Of a member, or of nobody, which only an empty group accepts."""
    name, number = group(world), world.pick(MEMBERS)
    fields: Fields = {"group_id": group_id(world, name, 0.03), "topics": offset_topics(world), "retention_time_ms": -1}
    if world.chance(0.5):
        fields["generation_id_or_member_epoch"] = generation(world, name, number)
        fields["member_id"] = member_id(world, name, number)
        fields["group_instance_id"] = instance(world, number)
    else:
        fields["generation_id_or_member_epoch"] = world.pick([-1], [0, 3], 0.06)
        fields["member_id"] = world.pick([""], ["unknown"], 0.06)
    world.add("OffsetCommit", fields)


def fetch_offsets(world: World) -> None:
    def topics(name: str) -> Any:
        if world.chance(0.3) and name:  # the group without a name has offsets of other sequences
            return None
        return [{**each, "partition_indexes": world.partitions(each["name"])} for each in world.some_topics(0.08)]

    names = [group_id(world, group(world)) for _ in range(world.several())]
    groups = []
    for name in names if world.chance(0.2) else dict.fromkeys(names):
        each: Fields = {"group_id": name, "member_id": None, "member_epoch": -1, "topics": topics(name)}
        if world.chance(0.1):
            each.update(member_id=world.pick(["unknown", ""]), member_epoch=world.pick([-1, 0, 1]))
        groups.append(each)
    version = world.source.randint(1, 10)
    fields: Fields = {"version": version, "group_id": names[0], "groups": groups, "topics": topics(names[0])}
    if fields["topics"] is None and version < 2:
        fields["topics"] = []
    fields["require_stable"] = world.chance(0.3)
    world.add("OffsetFetch", fields)


def delete_offsets(world: World) -> None:
    topics = [
        {
            "name": each["name"],
            "partitions": [{"partition_index": index} for index in world.partitions(each["name"])],
        }
        for each in world.some_topics(0.1)
    ]
    world.add("OffsetDelete", {"group_id": group_id(world, group(world)), "topics": topics})


# -- administration


def _names(world: World) -> list[str]:
    return [world.pick(["%g0", "%g1", "%k0"], ["", "%g9"], 0.1) for _ in range(world.several())]


def delete_groups(world: World) -> None:
    world.add("DeleteGroups", {"groups_names": _names(world)})


def describe_groups(world: World) -> None:
    fields: Fields = {"groups": _names(world), "include_authorized_operations": world.chance(0.3)}
    world.add("DescribeGroups", fields)


def list_groups(world: World) -> None:
    states = [world.pick(STATES, ["stable", "x", ""], 0.15) for _ in range(world.pick([0, 0, 1, 2]))]
    types = [
        world.pick(["classic", "consumer"], ["Classic", "share", "x", ""], 0.15) for _ in range(world.pick([0, 1]))
    ]
    world.add("ListGroups", {"states_filter": states, "types_filter": types})


def find_coordinator(world: World) -> None:
    keys = [world.pick(["%g0", "%x0"], ["", "%g0:"], 0.1) for _ in range(world.several())]
    kind = world.pick([0, 1], [2, 3, -1], 0.08)
    world.add("FindCoordinator", {"key": keys[0], "key_type": kind, "coordinator_keys": keys})


AREA = [
    (2, gather),
    (6, join),
    (4, sync),
    (3, heartbeat),
    (3, leave),
    (5, commit),
    (5, fetch_offsets),
    (2, delete_offsets),
    (2, delete_groups),
    (3, describe_groups),
    (2, list_groups),
    (1, find_coordinator),
]
