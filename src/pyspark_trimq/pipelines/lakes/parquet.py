"""Lake of plain Parquet files, `topic=T/date=D/….parquet`, for any reader that lists folders. Files become visible only
after the manifest lists them, so each row is visible at most once at any time, and exactly once after a sweep."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_trimq.pipelines.lakes.compaction import compacted_rows, small_groups
from pyspark_trimq.pipelines.lakes.files import DataFile, FrameRows, RowSource
from pyspark_trimq.pipelines.lakes.lake import OWN_FOLDER
from pyspark_trimq.pipelines.lakes.manifest import Entry, Manifest, State
from pyspark_trimq.pipelines.runner.checkpoint import sync_folder
from trimq.errors import StartupError

PREFIX = "trimq-"  # of our data files: a sweep deletes no others


class ParquetLake:
    format = "parquet"
    keeps_columns = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.staging = self.folder / OWN_FOLDER / "staging"
        self._manifest = Manifest(self.folder / OWN_FOLDER / "manifest", self.folder)

    def committed(self, writer: str) -> int:
        return self._manifest.state().batches.get(writer, -1)

    def append(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        if batch <= self.committed(writer):
            return []
        return self._commit(rows, [], writer, batch)

    def replace(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        state = self._manifest.state()
        if batch <= state.batches.get(writer, -1):
            return []
        return self._commit(rows, list(state.files), writer, batch)

    def files(self) -> list[DataFile]:
        return [self._data_file(entry) for entry in self._manifest.state().files.values()]

    def compact(self, spark: SparkSession, small_bytes: int, at_least: int) -> int:
        gone = 0
        for group in small_groups(self.files(), small_bytes, at_least):
            self._commit(
                FrameRows(compacted_rows(spark, group)), [str(file.path.relative_to(self.folder)) for file in group]
            )
            gone += len(group)
        return gone

    def sweep(self) -> int:
        """Raises StartupError if there are data files, but the manifest is empty, so that the live ones are unknown."""
        state = self._manifest.state()
        self._publish_files(state)
        orphans = list(self.staging.rglob("*.parquet")) if self.staging.exists() else []
        shutil.rmtree(self.staging, ignore_errors=True)
        unlisted = [
            path
            for path in self.folder.glob(f"topic=*/date=*/{PREFIX}*.parquet")
            if str(path.relative_to(self.folder)) not in state.files
        ]
        if unlisted and not (state.files or state.batches):
            raise StartupError(f"{self.folder} has files of a lake, but no manifest lists them: name another folder")
        for path in unlisted:
            path.unlink()
        return len(orphans) + len(unlisted)

    def _commit(self, rows: RowSource, remove: Sequence[str], writer: str = "", batch: int = -1) -> list[DataFile]:
        token = uuid.uuid4().hex[:12]
        staged = rows.stage(self.staging, self.keeps_columns)
        entries = [
            Entry(
                "/".join((*file.path.parts[-3:-1], f"{PREFIX}{token}-{number:05}.parquet")),
                str(file.path.relative_to(self.folder)),
                *file[1:],
            )
            for number, file in enumerate(staged)
        ]
        self._manifest.commit(entries, remove, writer, batch)
        self._publish_files(State({entry.path: entry for entry in entries}, set(remove), {}))
        shutil.rmtree(self.staging, ignore_errors=True)
        return [self._data_file(entry) for entry in entries]

    def _publish_files(self, state: State) -> None:
        """Deletes replaced files before it makes new ones visible, so that no reader sees a row twice."""
        for name in state.removed:
            (self.folder / name).unlink(missing_ok=True)
        touched = set()
        for entry in state.files.values():
            path, staged = self.folder / entry.path, self.folder / entry.staged
            if not path.exists() and staged.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(path)
                touched.add(path.parent)
        for folder in touched:
            sync_folder(folder)

    def _data_file(self, entry: Entry) -> DataFile:
        return DataFile(self.folder / entry.path, entry.topic, entry.date, entry.rows, entry.bytes)
