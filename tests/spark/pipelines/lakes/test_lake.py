"""Lakes keep their files with relative paths, after refused runs, and while a reader is active."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_trimq.pipelines import PipelineContext, archive, restore, snapshot
from pyspark_trimq.pipelines.lakes.lake import open_for_reading
from pyspark_trimq.pipelines.lakes.replaced_files import ReplacedFiles
from trimq.errors import StartupError
from trimq.testing import Broker

FORMATS = ("parquet", "delta", "iceberg")


def context(spark: Any, broker: Broker, **more: Any) -> PipelineContext:
    return PipelineContext(bootstrap=broker.http, spark=spark, show=False, **more)


def fill(broker: Broker, topic: str, numbers: range) -> None:
    for number in numbers:
        broker.send(topic, f"body {number}", f"key {number}", timestamp_ms=1_700_000_000_000 + number)


def bodies(lake: Path) -> list[str]:
    """Returns the bodies in all current files, each of which must exist."""
    import pyarrow.parquet as parquet

    files = open_for_reading(lake).files()
    tables = [parquet.read_table(file.path, partitioning=None) for file in files]
    return sorted(value.decode() for table in tables for value in table["value"].to_pylist())


def expected(count: int) -> list[str]:
    return sorted(f"body {number}" for number in range(count))


@pytest.mark.parametrize("format", FORMATS)
def test_a_lake_keeps_its_files_under_a_relative_name(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.chdir(tmp_path)
    broker.create_topic("orders")
    fill(broker, "orders", range(3))
    archive(["orders"], lake="lake", format=format, keep_replaced="0", context=context(spark, broker))
    fill(broker, "orders", range(3, 5))
    again = archive(["orders"], lake="lake", format=format, keep_replaced="0", context=context(spark, broker))
    assert again.figures["rows in the lake"] == 5
    assert bodies(Path("lake")) == expected(5)
    snapshot(
        ["orders"], lake="keys", format=format, keep_replaced="0", context=context(spark, broker, rows_per_batch=2)
    )
    assert bodies(Path("keys")) == expected(5)


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_that_is_refused_takes_nothing_from_a_lake_of_another_spelling(
    spark: Any, broker: Broker, tmp_path: Path, format: str
) -> None:
    for topic in ("orders", "others"):
        broker.create_topic(topic)
    fill(broker, "orders", range(4))
    lake = tmp_path / "lake"
    archive(["orders"], lake=lake, format=format, context=context(spark, broker))
    (tmp_path / "link").symlink_to(lake)
    orphan = lake / "_trimq" / "staging" / "half.parquet"
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"half a file")
    for spelled in (tmp_path / "link", tmp_path / "other" / ".." / "lake"):
        (tmp_path / "other").mkdir(exist_ok=True)
        with pytest.raises(StartupError, match="has other settings"):
            archive(["others"], lake=spelled, format=format, keep_replaced="0", context=context(spark, broker))
        assert orphan.exists(), "nothing is swept before it is known whose lake it is"
        assert bodies(lake) == expected(4)
    fill(broker, "orders", range(4, 6))
    same = archive(["orders"], lake=tmp_path / "link", format=format, keep_replaced="0", context=context(spark, broker))
    assert (same.figures["rows archived"], same.figures["rows in the lake"]) == (2, 6)
    assert bodies(lake) == expected(6)


def test_a_lake_without_its_manifest_is_refused_and_keeps_its_files(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    fill(broker, "orders", range(4))
    lake = tmp_path / "lake"
    archive(["orders"], lake=lake, context=context(spark, broker))
    (lake / "_trimq").rename(tmp_path / "gone")
    before = sorted(lake.rglob("*.parquet"))
    with pytest.raises(StartupError, match="but no manifest lists them"):
        archive(["orders"], lake=lake, context=context(spark, broker))
    assert sorted(lake.rglob("*.parquet")) == before


def test_nothing_is_removed_if_the_current_files_are_elsewhere(tmp_path: Path) -> None:
    there = [tmp_path / "data" / f"{number}.parquet" for number in range(3)]
    for path in there:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"rows")
    (tmp_path / "_trimq").mkdir()
    lake = ReplacedFiles(tmp_path, keep_ms=0)
    assert lake.sweep(there, [tmp_path / "elsewhere" / "0.parquet"]) == 0
    assert all(path.exists() for path in there)
    assert lake.sweep(there, there[:1]) == 2
    assert [path.exists() for path in there] == [True, False, False]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_reader_of_a_lake_continues_during_compaction(
    spark: Any, broker: Broker, tmp_path: Path, format: str
) -> None:
    broker.create_topic("orders")
    lake = tmp_path / "lake"
    for number in range(4):
        fill(broker, "orders", range(number, number + 1))
        archive(["orders"], lake=lake, format=format, compact_from=0, context=context(spark, broker))
    begun = open_for_reading(lake).files()
    assert len(begun) == 4
    done = archive(["orders"], lake=lake, format=format, compact_from=2, context=context(spark, broker))
    assert done.figures["files put together"] == 4
    assert len(open_for_reading(lake).files()) == 1
    assert all(file.path.exists() for file in begun), "they are kept for an hour"
    archive(["orders"], lake=lake, format=format, keep_replaced="0", context=context(spark, broker))
    assert not any(file.path.exists() for file in begun)
    assert bodies(lake) == expected(4)


@pytest.mark.parametrize("format", FORMATS)
def test_names_of_any_kind_are_archived_compacted_and_restored(
    spark: Any, broker: Broker, tmp_path: Path, format: str
) -> None:
    """Spark treats brackets as patterns; URLs encode signs and spaces."""
    names = {"parquet": "la[k]e {1,2} 50% é*?#", "delta": "la{1,2}ke 50% é*?#", "iceberg": "la[k]e {1,2} 50% é*"}
    for other in ("delta", "iceberg"):
        with pytest.raises(StartupError, match=f"of the format {other} cannot be in"):
            archive(["orders"], lake=tmp_path / names["parquet"], format=other, context=context(spark, broker))
    lake = tmp_path / names[format]
    broker.create_topic("orders")
    for number in range(3):
        fill(broker, "orders", range(number, number + 1))
        archive(["orders"], lake=lake, format=format, compact_from=2, keep_replaced="0", context=context(spark, broker))
    assert bodies(lake) == expected(3)
    outcome = restore(lake, to="again", context=context(spark, broker))
    assert outcome.figures["rows written"] == 3
    assert [record.body for record in broker.records("again")] == [b"body 0", b"body 1", b"body 2"]


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_of_a_pattern_continues_after_the_last_rows_of_the_lake(
    spark: Any, broker: Broker, tmp_path: Path, format: str
) -> None:
    for topic in ("orders.a", "orders.b"):
        broker.create_topic(topic, partitions=2)
    fill(broker, "orders.a", range(4))
    archive(pattern=r"orders\..*", lake=tmp_path / "lake", format=format, context=context(spark, broker))
    broker.create_topic("orders.c")
    fill(broker, "orders.b", range(4, 6))
    fill(broker, "orders.c", range(6, 7))
    lost = context(spark, broker, checkpoint=tmp_path / "other")
    again = archive(pattern=r"orders\..*", lake=tmp_path / "lake", format=format, context=lost)
    assert again.figures["rows archived"] == 3
    assert bodies(tmp_path / "lake") == expected(7)


@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_repeated_by_spark_after_the_commit_of_the_lake_is_stored_once(
    spark: Any, broker: Broker, tmp_path: Path, format: str
) -> None:
    broker.create_topic("orders")
    fill(broker, "orders", range(6))
    lake = tmp_path / "lake"
    options = context(spark, broker, rows_per_batch=4)
    archive(["orders"], lake=lake, format=format, context=options)
    commits = lake / "_trimq" / "checkpoint" / "spark" / "commits"
    for name in ("1", ".1.crc"):  # the state after a kill right before Spark's own commit
        (commits / name).unlink()
    again = archive(["orders"], lake=lake, format=format, context=options)
    assert (again.figures["rows archived"], again.figures["rows in the lake"]) == (0, 6)
    assert bodies(lake) == expected(6)
    assert (commits / "1").exists()
