"""Audits: exactly the planted faults are found, and none in intact topics."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from pyspark_trimq.pipelines import PipelineContext, archive, audit
from trimq.errors import StartupError
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.testing import Broker

PLANTED = 1000
PRODUCERS = 4
PARTITIONS = 2
BETWEEN = 5  # records without a fault between two faults


def faulty(rng: Random, count: int) -> tuple[list[int], list[tuple[str, int, int]]]:
    """Returns sequence numbers with `count` faults, and the faults: kind, sequence, records."""
    numbers: list[int] = list(range(BETWEEN))
    planted = []
    for _ in range(count):
        following = max(numbers) + 1
        match rng.choice(("gap", "duplicate", "reordered")):
            case "gap":
                missing = rng.randint(1, 3)
                planted.append(("gap", following, missing))
                following += missing
            case "duplicate":
                again = rng.randrange(0, following - 1)
                while again in {number for _, first, n in planted for number in range(first, first + n)}:
                    again = rng.randrange(0, following - 1)
                planted.append(("duplicate", again, 1))
                numbers.append(again)
            case "reordered":
                planted.append(("reordered", following, 1))
                numbers += [following + 1, following]
                following += 2
        numbers += range(following, following + BETWEEN)
    return numbers, planted


def batches(numbers: list[int], producer: int, offset: int) -> tuple[bytes, int]:
    """Returns the records in stored batches: one for each run of consecutive numbers."""
    stored = b""
    begin = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            records = [Record(b"body %d" % number, timestamp_ms=1000) for number in numbers[begin:place]]
            stored += from_records(
                records,
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=numbers[begin],
                leader_epoch=0,
            )
            offset += place - begin
            begin = place
    return stored, offset


def plant(data: Path) -> set[tuple[int, int, str, int, int]]:
    """Writes faults into the log of a stopped broker: a running one refuses them."""
    rng = Random(16)
    expected = set()
    for partition in range(PARTITIONS):
        (log,) = data.rglob(f"orders-{partition}/00000000000000000000.log")
        offset = 0
        with log.open("ab") as file:
            for producer in range(100, 100 + PRODUCERS):
                numbers, planted = faulty(rng, PLANTED // PARTITIONS // PRODUCERS)
                stored, offset = batches(numbers, producer, offset)
                file.write(stored)
                expected |= {(partition, producer, *fault) for fault in planted}
    return expected


def test_a_thousand_planted_faults_are_found_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(folder=data) as broker:
        broker.create_topic("orders", partitions=PARTITIONS)
        broker.create_topic("intact")
        producer = Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True})
        for number in range(1000):
            producer.produce("intact", b"body %d" % number)
        producer.flush(30)
        del producer
    expected = plant(data)
    with Broker(folder=data) as broker:
        assert len(expected) == PLANTED
        context = PipelineContext(
            bootstrap=broker.http, spark=spark, show=False, checkpoint=tmp_path / "checkpoint", rows_per_batch=3000
        )
        outcome = audit(["orders", "intact"], context=context)
        found = outcome.table("Faults")
        listed = {(row["partition"], row["producer"], row["kind"], row["sequence"], row["records"]) for row in found}
        assert listed == expected
        assert len(found) == outcome.found == PLANTED
        assert {row["topic"] for row in found} == {"orders"}
        assert len(outcome.batches) > 1
        assert outcome.figures["records without a sequence"] == 0

        # The same from an archive, and from the checkpoint without new messages.
        archive(
            ["orders"], lake=tmp_path / "lake", context=PipelineContext(bootstrap=broker.http, spark=spark, show=False)
        )
        assert audit(lake=tmp_path / "lake", context=PipelineContext(spark=spark, show=False)).table("Faults") == found
        again = audit(["orders", "intact"], context=context)
        assert (again.table("Faults"), again.batches) == (found, [])


def test_records_without_sequence_numbers_are_counted_separately(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    for number in range(10):
        broker.send("orders", f"body {number}")
    outcome = audit(
        ["orders"], context=PipelineContext(bootstrap=broker.http, spark=spark, show=False, checkpoint=tmp_path)
    )
    assert (outcome.found, outcome.figures["records without a sequence"], outcome.figures["records checked"]) == (
        0,
        10,
        0,
    )
    (row,) = outcome.table("Not judged")
    assert (row["topic"], row["partition"], row["records"]) == ("orders", 0, 10)
    assert row["reason"] == "no sequence: the producer is not idempotent"
    again = audit(
        ["orders"], context=PipelineContext(bootstrap=broker.http, spark=spark, show=False, checkpoint=tmp_path)
    )
    assert again.table("Not judged") == [row]


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_gaps_in_a_compacted_topic_are_not_judged(spark: Any, tmp_path: Path, port: str) -> None:
    data = tmp_path / "data"
    with Broker(folder=data) as broker:
        broker.create_topic("orders")
        broker.create_topic("latest", cleanup="compact")
    for topic in ("orders", "latest"):
        (log,) = data.rglob(f"{topic}-0/00000000000000000000.log")
        log.write_bytes(batches([0, 1, 4, 4], 100, 0)[0])
    with Broker(folder=data) as broker:
        context = PipelineContext(
            bootstrap=getattr(broker, port), spark=spark, show=False, checkpoint=tmp_path / "checkpoint"
        )
        outcome = audit(["orders", "latest"], context=context)
    found = {(row["topic"], row["kind"]) for row in outcome.table("Faults")}
    assert found == {("orders", "gap"), ("orders", "duplicate"), ("latest", "duplicate")}
    (row,) = outcome.table("Not judged")
    assert (row["topic"], row["partition"], "compacted" in str(row["reason"])) == ("latest", 0, True)


def test_an_archive_of_an_intact_topic_with_aborted_transactions_has_no_faults(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders", partitions=2)
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(30)
    for turn in range(6):
        producer.begin_transaction()
        for number in range(5):
            producer.produce("orders", f"{turn} {number}", partition=number % 2)
        producer.flush(30)
        if turn % 3 == 0:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    del producer
    lake = tmp_path / "lake"
    # In batches of a few records, some of which begin and end within a transaction; and again after a lost checkpoint.
    context = PipelineContext(bootstrap=broker.http, spark=spark, show=False, rows_per_batch=7)
    kept = archive(["orders"], lake=lake, context=context)
    assert kept.figures["rows in the lake"] == 20
    lost = PipelineContext(bootstrap=broker.http, spark=spark, show=False, checkpoint=tmp_path / "other")
    assert archive(["orders"], lake=lake, context=lost).figures["rows archived"] == 0
    outcome = audit(lake=lake, context=PipelineContext(spark=spark, show=False))
    assert (outcome.found, outcome.figures["records checked"]) == (0, 30)
    with pytest.raises(StartupError, match="leave out --continuous and --checkpoint"):
        audit(lake=lake, context=PipelineContext(spark=spark, show=False, once=False))
    with pytest.raises(StartupError, match="leave out --continuous and --checkpoint"):
        audit(lake=lake, context=PipelineContext(spark=spark, show=False, checkpoint=tmp_path / "third"))
