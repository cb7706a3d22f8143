"""Files written by tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from pyspark_trimq.pipelines.lakes import task_files
from pyspark_trimq.pipelines.lakes.task_files import TaskFiles

DAY_MS = 86_400_000


def batch(topic: str, *rows: tuple[int, int]) -> pa.RecordBatch:
    """Rows are pairs of offset and milliseconds."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic] * len(rows)),
            pa.array([offset for offset, _ in rows], pa.int64()),
            pa.array([ms * 1000 for _, ms in rows], pa.timestamp("us", tz="UTC")),
        ],
        ["topic", "offset", "timestamp"],
    )


@pytest.mark.parametrize("keeps_columns", [False, True])
def test_each_file_has_the_rows_of_one_day_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_columns: bool
) -> None:
    monkeypatch.setattr(task_files, "OPEN_FILES", 2)
    monkeypatch.setattr(task_files, "GROUP_BYTES", 100)
    files = TaskFiles(tmp_path, "a/b=%", keeps_columns)
    files.add(batch("a/b=%", (0, 5), (1, -1), (2, 6), (3, DAY_MS)))
    files.add(batch("a/b=%", (4, DAY_MS + 1)))
    files.add(batch("a/b=%", (5, 7), (6, DAY_MS + 2), (7, -2)))
    found = files.close()
    by_day: dict[str, list[int]] = {}
    for file in found:
        table = parquet.read_table(tmp_path / file.path, partitioning=None)
        assert table.num_rows == file.rows
        assert (tmp_path / file.path).stat().st_size == file.bytes
        assert file.path.parts[-3:-1] == ("topic=a%2Fb%3D%25", f"date={file.date}")
        if keeps_columns:
            assert set(table["topic"].to_pylist()) == {"a/b=%"}
            assert set(table["date"].to_pylist()) == {file.date}
        else:
            assert table.column_names == ["offset", "timestamp"]
        by_day.setdefault(file.date, []).extend(table["offset"].to_pylist())
    assert by_day == {"1969-12-31": [1, 7], "1970-01-01": [0, 2, 5], "1970-01-02": [3, 4, 6]}
    assert len(found) > 3, "no more files may be open at once"


def test_abandoned_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_files, "GROUP_BYTES", 1)
    files = TaskFiles(tmp_path, "orders", keeps_columns=False)
    files.add(batch("orders", (0, 1), (1, 2)))
    assert list(tmp_path.rglob("*.parquet"))
    files.abandon()
    assert not list(tmp_path.iterdir())


def test_timestamps_outside_the_calendar_are_kept_under_the_first_and_the_last_day(tmp_path: Path) -> None:
    files = TaskFiles(tmp_path, "orders", keeps_columns=False)
    longest = (1 << 63) // 1000 - 1
    files.add(batch("orders", (0, longest), (1, -longest), (2, 0)))
    found = {file.date: file for file in files.close()}
    assert set(found) == {"0001-01-01", "1970-01-01", "9999-12-31"}
    table = parquet.read_table(tmp_path / found["9999-12-31"].path, partitioning=None)
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [longest * 1000]
