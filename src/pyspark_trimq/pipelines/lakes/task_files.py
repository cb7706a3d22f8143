"""Writes Parquet files in a task, directly from record batches. Passing the messages through Spark as rows would cost
more than all other work."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from pyspark_trimq.pipelines.lakes.files import DATE, OPEN_FILES, TOPIC, DataFile

# Buffered bytes of all open files; then each file writes a row group.
GROUP_BYTES = 32 << 20

_DAY_US = 86_400_000_000
_FIRST_DAY = date(1970, 1, 1)

# Columns with repeated values. In the others a dictionary costs more than it saves.
_WITH_DICTIONARY = [TOPIC, DATE, "partition", "timestampType", "producerId", "producerEpoch", "tags"]
_WITH_DICTIONARY += ["headers.list.element.key", "properties.key_value.key"]
_WITH_STATISTICS = [TOPIC, DATE, "partition", "offset", "timestamp", "timestampType", "producerId"]

# Characters that Spark escapes in folder names of partition values.
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def _day(number: int) -> str:
    """Returns the date of a day number, limited to the years 1 to 9999. The timestamp of the message does not
    change."""
    first, last = (_FIRST_DAY.min - _FIRST_DAY).days, (_FIRST_DAY.max - _FIRST_DAY).days
    return (_FIRST_DAY + timedelta(days=min(max(number, first), last))).isoformat()


def folder_name(topic: str, day: str) -> str:
    """Returns the folder of this topic and day in a Parquet lake."""
    escaped = _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", topic)
    return f"{TOPIC}={escaped}/{DATE}={day}"


class TaskFiles:
    """Files of one topic and task, one per day, in a folder of their own below `staging`."""

    def __init__(self, staging: Path, topic: str, keeps_columns: bool) -> None:
        self._staging = staging
        self._folder = staging / uuid.uuid4().hex
        self._topic = topic
        self._keeps_columns = keeps_columns
        self._open: dict[str, _OpenFile] = {}
        self._closed: list[DataFile] = []
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        days = batch.column("timestamp").cast(pa.int64()).to_numpy() // _DAY_US
        different = np.unique(days)
        for number in different:
            part = batch if len(different) == 1 else batch.take(pa.array(np.flatnonzero(days == number)))
            day = _day(int(number))
            self._file(day).add(self._with_columns(part, day))
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= GROUP_BYTES:
            for file in self._open.values():
                file.write()
            self._waiting_bytes = 0

    def close(self) -> list[DataFile]:
        """Closes and syncs all files. Returns them with paths relative to `staging`."""
        while self._open:
            self._close_first()
        return self._closed

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _with_columns(self, part: pa.RecordBatch, day: str) -> pa.RecordBatch:
        if self._keeps_columns:
            return part.append_column(DATE, pa.repeat(pa.scalar(day, pa.string()), part.num_rows))
        return part.drop_columns([TOPIC])

    def _file(self, day: str) -> _OpenFile:
        found = self._open.get(day)
        if found is None:
            if len(self._open) >= OPEN_FILES:
                self._close_first()
            path = self._folder / folder_name(self._topic, day) / f"{len(self._closed) + len(self._open)}.parquet"
            found = self._open[day] = _OpenFile(path)
        return found

    def _close_first(self) -> None:
        day = next(iter(self._open))
        file = self._open.pop(day)
        size = file.close()
        path = file.path.relative_to(self._staging)
        self._closed.append(DataFile(path, self._topic, day, file.rows, size))


class _OpenFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._writer: parquet.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._waiting.append(batch)

    def write(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(
                self.path,
                self._waiting[0].schema,
                compression="zstd",
                use_dictionary=_WITH_DICTIONARY,
                write_statistics=_WITH_STATISTICS,
                store_schema=False,
            )
        table = pa.Table.from_batches(self._waiting)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting = []

    def close(self) -> int:
        """Closes and syncs the file. Returns its size in bytes."""
        self.write()
        assert self._writer is not None, "a file is opened only for rows"
        self._writer.close()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        return self.path.stat().st_size

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()
