"""Iceberg lake with a catalogue in SQLite. Spark's tasks write the files; one transaction adds them and records the
batch in the properties of the table."""

from __future__ import annotations

import logging
import shutil
import uuid
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from pyspark_trimq.pipelines.lakes.compaction import compacted_rows, small_groups
from pyspark_trimq.pipelines.lakes.files import DATE, TOPIC, DataFile, FrameRows, RowSource
from pyspark_trimq.pipelines.lakes.lake import OWN_FOLDER
from pyspark_trimq.pipelines.lakes.replaced_files import ReplacedFiles, refers_to_other_folder
from trimq.errors import StartupError

# It would log a warning for every file without statistics of headers and values, which we omit on purpose.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)

CATALOGUE = "catalogue.db"
NAME = "trimq.messages"
DATA = "data"
BATCH = "trimq.batch."

# Each commit rewrites the table metadata and the manifest list: these settings keep few versions of both.
PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
}


class IcebergLake:
    format = "iceberg"
    keeps_columns = True

    def __init__(self, folder: Path, keep_ms: int) -> None:
        self.folder = folder.resolve()
        self.staging = self.folder / OWN_FOLDER / "staging"
        self._replaced = ReplacedFiles(self.folder, keep_ms)

    def committed(self, writer: str) -> int:
        table = self._table()
        return -1 if table is None else int(table.properties.get(BATCH + writer, -1))

    def append(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        return self._commit(rows, writer, batch, replaces=False)

    def replace(self, rows: RowSource, writer: str, batch: int) -> list[DataFile]:
        return self._commit(rows, writer, batch, replaces=True)

    def files(self) -> list[DataFile]:
        table = self._table()
        if table is None:
            return []
        return [
            DataFile(
                _path(file.file_path),
                str(file.partition[0]),
                str(file.partition[1]),
                file.record_count,
                file.file_size_in_bytes,
            )
            for file in (task.file for task in table.scan().plan_files())
        ]

    def compact(self, spark: SparkSession, small_bytes: int, at_least: int) -> int:
        gone = 0
        for group in small_groups(self.files(), small_bytes, at_least):
            added = self._move_into_place(FrameRows(compacted_rows(spark, group)))
            table = self._table()
            assert table is not None, "it has files"
            with table.transaction() as transaction:
                _replace_files(transaction, {file.path for file in group}, added)
            gone += len(group)
        if gone:
            self.sweep()
        return gone

    def sweep(self) -> int:
        """Also deletes older snapshots and their files after a while: only the current state is kept."""
        shutil.rmtree(self.staging, ignore_errors=True)
        table = self._table()
        if table is None:
            return 0
        there, counted = set((self.folder / DATA).glob("*.parquet")), _data_files(table)
        if refers_to_other_folder(there, counted):
            return 0
        metadata = _path(table.location()) / "metadata"
        there |= {*metadata.glob("*.avro"), *metadata.glob("*.metadata.json")}
        return self._replaced.sweep(there, counted | _metadata_files(table), lambda due: _expire(table, due))

    def _catalogue(self) -> SqlCatalog:
        catalogue = SqlCatalog(
            "trimq", uri=f"sqlite:///{self.folder / CATALOGUE}", warehouse=f"file://{self.folder}", poolclass="NullPool"
        )
        catalogue.create_namespace_if_not_exists("trimq")
        return catalogue

    def _table(self) -> Table | None:
        if not (self.folder / CATALOGUE).exists():
            return None
        try:
            table = self._catalogue().load_table(NAME)
        except NoSuchTableError:
            return None
        if not _path(table.location()).resolve().is_relative_to(self.folder):
            raise StartupError(f"the lake {self.folder} was copied or moved: its table is in {_path(table.location())}")
        return table

    def _created(self, rows: RowSource) -> Table:
        """Creates the table in one step: a killed run leaves a complete table or none."""
        transaction = self._catalogue().create_table_transaction(NAME, rows.schema(), properties=PROPERTIES)
        _partition_by_topic_and_date(transaction)
        return transaction.commit_transaction()

    def _commit(self, rows: RowSource, writer: str, batch: int, replaces: bool) -> list[DataFile]:
        table = self._table() or self._created(rows)
        if batch <= self.committed(writer):
            return []
        old = {file.path for file in self.files()} if replaces else set()
        files = self._move_into_place(rows)
        with table.transaction() as transaction:
            if table.spec().is_unpartitioned():
                _partition_by_topic_and_date(transaction)  # left by a killed run of an earlier version
            if old:
                _replace_files(transaction, old, files)
            elif files:
                transaction.add_files([f"file://{file.path}" for file in files], check_duplicate_files=False)
            transaction.set_properties({**PROPERTIES, BATCH + writer: str(batch)})
        return files

    def _move_into_place(self, rows: RowSource) -> list[DataFile]:
        token = uuid.uuid4().hex[:12]
        staged = rows.stage(self.staging, self.keeps_columns)
        (self.folder / DATA).mkdir(exist_ok=True)
        placed = []
        for number, file in enumerate(staged):
            path = self.folder / DATA / f"{token}-{number:05}.parquet"
            placed.append(file._replace(path=file.path.rename(path)))
        shutil.rmtree(self.staging, ignore_errors=True)
        return placed


def _partition_by_topic_and_date(transaction: Transaction) -> None:
    with transaction.update_spec() as spec:
        spec.add_identity(TOPIC)
        spec.add_identity(DATE)


def _referenced_snapshots(table: Table) -> list[Snapshot]:
    """Returns the current snapshot and those with a name (branches, tags), which are kept."""
    found = (table.snapshot_by_id(ref.snapshot_id) for ref in table.metadata.refs.values())
    return [snapshot for snapshot in found if snapshot is not None]


def _data_files(table: Table) -> set[Path]:
    scans = (table.scan(snapshot_id=snapshot.snapshot_id) for snapshot in _referenced_snapshots(table))
    return {_path(task.file.file_path) for scan in scans for task in scan.plan_files()}


def _metadata_files(table: Table) -> set[Path]:
    """Returns the metadata files in use, and those of the last few commits."""
    names = [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]
    for snapshot in _referenced_snapshots(table):
        names += [snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))]
    return {_path(name) for name in names}


def _expire(table: Table, due: set[Path]) -> None:
    """Expires the snapshots whose manifest lists are due for deletion. A manifest list is due no later than the files
    it lists, so no remaining snapshot refers to a deleted file."""
    heads = {snapshot.snapshot_id for snapshot in _referenced_snapshots(table)}
    old = [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if _path(snapshot.manifest_list).resolve() in due and snapshot.snapshot_id not in heads
    ]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def _replace_files(transaction: Transaction, old: set[Path], new: list[DataFile]) -> None:
    """Replaces the old files by the new ones in one snapshot."""
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        transaction.set_properties({"schema.name-mapping.default": metadata.schema().name_mapping.model_dump_json()})
    table = transaction._table
    paths = [f"file://{file.path}" for file in new]
    with transaction.update_snapshot().overwrite() as overwrite:
        for task in table.scan().plan_files():
            if _path(task.file.file_path) in old:
                overwrite.delete_data_file(task.file)
        for file in parquet_files_to_data_files(table.io, transaction.table_metadata, iter(paths)):
            overwrite.append_data_file(file)


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))
