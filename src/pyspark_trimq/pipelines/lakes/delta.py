"""Delta lake. Spark's tasks write the files; one commit of the Delta log adds them and records the batch."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction
from pyspark.sql import SparkSession

from pyspark_trimq.pipelines.lakes.files import DATE, TOPIC, DataFile, RowSource
from pyspark_trimq.pipelines.lakes.lake import OWN_FOLDER
from pyspark_trimq.pipelines.lakes.replaced_files import ReplacedFiles

DATA = "data"
BY = [TOPIC, DATE]


class DeltaLake:
    format = "delta"
    keeps_columns = False

    def __init__(self, folder: Path, keep_ms: int) -> None:
        self.folder = folder.resolve()
        self.staging = self.folder / OWN_FOLDER / "staging"
        self._replaced = ReplacedFiles(self.folder, keep_ms)

    def committed(self, writer: str) -> int:
        table = self._table()
        version = None if table is None else table.transaction_version(writer)
        return -1 if version is None else version

    def append(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        return self._commit(rows, writer, batch, "append")

    def replace(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        return self._commit(rows, writer, batch, "overwrite")

    def files(self) -> list[DataFile]:
        table = self._table()
        if table is None:
            return []
        rows = table.get_add_actions(flatten=True)
        names = ("path", "partition.topic", "partition.date", "num_records", "size_bytes")
        columns = [rows[name].to_pylist() for name in names]
        return [DataFile(self._path(path), *more) for path, *more in zip(*columns, strict=True)]

    def _path(self, name: str) -> Path:
        """Returns the path of a file in the log, where names are URL-encoded."""
        path = self.folder / unquote(name)
        return path if path.exists() else self.folder / name

    def compact(self, spark: SparkSession, small_bytes: int, at_least: int) -> int:
        """Uses Delta's own compaction, with `small_bytes` as the target size."""
        table = self._table()
        files = self.files()
        if table is None or len([file for file in files if file.bytes < small_bytes]) < at_least:
            return 0
        removed = int(table.optimize.compact(target_size=max(small_bytes, 1))["numFilesRemoved"])
        self.sweep()
        return removed

    def sweep(self) -> int:
        shutil.rmtree(self.staging, ignore_errors=True)
        if self._table() is None:
            return 0
        there = [*(self.folder / DATA).glob("*.parquet"), *self.folder.glob("topic=*/date=*/*.parquet")]
        return self._replaced.sweep(there, [file.path for file in self.files()])

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.folder)
        except TableNotFoundError:
            return None

    def _commit(self, rows: RowSource, writer: str, batch: int, mode: Literal["append", "overwrite"]) -> list[DataFile]:
        table = self._table()
        if table is None:
            table = DeltaTable.create(self.folder, rows.schema(), partition_by=BY)
        if batch <= self.committed(writer):
            return []
        files = self._move_into_place(rows)
        actions = [
            AddAction(
                f"{DATA}/{file.path.name}",
                file.bytes,
                {TOPIC: file.topic, DATE: file.date},
                int(file.path.stat().st_mtime * 1000),
                True,
                json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        marked = CommitProperties(app_transactions=[Transaction(writer, batch)])
        table.create_write_transaction(list(actions), mode, table.schema(), partition_by=BY, commit_properties=marked)
        return files

    def _move_into_place(self, rows: RowSource) -> list[DataFile]:
        """Moves staged files into the data folder, under names that need no URL encoding."""
        token = uuid.uuid4().hex[:12]
        staged = rows.stage(self.staging, self.keeps_columns)
        (self.folder / DATA).mkdir(exist_ok=True)
        placed = []
        for number, file in enumerate(staged):
            path = self.folder / DATA / f"{token}-{number:05}.parquet"
            placed.append(file._replace(path=file.path.rename(path)))
        shutil.rmtree(self.staging, ignore_errors=True)
        return placed
