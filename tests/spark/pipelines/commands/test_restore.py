"""Archives restored into topics: byte for byte, in order, once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pandas
import pytest

from pyspark_trimq.pipelines import PipelineContext, PipelineFailure, archive, dead_letters, restore
from trimq.errors import StartupError
from trimq.model import Record
from trimq.testing import Broker

ORIGIN = "trimq-origin-"


def fill(broker: Broker, topic: str, numbers: range) -> None:
    for number in numbers:
        headers = {"n": str(number).encode(), "none": None} if number % 3 else {}
        key = None if number % 5 == 0 else f"key {number}"
        body = None if number % 7 == 0 else hashlib.sha256(b"%d" % number).digest() * (number % 4)
        broker.send(
            topic, body, key, headers, partition=number % 3, timestamp_ms=1_700_000_000_000 + number * 7919 % 1000
        )


def own(record: Record) -> tuple[Any, ...]:
    """Returns the message without the headers that restoring adds."""
    headers = tuple((name, value) for name, value in record.headers if not name.startswith(ORIGIN))
    return record.key, record.body, headers, record.timestamp_ms


def origin(record: Record) -> tuple[str, int, int]:
    headers = {
        name.removeprefix(ORIGIN): (value or b"").decode() for name, value in record.headers if name.startswith(ORIGIN)
    }
    return headers["topic"], int(headers["partition"]), int(headers["offset"])


@pytest.mark.parametrize("format", ["parquet", "iceberg"])
def test_archived_messages_are_restored_byte_for_byte_and_only_once(
    spark: Any, broker: Broker, tmp_path: Path, format: str
) -> None:
    broker.create_topic("orders", partitions=3)
    fill(broker, "orders", range(60))
    context = PipelineContext(bootstrap=broker.http, spark=spark, show=False, rows_per_batch=24)
    archive(["orders"], lake=tmp_path / "lake", format=format, context=context)
    outcome = restore(tmp_path / "lake", to="{topic}-again", context=context)
    assert (outcome.figures["rows written"], outcome.figures["rows there already"]) == (60, 0)

    def check() -> None:
        for partition in range(3):
            before, after = broker.records("orders", partition), broker.records("orders-again", partition)
            assert list(map(own, after)) == list(map(own, before))
            assert list(map(origin, after)) == [("orders", partition, record.offset) for record in before]

    check()
    again = restore(tmp_path / "lake", to="{topic}-again", context=context)
    assert (again.figures["rows written"], again.figures["rows there already"]) == (0, 60)
    check()

    fill(broker, "orders", range(60, 70))
    archive(["orders"], lake=tmp_path / "lake", format=format, context=context)
    more = restore(tmp_path / "lake", topics=["orders"], to="{topic}-again", context=context)
    assert (more.figures["rows written"], more.figures["rows there already"]) == (10, 60)
    check()
    offsets = pandas.read_parquet(tmp_path / "lake" / "_trimq" / "offset_map" / "topic=orders")
    records = {(p, r.offset): origin(r)[2] for p in range(3) for r in broker.records("orders-again", p)}
    assert {(row.partition, row.new_offset): row.origin_offset for row in offsets.itertuples()} == records


def test_an_impossible_restore_is_refused_in_a_sentence(spark: Any, broker: Broker, tmp_path: Path) -> None:
    context = PipelineContext(bootstrap=broker.http, spark=spark, show=False)
    with pytest.raises(StartupError, match="is not an archive"):
        restore(tmp_path, context=context)
    broker.create_topic("orders", partitions=2)
    broker.create_topic("narrow", partitions=1)
    fill_two = [broker.send("orders", b"body", partition=partition) for partition in (0, 1)]
    assert fill_two
    archive(["orders"], lake=tmp_path / "lake", context=context)
    with pytest.raises(StartupError, match="has no topic 'others'"):
        restore(tmp_path / "lake", topics=["others"], context=context)
    with pytest.raises(StartupError, match="holds messages that were not restored"):
        restore(tmp_path / "lake", context=context)
    with pytest.raises(StartupError, match="'narrow' has 1 partitions, but 'orders' had 2"):
        restore(tmp_path / "lake", to="narrow", context=context)
    with pytest.raises(StartupError, match="is not a topic name"):
        restore(tmp_path / "lake", to="{other}", context=context)


def test_an_unknown_topic_and_a_missing_broker_are_reported_in_a_sentence(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    with pytest.raises(PipelineFailure, match=r"^there is no topic or queue 'none' at http"):
        archive(
            ["none"], lake=tmp_path / "lake", context=PipelineContext(bootstrap=broker.http, spark=spark, show=False)
        )
    with pytest.raises(PipelineFailure, match=r"^there is no topic or queue 'none' at http"):
        dead_letters(["none"], context=PipelineContext(bootstrap=broker.http, spark=spark, show=False))
    nowhere = PipelineContext(bootstrap="http://127.0.0.1:9", spark=spark, show=False)
    with pytest.raises(PipelineFailure, match=r"^the broker at http://127\.0\.0\.1:9 does not answer"):
        archive(["none"], lake=tmp_path / "other", context=nowhere)
