"""Files of a lake that count no longer, or never did. They are noted when that is first seen and removed a while later:
whoever has begun to read finds them until then."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark_trimq.pipelines.runner.checkpoint import write_atomically
from trimq.clock import system_clock

NOTES = "_trimq/replaced.json"


def refers_to_other_folder(there: set[Path], counted: set[Path]) -> bool:
    """Whether a lake speaks of files elsewhere: it says nothing of those that are there."""
    return bool(counted) and counted.isdisjoint(there)


class ReplacedFiles:
    def __init__(self, folder: Path, keep_ms: int) -> None:
        self._folder = folder.resolve()
        self._notes = self._folder / NOTES
        self._keep_ms = keep_ms

    def sweep(
        self, present: Iterable[Path], counted: Iterable[Path], part: Callable[[set[Path]], None] = lambda due: None
    ) -> int:
        """Of the files that are there remove those that do not count and were noted long enough ago. How many went.
        `part` is told of them first: nothing may speak of them any more."""
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
            return {}  # noted anew: they stay longer
