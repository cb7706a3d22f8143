"""Manifest of a Parquet lake: the list of live files. One small numbered file per commit; after 64 commits they are
folded into one. Commits are atomic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_trimq.pipelines.runner.checkpoint import write_atomically
from pyspark_trimq.pipelines.runner.failure import PipelineFailure

FOLD_AFTER = 64


class Entry(NamedTuple):
    """Live file. `staged` is its path at the time of the commit; a killed run may have left it there."""

    path: str
    staged: str
    topic: str
    date: str
    rows: int
    bytes: int


class State(NamedTuple):
    """Result of all commits: live files by path, replaced files, and the last batch by writer."""

    files: dict[str, Entry]
    removed: set[str]
    batches: dict[str, int]


class Manifest:
    """Paths of files are relative to `lake`."""

    def __init__(self, folder: Path, lake: Path) -> None:
        self._folder = folder
        self._lake = lake
        self._folder.mkdir(parents=True, exist_ok=True)

    def state(self) -> State:
        state = State({}, set(), {})
        for path in self._commits():
            try:
                commit = json.loads(path.read_text())
            except ValueError:
                raise PipelineFailure(f"the manifest of the lake is damaged: {path}") from None
            _apply(state, commit)
        return state

    def commit(self, add: Sequence[Entry], remove: Sequence[str], writer: str = "", batch: int = -1) -> None:
        """Makes the files in `add` live and those in `remove` not, atomically."""
        numbers = [int(path.stem) for path in self._commits()]
        commit = {"add": [entry._asdict() for entry in add], "remove": list(remove), "writer": writer, "batch": batch}
        write_atomically(self._path(max(numbers, default=0) + 1), json.dumps(commit))
        if len(numbers) >= FOLD_AFTER:
            self._fold()

    def _fold(self) -> None:
        """Writes all commits as one in place of the last, then deletes the others. A kill at any point is harmless, as
        applying a commit twice has the same result. Drops the names of replaced files that are already deleted."""
        commits = self._commits()
        state = self.state()
        folded = {
            "add": [entry._asdict() for entry in state.files.values()],
            "remove": sorted(name for name in state.removed if (self._lake / name).exists()),
            "batches": state.batches,
            "folded": True,
        }
        write_atomically(commits[-1], json.dumps(folded))
        for path in commits[:-1]:
            path.unlink()

    def _commits(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.json") if path.stem.isdigit())

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012}.json"


def _apply(state: State, commit: dict[str, Any]) -> None:
    if commit.get("folded"):
        state.files.clear()
        state.removed.clear()
        state.batches.update(commit["batches"])
    for path in commit["remove"]:
        state.files.pop(path, None)
        state.removed.add(path)
    for entry in commit["add"]:
        state.files[entry["path"]] = Entry(**entry)
        state.removed.discard(entry["path"])
    if commit.get("writer"):
        state.batches[commit["writer"]] = commit["batch"]
