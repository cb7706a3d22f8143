"""Deduplication keeps the order; each dead letter is sent again once, and none is skipped for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_trimq.pipelines import Choice, PipelineContext, dead_letters, dedupe, lag
from pyspark_trimq.pipelines.redrive.redriver import LetterPosition, LetterRange, SentLetters, letter_ranges
from pyspark_trimq.pipelines.runner.checkpoint import Checkpoint
from pyspark_trimq.pipelines.runner.failure import PipelineFailure
from trimq.clock import system_clock
from trimq.testing import Broker

SPRING = {"kafka_dlt-original-topic": b"orders", "kafka_dlt-exception-fqcn": b"java.lang.IllegalState"}
HOUR_MS = 3_600_000


def context(spark: Any, broker: Broker, **more: Any) -> PipelineContext:
    return PipelineContext(bootstrap=broker.http, spark=spark, show=False, **more)


def bodies(broker: Broker, topic: str, partition: int = 0) -> list[int]:
    return [int(record.body or b"") for record in broker.records(topic, partition)]


def test_deduplicated_messages_keep_the_order_of_their_partition(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders", partitions=2)
    for number in range(120):
        # Each twice, with decreasing timestamps: neither may change the order.
        headers = {"message-id": str(number // 4 * 2 + number % 2).encode()}
        broker.send(
            "orders", f"{number}", f"key {number % 2}", headers, partition=number % 2, timestamp_ms=10_000 - number
        )
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        outcome = dedupe(["orders"], to="once", context=context(spark, broker, checkpoint=tmp_path, rows_per_batch=50))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    assert outcome.figures["written"] == 60
    for partition in range(2):
        found = bodies(broker, "once", partition)
        assert found == sorted(found)
    assert len(bodies(broker, "once", 0) + bodies(broker, "once", 1)) == 60


def letter(broker: Broker, number: int, hours: float, **headers: bytes) -> None:
    now_ms = system_clock().message.now_ms()
    broker.send("orders.DLT", f"{number}", "key", {**SPRING, **headers}, timestamp_ms=int(now_ms - hours * HOUR_MS))


def test_letters_that_are_too_young_are_sent_by_a_later_run(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("orders", "orders.DLT"):
        broker.create_topic(topic)
    for number, hours in enumerate((5.0, 0.5, 5.0, 0.5)):
        letter(broker, number, hours)
    options = context(spark, broker, checkpoint=tmp_path)

    def again() -> tuple[Any, Any, list[int]]:
        outcome = dead_letters(
            ["orders.DLT"], redrive=True, choice=Choice(older_than="1 hour"), rate=2, context=options
        )
        assert outcome.table("Groups")
        return outcome.figures["chosen"], outcome.figures["sent again"], bodies(broker, "orders")

    assert again() == (2, 2, [0, 2])
    assert again() == (0, 0, [0, 2])
    clock = system_clock().message
    later_ms = clock.now_ms() + HOUR_MS
    monkeypatch.setattr(type(clock), "now_ms", lambda self: later_ms)
    assert again() == (2, 2, [0, 2, 1, 3])
    assert dict(broker.records("orders")[3].headers) == {**SPRING, "trimq-replays": b"1"}


def test_a_redrive_that_was_killed_sends_nothing_twice(spark: Any, broker: Broker, tmp_path: Path) -> None:
    for topic in ("orders", "orders.DLT"):
        broker.create_topic(topic)
    for number in range(4):
        letter(broker, number, 1)
    options = context(spark, broker, checkpoint=tmp_path)

    class Killed(Exception):
        pass

    def die(self: SentLetters, spans: Any) -> None:
        raise Killed

    done = SentLetters.done
    try:
        SentLetters.done = die  # type: ignore[method-assign]  # after the write, before it is noted
        with pytest.raises(Killed):
            dead_letters(["orders.DLT"], redrive=True, rate=3, context=options)
    finally:
        SentLetters.done = done  # type: ignore[method-assign]
    assert bodies(broker, "orders") == [0, 1, 2]
    outcome = dead_letters(["orders.DLT"], redrive=True, rate=3, context=options)
    assert bodies(broker, "orders") == [0, 1, 2, 3]
    assert outcome.figures["chosen"] == 1


def test_letters_of_a_recreated_topic_are_different_letters(tmp_path: Path) -> None:
    sent = SentLetters(Checkpoint(tmp_path, "checkpoint"))
    places = [
        LetterPosition("a", 0, 2),
        LetterPosition("a", 0, 1),
        LetterPosition("a", 1, 1),
        LetterPosition("a", 0, 4),
    ]
    spans = letter_ranges(places, {"a": "old"})
    assert spans == [
        LetterRange("a", "old", 0, 1, 3),
        LetterRange("a", "old", 0, 4, 5),
        LetterRange("a", "old", 1, 1, 2),
    ]
    sent.plan(spans)
    assert sent.unfinished() == spans
    sent.done(spans)
    with (tmp_path / "sent.jsonl").open("a") as file:
        file.write('[["a", "old", 0')  # the state after a kill
    again = SentLetters(Checkpoint(tmp_path, "checkpoint"))
    assert (list(again.spans()), again.unfinished(), again.write_id) == (spans, [], "checkpoint-1")


def test_lag_leaves_out_groups_that_only_hold_tokens(spark: Any, broker: Broker) -> None:
    broker.create_topic("orders")
    rows = spark.range(2).selectExpr("cast(id as string) as value")
    writer = rows.write.format("trimq").option("bootstrap", broker.http).option("topic", "orders")
    writer.option("writeId", "kept").mode("append").save()
    with pytest.raises(PipelineFailure, match="no group has committed offsets of these topics"):
        lag(seconds=0, context=context(spark, broker))


def test_a_redrive_leaves_no_group(spark: Any, broker: Broker, tmp_path: Path) -> None:
    for topic in ("orders", "orders.DLT"):
        broker.create_topic(topic)
    letter(broker, 0, 1)
    dead_letters(["orders.DLT"], redrive=True, context=context(spark, broker, checkpoint=tmp_path))
    from urllib.request import urlopen

    with urlopen(f"{broker.http}/api/groups", timeout=20) as answer:
        assert json.loads(answer.read())["groups"] == []
