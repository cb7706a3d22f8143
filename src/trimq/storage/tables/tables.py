"""Tables of one broker, all in one folder. Marks them together as synced."""

from __future__ import annotations

from typing import Any, TypeVar

from trimq.offload import Offload
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import Files
from trimq.storage.tables.table import SNAPSHOT_ABOVE_BYTES, Table, open_table

FOLDER = "tables"

V = TypeVar("V")


class Tables:
    def __init__(self, files: Files, passes: Passes, offload: Offload) -> None:
        self._files = files
        self._passes = passes
        self._offload = offload
        self._opened: list[Table[Any]] = []

    def open(self, name: str, value_type: type[V], snapshot_above_bytes: int = SNAPSHOT_ABOVE_BYTES) -> Table[V]:
        """Like `open_table`."""
        opened = open_table(self._files, FOLDER, name, self._passes, value_type, self._offload, snapshot_above_bytes)
        self._opened.append(opened)
        return opened

    def mark_synced(self) -> bool:
        """Lets every table record that all of it is on disk, where that is so. Returns whether any record was
        written."""
        marked = [table for table in self._opened if table.mark_synced()]
        return len(marked) > 0
