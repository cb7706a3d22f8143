"""Generated steps about idempotent and transactional producers."""

from __future__ import annotations

from typing import Any

from differential.kafka_answers import UNKNOWN_PRODUCER
from differential.kafka_group_steps import fetch_offsets, offset_topics
from differential.kafka_record_steps import batch, fetch
from differential.kafka_world import Fields, World

TRANSACTIONAL = 16
STATES = ["Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "PrepareCommit", "Dead"]


def producer(world: World) -> str:
    return str(world.pick(["x0", "x0", "x1"]))


def _id(name: str) -> Fields:
    return {"$": f"{name}.producer_id", "default": UNKNOWN_PRODUCER}


def _epoch(world: World, name: str) -> Any:
    usual = {"$": f"{name}.producer_epoch", "default": 0}
    return world.pick([usual], [{**usual, "plus": 1}, {**usual, "plus": -1}, 0, -1, 32_767], 0.1)


def _name(world: World, name: str) -> Any:
    return world.pick([f"%{name}"], ["", "%x9"], 0.03)


def init(world: World) -> None:
    name = producer(world)
    fields: Fields = {
        "transactional_id": world.pick([f"%{name}"], [None, ""], 0.05),
        "transaction_timeout_ms": world.pick([60_000], [0, -1, 900_001, 900_000], 0.06),
        "producer_id": -1,
        "producer_epoch": -1,
    }
    if world.chance(0.35):
        fields["producer_id"] = world.pick([_id(name)], [-1, 7], 0.1)
        fields["producer_epoch"] = _epoch(world, name)
    world.sequences.clear()
    world.add("InitProducerId", fields, save=name)


def init_idempotent(world: World) -> None:
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    world.add("InitProducerId", fields, save="i0")


def add_partitions(world: World) -> None:
    name = producer(world)
    topics = [{"name": each["name"], "partitions": world.partitions(each["name"])} for each in world.some_topics(0.06)]
    world.add(
        "AddPartitionsToTxn",
        {
            "v3_and_below_transactional_id": _name(world, name),
            "v3_and_below_producer_id": world.pick([_id(name)], [7, -1], 0.05),
            "v3_and_below_producer_epoch": _epoch(world, name),
            "v3_and_below_topics": topics,
        },
    )


def _sequence(world: World, name: str, place: str, count: int) -> int:
    """The next one, as if all batches before had been accepted."""
    number = world.sequences.get((name, place), 0)
    world.sequences[name, place] = number + count
    return int(world.pick([number], [number + 1, max(number - 1, 0), 0, -1], 0.08))


def produce(world: World) -> None:
    """Idempotent or transactional."""
    name = world.pick(["i0", producer(world), producer(world)])
    topic = world.topic(0.03)
    index = world.partition(topic, 0.03)
    records = batch(world)
    spec: Fields = {
        **records,
        "attrs": records.get("attrs", 0) | (0 if name == "i0" else world.pick([TRANSACTIONAL], [0], 0.06)),
        "pid": _id(name),
        "pepoch": _epoch(world, name),
        "seq": _sequence(world, name, f"{topic}-{index}", len(records["values"])),
    }
    partition = {"index": index, "records": {"batches": [spec]}}
    sent = {"name": f"%{topic}", "topic_id": {"$": f"topic.{topic}"}, "partition_data": [partition]}
    transactional_id = None if name == "i0" else world.pick([f"%{name}"], [None, "%x9", "%x1"], 0.06)
    world.add(
        "Produce",
        {
            "topic_data": [sent],
            "acks": world.pick([-1], [1, 0], 0.06),
            "timeout_ms": 5000,
            "transactional_id": transactional_id,
        },
    )


def add_offsets(world: World) -> None:
    name = producer(world)
    fields = {
        "transactional_id": _name(world, name),
        "producer_id": world.pick([_id(name)], [7], 0.05),
        "producer_epoch": _epoch(world, name),
        "group_id": world.pick(["%g0"], [""], 0.05),
    }
    world.add("AddOffsetsToTxn", fields)


def commit_offsets(world: World) -> None:
    name = producer(world)
    topics = [{"name": each["name"], "partitions": each["partitions"]} for each in offset_topics(world)]
    fields = {
        "transactional_id": _name(world, name),
        "group_id": world.pick(["%g0"], ["%g1"], 0.06),
        "producer_id": world.pick([_id(name)], [7], 0.05),
        "producer_epoch": _epoch(world, name),
        "generation_id": world.pick([-1], [0, 1], 0.06),
        "member_id": world.pick([""], ["unknown"], 0.06),
        "group_instance_id": world.pick([None], ["%i2"], 0.04),
        "topics": topics,
    }
    world.add("TxnOffsetCommit", fields)


def end(world: World) -> None:
    name = producer(world)
    fields = {
        "transactional_id": _name(world, name),
        "producer_id": world.pick([_id(name)], [7], 0.05),
        "producer_epoch": _epoch(world, name),
        "committed": world.chance(0.6),
    }
    if fields.setdefault("version", world.source.randint(0, 5)) >= 5:
        world.sequences.clear()  # the producer gets a new epoch
    world.add("EndTxn", fields, save=name if fields["version"] >= 5 else None)


def transaction(world: World) -> None:
    """A whole transaction with usual values."""
    name = producer(world)
    topic = world.topic(0)
    index = world.partition(topic, 0)
    who = {"transactional_id": f"%{name}", "producer_id": _id(name), "producer_epoch": _epoch_of(name)}
    if world.chance(0.5):
        init_fields: Fields = {"transactional_id": f"%{name}", "transaction_timeout_ms": 60_000}
        world.sequences.clear()
        world.add("InitProducerId", init_fields, save=name)
    version = world.pick([9, 11, 12, 13])
    if version < 12:
        world.add(
            "AddPartitionsToTxn",
            {
                "v3_and_below_transactional_id": f"%{name}",
                "v3_and_below_producer_id": who["producer_id"],
                "v3_and_below_producer_epoch": who["producer_epoch"],
                "v3_and_below_topics": [{"name": f"%{topic}", "partitions": [index]}],
            },
        )
    spec = {
        "values": [f"of {name}"],
        "attrs": TRANSACTIONAL,
        "pid": who["producer_id"],
        "pepoch": who["producer_epoch"],
        "seq": _sequence(world, name, f"{topic}-{index}", 1),
    }
    partition = {"index": index, "records": {"batches": [spec]}}
    sent = {"name": f"%{topic}", "topic_id": {"$": f"topic.{topic}"}, "partition_data": [partition]}
    world.add(
        "Produce",
        {
            "version": version,
            "topic_data": [sent],
            "acks": -1,
            "timeout_ms": 5000,
            "transactional_id": f"%{name}",
        },
    )
    if world.chance(0.4):
        fetch(world)
    if world.chance(0.7):
        ended: Fields = {**who, "committed": world.chance(0.6), "version": 5 if version >= 12 else 4}
        if version >= 12:
            world.sequences.clear()
        world.add("EndTxn", ended, save=name if version >= 12 else None)
        fetch(world)


def _epoch_of(name: str) -> Fields:
    return {"$": f"{name}.producer_epoch", "default": 0}


def markers(world: World) -> None:
    """As an administrator aborts a hanging transaction."""
    name = producer(world)
    topics = [
        {"name": each["name"], "partition_indexes": world.partitions(each["name"])} for each in world.some_topics(0.06)
    ]
    marker = {
        "producer_id": world.pick([_id(name)], [7], 0.1),
        "producer_epoch": _epoch(world, name),
        "transaction_result": world.chance(0.3),
        "topics": topics,
        "coordinator_epoch": world.pick([0, -1], [5]),
    }
    world.add("WriteTxnMarkers", {"markers": [marker]})


def describe_producers(world: World) -> None:
    topics = [
        {"name": each["name"], "partition_indexes": world.partitions(each["name"])} for each in world.some_topics(0.08)
    ]
    world.add("DescribeProducers", {"topics": topics})


def describe_transactions(world: World) -> None:
    names = [world.pick(["%x0", "%x1"], ["", "%x9"]) for _ in range(world.several())]
    world.add("DescribeTransactions", {"transactional_ids": names})


def list_transactions(world: World) -> None:
    fields = {
        "state_filters": [world.pick(STATES, ["ongoing", "x", ""]) for _ in range(world.pick([0, 0, 1, 2]))],
        "producer_id_filters": world.pick([[]], [[_id("x0")], [7]], 0.2),
        "duration_filter": world.pick([-1], [10_000_000], 0.2),
        "transactional_id_pattern": world.pick([None], ["%x0", ".*x.", "", "["], 0.25),
    }
    world.add("ListTransactions", fields)


AREA = [
    (5, init),
    (2, init_idempotent),
    (6, transaction),
    (5, add_partitions),
    (8, produce),
    (4, end),
    (3, add_offsets),
    (3, commit_offsets),
    (3, fetch),
    (2, fetch_offsets),
    (1, markers),
    (2, describe_producers),
    (2, describe_transactions),
    (2, list_transactions),
]
