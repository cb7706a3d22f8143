"""Log of the rows and files that a run added to a lake, per batch. A file in the lake, because the process that writes
batches may be another one than the process that started the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_trimq.pipelines.lakes.files import DataFile

NOTES = "_trimq/run.jsonl"


class AddedRows(NamedTuple):
    """Rows and bytes added to a topic."""

    rows: int
    bytes: int


class RunLog:
    def __init__(self, lake: Path) -> None:
        self._path = lake / NOTES
        self._read_to = 0
        self._rows: dict[int, int] = {}

    def begin(self) -> None:
        self._path.write_text("")

    def note(self, batch: int, files: Sequence[DataFile], compacted: int) -> None:
        added: dict[str, list[int]] = {}
        for file in files:
            sums = added.setdefault(file.topic, [0, 0])
            sums[0] += file.rows
            sums[1] += file.bytes
        with self._path.open("a") as notes:
            notes.write(json.dumps({"batch": batch, "added": added, "compacted": compacted}) + "\n")

    def rows(self) -> Mapping[int, int]:
        """Returns the rows of each batch logged so far. Polled often: reads only new lines."""
        with self._path.open("rb") as notes:
            notes.seek(self._read_to)
            for line in notes:
                if not line.endswith(b"\n"):
                    break  # incomplete: still being written
                self._read_to += len(line)
                noted = json.loads(line)
                self._rows[noted["batch"]] = sum(rows for rows, _ in noted["added"].values())
        return self._rows

    def added(self) -> dict[str, AddedRows]:
        """Returns the added rows by topic."""
        found: dict[str, AddedRows] = {}
        for noted in self._noted():
            for topic, (rows, size) in noted["added"].items():
                before = found.get(topic, AddedRows(0, 0))
                found[topic] = AddedRows(before.rows + rows, before.bytes + size)
        return found

    def compacted(self) -> int:
        """Returns how many files were compacted."""
        return sum(int(noted["compacted"]) for noted in self._noted())

    def _noted(self) -> Iterator[dict[str, Any]]:
        with self._path.open() as notes:
            yield from (json.loads(line) for line in notes)
