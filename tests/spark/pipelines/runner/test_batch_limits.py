"""Pipelines that copy messages hold a bounded number of them in memory, and report a lack of memory."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pyspark_trimq.pipelines import PipelineContext, PipelineFailure, dead_letters, dedupe
from pyspark_trimq.pipelines.messages import offset_order
from pyspark_trimq.pipelines.runner import batch_limits
from pyspark_trimq.pipelines.runner.failure import plain_errors, plain_message
from pyspark_trimq.session import DEFAULTS
from trimq.testing import Broker

ROWS = [("a", number % 3, number // 3, None if number % 7 == 0 else bytes([number]) * 1000) for number in range(200)]
LARGE = 100_000


def batches_of(rows: list[Any], count: int) -> list[pa.RecordBatch]:
    names = [*offset_order.POSITION_COLUMNS, "value"]
    parts = [rows[first::count] for first in range(count)]
    types = [pa.string(), pa.int32(), pa.int64(), pa.binary()]
    return [
        pa.RecordBatch.from_arrays(
            [pa.array(column, type) for column, type in zip(zip(*part, strict=True), types, strict=True)], names
        )
        for part in parts
    ]


@pytest.mark.parametrize("held_bytes", [1 << 20, 10_000, 1])
def test_rows_are_in_order_however_few_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    monkeypatch.setattr(offset_order, "HELD_BYTES", held_bytes)
    monkeypatch.setattr(offset_order, "PIECE_BYTES", 20_000)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    mixed = random.Random(3).sample(ROWS, len(ROWS))
    found = list(offset_order.sort_by_offset(iter(batches_of(mixed, 9))))
    assert [tuple(row.values()) for batch in found for row in batch.to_pylist()] == sorted(
        ROWS, key=lambda row: row[:3]
    )
    assert max(batch.nbytes for batch in found) < 25_000
    assert list(tmp_path.iterdir()) == []


def test_no_rows_are_in_order() -> None:
    assert list(offset_order.sort_by_offset(iter([]))) == []


def test_a_session_hands_rows_to_python_in_pieces() -> None:
    assert int(DEFAULTS["spark.sql.execution.arrow.maxBytesPerBatch"]) == 64 << 20


@pytest.fixture
def large(broker: Broker) -> Broker:
    broker.create_topic("large")
    for number in range(12):
        body = os.urandom(LARGE)
        broker.send("large", body, str(number % 10), {"kafka_dlt-original-topic": b"again"}, timestamp_ms=1000 + number)
    broker.create_topic("again")
    return broker


def test_large_messages_are_copied_a_few_at_a_time(
    spark: Any, large: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_limits, "BATCH_BYTES", 7 * LARGE)
    context = PipelineContext(bootstrap=large.http, spark=spark, show=False, checkpoint=tmp_path / "once")
    outcome = dedupe(["large"], to="once", by="key", context=context)
    assert [batch.rows for batch in outcome.batches] == [6, 6]
    assert outcome.figures["written"] == 10


def test_large_letters_are_sent_again_in_batches_of_the_given_size(spark: Any, large: Broker, tmp_path: Path) -> None:
    few = {"maxBytesPerTrigger": str(7 * LARGE)}
    context = PipelineContext(bootstrap=large.http, spark=spark, show=False, checkpoint=tmp_path, options=few)
    outcome = dead_letters(["large"], redrive=True, context=context)
    assert [batch.rows for batch in outcome.batches] == [6, 6]
    assert [record.body for record in large.records("again")] == [record.body for record in large.records("large")]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            "Job aborted: org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.",
            "Spark's Java process has too little memory for this: ",
        ),
        (
            'Cannot invoke "org.apache.spark.scheduler.DAGScheduler.submitJob()" because "this.dagScheduler()" is null',
            "Spark's Java process has ended, ",
        ),
        ("Cannot call methods on a stopped SparkContext.\nThis stopped", "Spark's Java process has ended, "),
        ("Job 3 cancelled because SparkContext was shut down", "Spark's Java process has ended, "),
    ],
)
def test_a_lack_of_memory_in_spark_is_reported_in_a_sentence(error: str, sentence: str) -> None:
    for kind in (PySparkException, Py4JError):
        with pytest.raises(PipelineFailure, match=f"^{sentence}") as raised, plain_errors():
            raise kind(error)
        assert str(raised.value) == plain_message(kind(error))
        assert "maxBytesPerTrigger" in str(raised.value)
