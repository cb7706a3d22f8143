"""Deletes files of a lake that are no longer live, or never were. Records when a file was first seen unused and deletes
it some time later, so that readers that have already started can finish."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark_trimq.pipelines.runner.checkpoint import write_atomically
from trimq.clock import system_clock

NOTES = "_trimq/replaced.json"


def refers_to_other_folder(there: set[Path], counted: set[Path]) -> bool:
    """Returns True if no listed file is in this folder, as in a copied lake. Then unlisted files must not be
    deleted."""
    return bool(counted) and counted.isdisjoint(there)


class ReplacedFiles:
    def __init__(self, folder: Path, keep_ms: int) -> None:
        self._folder = folder.resolve()
        self._notes = self._folder / NOTES
        self._keep_ms = keep_ms

    def sweep(
        self, present: Iterable[Path], counted: Iterable[Path], part: Callable[[set[Path]], None] = lambda due: None
    ) -> int:
        """Deletes `present` files that are not in `counted` and were recorded as unused at least `keep_ms` ago. Returns
        how many. Calls `part` with them first, to remove the last references to them."""
        there = {path.resolve() for path in present}
        wanted = {path.resolve() for path in counted}
        if refers_to_other_folder(there, wanted):
            return 0
        now_ms = system_clock().message.now_ms()
        before = self._read()
        noted: dict[str, int] = {}
        due = set()
        for path in sorted(there - wanted):
            name = str(path.relative_to(self._folder))
            since_ms = min(before.get(name, now_ms), now_ms)
            if now_ms - since_ms >= self._keep_ms:
                due.add(path)
            else:
                noted[name] = since_ms
        part(due)
        for path in sorted(due):
            path.unlink(missing_ok=True)
        if noted != before:
            write_atomically(self._notes, json.dumps(noted, indent=1))
        return len(due)

    def _read(self) -> dict[str, int]:
        try:
            noted = json.loads(self._notes.read_text())
            return {str(name): int(since_ms) for name, since_ms in noted.items()}
        except (FileNotFoundError, ValueError, AttributeError, TypeError):
            return {}  # damaged or missing: the files are recorded again and kept longer
