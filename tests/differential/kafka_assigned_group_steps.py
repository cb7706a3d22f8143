"""Generated steps about groups whose partitions the broker assigns (KIP-848), and about members of both kinds."""

from __future__ import annotations

from typing import Any

from differential.kafka_group_steps import (
    commit,
    delete_groups,
    fetch_offsets,
    gather,
    heartbeat,
    join,
    leave,
    list_groups,
    offset_topics,
    sync,
)
from differential.kafka_topic_steps import create_topic
from differential.kafka_world import Fields, World

MEMBERS = (0, 1, 2)
STATIC = 2
# Kafka resolves regular expressions after its answer, so their groups have names of their own.
PATTERN_GROUP = "r0"
# Members of this group have topics in common. In the others each has its own: which of several members gets a partition
# depends on Java's hash codes of their ids.
SHARED_GROUP = "s0"


def group(world: World) -> str:
    """`g0` has classic members, too."""
    return str(world.pick(["k0", "k0", "k0", "g0"], [SHARED_GROUP], 0.15))


def _epoch(world: World, name: str, number: int) -> Any:
    usual = {"$": f"{name}h{number}.member_epoch", "default": 0}
    return world.pick([usual], [{**usual, "plus": 1}, {**usual, "plus": -1}, 0, 1000, -3], 0.08)


def _names(world: World, name: str, number: int) -> list[str]:
    """Topics to subscribe to."""
    known = sorted(world.topics)
    if name != SHARED_GROUP:
        known = [topic for topic in known if int(topic[1:]) % len(MEMBERS) == number]
    usual = [world.pick(known) for _ in range(world.several())] if known else [f"t8{number}"]
    return list(dict.fromkeys(f"%{each}" for each in usual))


def _join_fields(world: World, name: str, number: int) -> Fields:
    return {
        "group_id": world.pick([f"%{name}"], [""], 0.03),
        "member_id": world.pick([f"%h{number}"], [""], 0.03),
        "member_epoch": 0,
        "instance_id": f"%hi{number}" if number == STATIC else world.pick([None], ["%hi2", ""], 0.03),
        "rack_id": world.pick([None], ["r", ""], 0.05),
        "rebalance_timeout_ms": world.pick([60_000], [-1, 0], 0.04),
        "subscribed_topic_names": world.pick([_names(world, name, number)], [None, []], 0.04),
        "server_assignor": world.pick([None, "uniform", "range"], ["other", ""], 0.04),
        "topic_partitions": world.pick([[]], [None], 0.05),
    }


def assigned_join(world: World) -> None:
    name, number = group(world), world.pick(MEMBERS)
    world.add("ConsumerGroupHeartbeat", _join_fields(world, name, number), save=f"{name}h{number}", connection=number)


def assigned_heartbeat(world: World) -> None:
    """Keeps the membership; seldom with another subscription. Usually the member owns what it was assigned."""
    name, number = group(world), world.pick(MEMBERS)
    owned = {"$": f"{name}h{number}.assignment", "default": []}
    fields: Fields = {
        "group_id": f"%{name}",
        "member_id": world.pick([f"%h{number}"], ["unknown"], 0.03),
        "member_epoch": _epoch(world, name, number),
        "instance_id": world.pick([f"%hi{number}" if number == STATIC else None], ["%hi9"], 0.03),
        "rebalance_timeout_ms": world.pick([-1], [60_000, 0], 0.1),
        "subscribed_topic_names": world.pick([None], [_names(world, name, number), []], 0.15),
        "server_assignor": world.pick([None], ["range", "other"], 0.08),
        "topic_partitions": world.pick([owned, None], [[]], 0.1),
    }
    world.add("ConsumerGroupHeartbeat", fields, save=f"{name}h{number}", connection=number)


def assigned_leave(world: World) -> None:
    name, number = group(world), world.pick(MEMBERS)
    static = f"%hi{number}" if number == STATIC else None
    fields = {
        "group_id": f"%{name}",
        "member_id": f"%h{number}",
        "member_epoch": world.pick([-1, -2 if static else -1], [-2]),
        "instance_id": world.pick([static], [None, "%hi9"], 0.1),
    }
    world.add("ConsumerGroupHeartbeat", fields, connection=number)


def pattern_heartbeat(world: World) -> None:
    number = world.pick(MEMBERS)
    pattern = world.pick([".*t[01]", "%t0", ".*", "^%t.$"], ["[", "(?<=x)", "", "a{1001}"], 0.15)
    fields = _join_fields(world, PATTERN_GROUP, number)
    fields.update(version=1, subscribed_topic_names=world.pick([None, []], [_names(world, SHARED_GROUP, number)]))
    fields["subscribed_topic_regex"] = pattern
    if world.chance(0.3):
        fields["member_epoch"] = _epoch(world, PATTERN_GROUP, number)
    world.add("ConsumerGroupHeartbeat", fields, save=f"{PATTERN_GROUP}h{number}", connection=number)


def describe_assigned(world: World) -> None:
    known = ["%k0", "%g0", f"%{PATTERN_GROUP}", f"%{SHARED_GROUP}"]
    names = [world.pick(known, ["", "%g9", "%g1"]) for _ in range(world.several())]
    fields: Fields = {"group_ids": names, "include_authorized_operations": world.chance(0.3)}
    world.add("ConsumerGroupDescribe", fields)


def assigned_commit(world: World) -> None:
    name, number = group(world), world.pick(MEMBERS)
    fields = {
        "group_id": f"%{name}",
        "generation_id_or_member_epoch": world.pick([_epoch(world, name, number)], [-1], 0.2),
        "member_id": world.pick([f"%h{number}"], [""], 0.1),
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": offset_topics(world),
    }
    world.add("OffsetCommit", fields)


def assigned_fetch_offsets(world: World) -> None:
    name, number = group(world), world.pick(MEMBERS)
    each = {
        "group_id": f"%{name}",
        "member_id": world.pick([f"%h{number}", None], ["unknown", ""]),
        "member_epoch": _epoch(world, name, number),
        "topics": None,
    }
    world.add("OffsetFetch", {"version": world.source.randint(8, 10), "groups": [each], "require_stable": False})


AREA = [
    (8, assigned_join),
    (8, assigned_heartbeat),
    (3, assigned_leave),
    (2, pattern_heartbeat),
    (4, describe_assigned),
    (3, assigned_commit),
    (2, assigned_fetch_offsets),
    (4, create_topic),
    (1, gather),
    (3, join),
    (2, sync),
    (1, heartbeat),
    (1, leave),
    (1, commit),
    (1, fetch_offsets),
    (1, delete_groups),
    (1, list_groups),
]
