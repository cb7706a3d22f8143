"""Generated steps about settings, quotas and credentials."""

from __future__ import annotations

from typing import Any

from differential.kafka_topic_steps import TOPIC_CONFIGS, UNKNOWN_CONFIGS, config
from differential.kafka_world import Fields, World

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
GROUP_CONFIGS: dict[str, tuple[list[str], list[str | None]]] = {
    "consumer.session.timeout.ms": (["45000", "50000"], ["1", "-1", "x", "100000", None]),
    "consumer.heartbeat.interval.ms": (["5000", "6000"], ["1", "0", "60000"]),
}


def resource(world: World, internal: bool = True) -> tuple[int, str]:
    kind = world.pick([TOPIC, TOPIC, TOPIC, GROUP], [0, 1, 3, LOGGER, BROKER, 64], 0.08)
    if kind == TOPIC:
        return kind, str(world.any_topic(0.12, internal)["name"])
    if kind == GROUP:
        return kind, world.pick(["%g0", "%g1"], [""])
    return kind, world.pick(["1"], ["", "7", "x"], 0.3)


def _entry(world: World, kind: int) -> tuple[str, str | None]:
    if kind == GROUP:
        name = world.pick(list(GROUP_CONFIGS), ["retention.ms", "no.such.config", ""], 0.1)
        usual, odd = GROUP_CONFIGS.get(name, (["1"], ["x"]))
        return name, world.pick(usual, odd)
    return config(world)


def _resources(world: World, is_incremental: bool) -> list[Fields]:
    resources = []
    for _ in range(world.several()):
        kind, name = resource(world, internal=False)
        configs: list[Fields] = []
        for _ in range(world.pick([1, 1, 2, 3], [0], 0.03)):
            key, value = _entry(world, kind)
            entry: Fields = {"name": key, "value": value}
            if is_incremental:
                entry["config_operation"] = world.pick([0, 0, 1, 2, 3], [4, -1], 0.03)
            configs.append(entry)
        unknown = [entry for entry in configs if entry.get("config_operation") in (4, -1)]
        # Kafka looks at several entries in the order of a hash map.
        configs = unknown[:1] or configs
        resources.append({"resource_type": kind, "resource_name": name, "configs": configs})
    return resources


def _is_validated_only(world: World, resources: list[Fields]) -> bool:
    """Settings of brokers concern all sequences, so they are never changed."""
    return any(each["resource_type"] in (BROKER, LOGGER) for each in resources) or world.chance(0.15)


def alter_configs(world: World) -> None:
    # Kafka does not answer a request that names a resource twice.
    named = {(each["resource_type"], each["resource_name"]): each for each in _resources(world, is_incremental=False)}
    resources = list(named.values())
    world.add("AlterConfigs", {"resources": resources, "validate_only": _is_validated_only(world, resources)})


def incremental_alter_configs(world: World) -> None:
    resources = _resources(world, is_incremental=True)
    fields = {"resources": resources, "validate_only": _is_validated_only(world, resources)}
    world.add("IncrementalAlterConfigs", fields)


def describe_configs(world: World) -> None:
    resources = []
    for _ in range(world.several()):
        kind, name = resource(world)
        keys: Any = None
        if kind in (BROKER, LOGGER):
            keys = ["log.retention.ms"]
        elif world.chance(0.5):
            known = list(GROUP_CONFIGS if kind == GROUP else TOPIC_CONFIGS)
            keys = [world.pick(known, [*UNKNOWN_CONFIGS, "retention.ms"]) for _ in range(world.several())]
        resources.append({"resource_type": kind, "resource_name": name, "configuration_keys": keys})
    world.add("DescribeConfigs", {"resources": resources, "include_synonyms": world.chance(0.5)})


def list_config_resources(world: World) -> None:
    types = [world.pick([TOPIC, GROUP], [LOGGER, 0, 99], 0.1) for _ in range(world.several())]
    world.add("ListConfigResources", {"version": 1, "resource_types": types})


# -- quotas


def _entity(world: World) -> list[Fields]:
    """Seldom the default of one part of a pair. Other defaults would apply to the clients of all sequences."""
    kinds = world.pick([["user"], ["client-id"], ["user", "client-id"]], [["ip"], ["x"], [], ["user", "user"]], 0.1)
    parts: list[Fields] = [
        {"entity_type": kind, "entity_name": world.pick(["%q0", "%q1"], [""], 0.05)} for kind in kinds
    ]
    if kinds == ["user", "client-id"] and world.chance(0.3):
        world.source.choice(parts)["entity_name"] = None
    if len(parts) > 1 and world.chance(0.3):
        parts.reverse()
    return parts


RATES = ["producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"]
# Quotas that TriMQ refuses: they are only validated, or each following description would differ.
REFUSED_RATES = ["request_percentage", "connection_creation_rate"]


def alter_quotas(world: World) -> None:
    entries = []
    for _ in range(world.several()):
        operations = []
        for _ in range(world.pick([1, 2, 2], [0, 3], 0.1)):
            operations.append(
                {
                    "key": world.pick(RATES, [*REFUSED_RATES, "x", ""], 0.2),
                    "value": world.pick([1000.0, 1e6, 5.0], [0.0, -1.0, 1.5, 1e300, 0.1]),
                    "remove": world.chance(0.25),
                }
            )
        entries.append({"entity": _entity(world), "ops": operations})
    is_refused = any(
        operation["key"] in REFUSED_RATES and not operation["remove"] for each in entries for operation in each["ops"]
    )
    world.add("AlterClientQuotas", {"entries": entries, "validate_only": is_refused or world.chance(0.15)})


def describe_quotas(world: World) -> None:
    components = []
    for kind in world.pick([["user"], ["client-id"], ["user", "client-id"], []], [["ip"], ["x"], ["user", "user"]]):
        match_type = world.pick([0, 2], [1, 3, -1])
        name = world.pick(["%q0", "%q1"], [""], 0.05) if match_type == 0 else world.pick([None], ["%q0"])
        if match_type == 0 and world.chance(0.03):
            name = None
        components.append({"entity_type": kind, "match_type": match_type, "match": name})
    world.add("DescribeClientQuotas", {"components": components, "strict": world.chance(0.5)})


# -- credentials


def alter_credentials(world: World) -> None:
    upserts = [
        {
            "name": world.pick(["%u0", "%u1"], [""], 0.08),
            "mechanism": world.pick([1, 2], [0, 3]),
            "iterations": world.pick([4096, 8192], [4095, 0, 16385, 1_000_000]),
            "salt": "salt",
            "salted_password": "password",
        }
        for _ in range(world.pick([1, 1, 2], [0]))
    ]
    deletions = [
        {"name": world.pick(["%u0", "%u1"], [""], 0.08), "mechanism": world.pick([1, 2], [0, 3])}
        for _ in range(world.pick([0, 1], [2]))
    ]
    world.add("AlterUserScramCredentials", {"upsertions": upserts, "deletions": deletions})


def describe_credentials(world: World) -> None:
    users = [{"name": world.pick(["%u0", "%u1"], ["%u9", ""])} for _ in range(world.several())]
    world.add("DescribeUserScramCredentials", {"users": world.pick([users], [None, []])})


AREA = [
    (4, alter_configs),
    (7, incremental_alter_configs),
    (5, describe_configs),
    (1, list_config_resources),
    (4, alter_quotas),
    (3, describe_quotas),
    (1, alter_credentials),
    (1, describe_credentials),
]
