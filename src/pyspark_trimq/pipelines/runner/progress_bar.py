"""Progress bar of a run in the terminal: progress towards the end offsets of the topics, rows, and rows per second."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class ProgressBar(Protocol):
    def update(self, done: int, total: int | None, rows: int, rows_per_second: float) -> None: ...


class _Silent:
    def update(self, done: int, total: int | None, rows: int, rows_per_second: float) -> None:
        """Does nothing."""


class _Rich:
    def __init__(self, progress: Any, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None, rows=0, rate=0.0)

    def update(self, done: int, total: int | None, rows: int, rows_per_second: float) -> None:
        self._progress.update(self._task, completed=done, total=total, rows=rows, rate=rows_per_second)


@contextmanager
def bars(title: str, wanted: bool | None = None) -> Iterator[ProgressBar]:
    """Yields a bar on stderr, or one that shows nothing. `wanted` None: shown only on a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TextColumn("{task.fields[rate]:,.0f} rows/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Rich(progress, title)


def sum_of_offsets(offsets: Any) -> int:
    """Returns the sum of all offsets in {topic: {partition: offset}}, as a measure of progress."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError:
            return 0
    if isinstance(offsets, dict):
        return sum(sum_of_offsets(value) for value in offsets.values())
    if isinstance(offsets, list):
        return sum(sum_of_offsets(value) for value in offsets)
    return int(offsets) if isinstance(offsets, int) and not isinstance(offsets, bool) else 0
