"""Metadata of lakes stays small after many commits, and is kept as long as it is needed."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql.types import StringType

from pyspark_trimq.arrow.columns import row_schema
from pyspark_trimq.pipelines.lakes.files import DATE, DataFile, arrow_schema
from pyspark_trimq.pipelines.lakes.iceberg import NAME, IcebergLake
from pyspark_trimq.pipelines.lakes.manifest import FOLD_AFTER, Entry, Manifest
from trimq.clock import system_clock

HOUR_MS = 3_600_000
DAY = "2026-01-01"
SCHEMA = arrow_schema(row_schema(True).add(DATE, StringType()))


class OneRow:
    """A file with one row, as a task writes it."""

    def schema(self) -> Any:
        return SCHEMA

    def stage(self, staging: Path, keeps_columns: bool) -> list[DataFile]:
        path = staging / uuid.uuid4().hex / "0.parquet"
        path.parent.mkdir(parents=True)
        row = {"value": b"v", "topic": "orders", "partition": 0, "offset": 0, "timestamp": 1000, DATE: DAY}
        parquet.write_table(pa.Table.from_pylist([row], schema=SCHEMA), path)
        return [DataFile(path, "orders", DAY, 1, path.stat().st_size)]


def iceberg(folder: Path, keep_ms: int) -> IcebergLake:
    (folder / "_trimq").mkdir(exist_ok=True)
    return IcebergLake(folder, keep_ms)


def metadata_of(folder: Path) -> list[Path]:
    return list(folder.rglob("metadata/*"))


def test_the_metadata_of_an_iceberg_lake_does_not_grow_with_its_commits(tmp_path: Path) -> None:
    lake = iceberg(tmp_path, keep_ms=0)
    sizes = []
    for batch in range(90):
        lake.append(OneRow(), "writer", batch)
        if batch % 30 == 29:
            lake.sweep()
            found = metadata_of(tmp_path)
            sizes.append(sum(path.stat().st_size for path in found))
            assert len(found) <= 42, "twenty versions, twenty manifests, their list, and the newest"
    assert sizes[2] < 1.5 * sizes[0]
    assert len(lake.files()) == 90
    assert lake.committed("writer") == 89


def test_old_snapshots_can_be_read_for_a_while_and_named_ones_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = iceberg(tmp_path, HOUR_MS)
    for batch in range(25):
        lake.append(OneRow(), "writer", batch)
    table = lake._catalogue().load_table(NAME)
    snapshots = [snapshot.snapshot_id for snapshot in table.snapshots()]
    table.manage_snapshots().create_tag(snapshots[2], "kept").commit()
    lake.replace(OneRow(), "writer", 25)
    lake.sweep()
    clock = system_clock().message
    now_ms = clock.now_ms()

    def rows(snapshot: int) -> int:
        found = lake._catalogue().load_table(NAME).scan(snapshot_id=snapshot).to_arrow()
        return int(found.num_rows)

    def sweep_after(passed_ms: int) -> None:
        monkeypatch.setattr(type(clock), "now_ms", lambda self: now_ms + passed_ms)
        lake.sweep()

    sweep_after(HOUR_MS - 60_000)
    assert [rows(snapshot) for snapshot in snapshots] == list(range(1, 26))
    sweep_after(HOUR_MS + 60_000)
    left = lake._catalogue().load_table(NAME)
    assert len(left.snapshots()) == 2
    assert rows(snapshots[2]) == 3
    assert left.scan().to_arrow().num_rows == 1
    assert len(metadata_of(tmp_path)) <= 42


def test_a_half_created_table_of_a_lake_is_completed(tmp_path: Path) -> None:
    lake = iceberg(tmp_path, HOUR_MS)
    lake._catalogue().create_table(NAME, SCHEMA)  # an earlier version partitioned it in a second step
    lake.sweep()
    lake.append(OneRow(), "writer", 0)
    assert [(file.topic, file.date, file.rows) for file in lake.files()] == [("orders", DAY, 1)]


def test_a_new_table_is_made_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = iceberg(tmp_path, HOUR_MS)
    lake._created(OneRow())
    (found,) = tmp_path.rglob("*.metadata.json")
    assert '"transform":"identity"' in found.read_text()


def test_a_manifest_forgets_files_that_are_gone(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "_trimq" / "manifest", tmp_path)
    (tmp_path / "left.parquet").write_bytes(b"rows")
    last = ""
    for number in range(2 * FOLD_AFTER):
        added = Entry(f"{number}.parquet", f"staged/{number}.parquet", "orders", DAY, 1, 1)
        manifest.commit([added], ["left.parquet", last] if last else [], "writer", number)
        last = added.path
    state = manifest.state()
    assert list(state.files) == [last]
    assert len(state.removed) <= FOLD_AFTER
    assert "left.parquet" in state.removed, "a kill has left the file: it is to go"
    assert state.batches == {"writer": 2 * FOLD_AFTER - 1}
