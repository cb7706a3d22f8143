"""The manifest of a Parquet lake: which files count. One small file per commit, numbered; now and then all of them are
folded into one. A commit is there as a whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_trimq.pipelines.runner.checkpoint import write_atomically
from pyspark_trimq.pipelines.runner.failure import PipelineFailure

FOLD_AFTER = 64


class Entry(NamedTuple):
    """A file that counts. `staged` is where it lay when it was committed: a kill may have left it there."""

    path: str
    staged: str
    topic: str
    date: str
    rows: int
    bytes: int


class State(NamedTuple):
    """What all commits come to: the files that count by path, those that no longer do, and the last batch by writer."""

    files: dict[str, Entry]
    removed: set[str]
    batches: dict[str, int]


class Manifest:
    """`lake` is what the names of its files begin at."""

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
        """After this the files in `add` count and those in `remove` do not."""
        numbers = [int(path.stem) for path in self._commits()]
        commit = {"add": [entry._asdict() for entry in add], "remove": list(remove), "writer": writer, "batch": batch}
        write_atomically(self._path(max(numbers, default=0) + 1), json.dumps(commit))
        if len(numbers) >= FOLD_AFTER:
            self._fold()

    def _fold(self) -> None:
        """Write all commits as one, in the place of the last, then remove the others. It may be killed anywhere: what
        is applied twice gives the same. Of what no longer counts the names of files that are gone are forgotten: there
        is nothing left to remove."""
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
