"""Archives: every field, every message once, in each format, after kills too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pyspark_trimq.pipelines import PipelineContext, archive
from pyspark_trimq.pipelines.lakes.lake import open_for_reading
from trimq.errors import StartupError
from trimq.testing import Broker

FORMATS = ("parquet", "delta", "iceberg")
DAY_MS = 86_400_000


def context(spark: Any, broker: Broker, **more: Any) -> PipelineContext:
    return PipelineContext(bootstrap=broker.http, spark=spark, show=False, **more)


def fill(broker: Broker, topic: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        headers = {"n": str(number).encode(), "none": None} if number % 3 else {}
        key = None if number % 5 == 0 else f"key {number}"
        body = None if number % 7 == 0 else b"\x00\xff body %d" % number
        broker.send(topic, body, key, headers, partition=number % 2, timestamp_ms=DAY_MS * (number % 3) + number)


def rows_by_others(format: str, lake: Path) -> Any:
    """Reads the lake with other libraries than ours."""
    if format == "delta":
        from deltalake import DeltaTable

        return DeltaTable(lake).to_pandas()
    if format == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        catalogue = SqlCatalog(
            "trimq", uri=f"sqlite:///{lake / 'catalogue.db'}", warehouse=f"file://{lake}", poolclass="NullPool"
        )
        return catalogue.load_table("trimq.messages").scan().to_pandas()
    import pandas

    return pandas.read_parquet(lake)


def message(row: Any) -> tuple[Any, ...]:
    headers = [(each["key"], each["value"]) for each in row["headers"]]
    return (
        row["partition"],
        row["offset"],
        row["key"],
        row["value"],
        headers,
        row["timestamp"].timestamp(),
        row["timestampType"],
    )


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_has_every_field_of_every_message_once(
    spark: Any, broker: Broker, tmp_path: Path, format: str
) -> None:
    for topic in ("orders", "a b"):
        broker.create_topic(topic.replace(" ", "."), partitions=2)
        fill(broker, topic.replace(" ", "."), 20)
    lake = tmp_path / "lake"
    first = archive(["orders", "a.b"], lake=lake, format=format, context=context(spark, broker, rows_per_batch=15))
    assert first.figures["rows archived"] == 40
    fill(broker, "orders", 5, first=20)
    second = archive(
        ["orders", "a.b"], lake=lake, format=format, compact_from=2, context=context(spark, broker, rows_per_batch=15)
    )
    assert second.figures["rows archived"] == 5
    assert second.figures["files put together"]
    found = rows_by_others(format, lake)
    assert len(found) == 45
    asked = spark.read.format("trimq").options(bootstrap=broker.http, subscribe="orders", includeHeaders="true").load()
    expected = sorted(map(message, asked.collect()), key=lambda row: row[:2])
    archived = sorted(
        (message(row) for _, row in found[found["topic"] == "orders"].iterrows()), key=lambda row: row[:2]
    )
    assert [row[:2] for row in archived] == [row[:2] for row in expected]
    assert archived == expected
    assert set(found["date"].astype(str)) == {"1970-01-01", "1970-01-02", "1970-01-03"}
    assert sum(file.rows for file in open_for_reading(lake).files()) == 45


def test_an_archive_continues_after_the_rows_of_the_lake_if_its_checkpoint_is_lost(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders", partitions=2)
    fill(broker, "orders", 10)
    archive(["orders"], lake=tmp_path / "lake", context=context(spark, broker))
    fill(broker, "orders", 4, first=10)
    again = archive(["orders"], lake=tmp_path / "lake", context=context(spark, broker, checkpoint=tmp_path / "other"))
    assert again.figures["rows archived"] == 4
    assert again.figures["rows in the lake"] == 14


def test_a_checkpoint_of_something_else_is_refused(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    broker.create_topic("others")
    checkpoint = tmp_path / "checkpoint"
    archive(["orders"], lake=tmp_path / "lake", context=context(spark, broker, checkpoint=checkpoint))
    with pytest.raises(StartupError, match="its subscribe is 'orders', not 'others'"):
        archive(["others"], lake=tmp_path / "lake", context=context(spark, broker, checkpoint=checkpoint))
    with pytest.raises(StartupError, match="has the format parquet, not delta"):
        archive(
            ["orders"], lake=tmp_path / "lake", format="delta", context=context(spark, broker, checkpoint=checkpoint)
        )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(StartupError, match="neither empty nor a checkpoint"):
        archive(["orders"], lake=tmp_path / "lake", context=context(spark, broker, checkpoint=tmp_path / "full"))


def test_a_kill_between_commit_and_publication_of_files_is_repaired(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders", partitions=2)
    fill(broker, "orders", 12)
    lake = tmp_path / "lake"
    archive(["orders"], lake=lake, context=context(spark, broker))
    # Same state as after a kill between the commit and the move of the last files, while the next ones were written.
    entries = list(json.loads((lake / "_trimq" / "manifest" / "000000000001.json").read_text())["add"])
    for entry in entries[1:]:
        (lake / entry["staged"]).parent.mkdir(parents=True, exist_ok=True)
        (lake / entry["path"]).rename(lake / entry["staged"])
    orphan = lake / "_trimq" / "staging" / "other" / "topic=orders" / "date=1970-01-01" / "part-0.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"half a file")
    stranger = (lake / entries[0]["path"]).with_name("trimq-lost-00000.parquet")
    stranger.write_bytes(b"half a file")
    assert archive(["orders"], lake=lake, context=context(spark, broker)).figures["rows archived"] == 0
    assert len(rows_by_others("parquet", lake)) == 12
    assert not orphan.exists()


@pytest.mark.timeout(600)  # Spark starts three times, each up to a minute on a busy machine
def test_an_archive_that_is_killed_again_and_again_has_every_message_once(tmp_path: Path) -> None:
    count = 1200
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(count):
            broker.send("orders", b"body %d" % number, partition=number % 2, timestamp_ms=1 + number)
        lake = tmp_path / "lake"
        words = ["pipeline", "archive", "orders", "--lake", str(lake), "--rows-per-batch", "100", "--compact-from", "0"]
        tuned = ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"]
        command = [
            sys.executable,
            "-m",
            "trimq.cli",
            *words,
            *tuned,
            "--bootstrap",
            broker.http,
            "--master",
            "local[2]",
        ]
        for commits in (2, 6):
            kill_after(command, lake / "_trimq" / "manifest", commits)
            seen = rows_by_others("parquet", lake) if list(lake.glob("topic=*")) else []
            assert len(seen) <= count
        page, told = tmp_path / "report.html", tmp_path / "outcome.json"
        done = subprocess.run(
            [*command, "--report", str(page), "--json", str(told)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found = rows_by_others("parquet", lake)
    assert sorted(zip(found["partition"], found["offset"], strict=True)) == [
        (p, at) for p in range(2) for at in range(count // 2)
    ]
    assert {bytes(value) for value in found["value"]} == {b"body %d" % number for number in range(count)}
    outcome = json.loads(told.read_text())
    assert outcome["figures"]["rows in the lake"] == count
    assert outcome["figures"]["rows archived"] < count
    assert page.read_text().count("<svg") >= 2
    assert "rows in the lake" in done.stdout


def kill_after(command: list[str], manifest: Path, commits: int) -> None:
    """Starts the command, and kills it with its children as soon as the lake has `commits` commits."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 250
        while len(list(manifest.glob("*.json"))) < commits:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
