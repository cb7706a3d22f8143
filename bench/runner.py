"""A run of measurements: a temporary folder, one line per figure as soon as it is measured, and a table at the end.
Measures nothing."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.figures import Figure, table_of
from bench.processes import PROJECT

Measure = Callable[[], Iterator[Figure]]

# Environment variables for Python's compiled modules: an installed program is compiled.
_COMPILING = ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")


class Steps:
    """Progress of a long measurement, shown below the progress bar of the whole run."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def show_in(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", visible=False)

    def show(self, description: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress.update(
                self._task, description=description, completed=done, total=total, visible=done < total
            )

    def print_line(self, line: str) -> None:
        """Prints an intermediate result above the progress bars."""
        if self._progress is not None:
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def scratch(asked: Path | None) -> Iterator[Path]:
    """Makes a temporary folder on the disk that data would be on: the usual folder for temporary files may be in
    memory. Compiled modules of child processes are stored there too, and removed with it."""
    parent = asked or Path(os.environ.get("TMPDIR", PROJECT / "build"))
    parent.mkdir(parents=True, exist_ok=True)
    given = {name: os.environ.pop(name) for name in _COMPILING if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        try:
            yield Path(folder).resolve()
        finally:
            del os.environ["PYTHONPYCACHEPREFIX"]
            os.environ.update(given)


def run(
    measures: Mapping[str, Measure],
    floor_name: str = "floor",
    page: Callable[[Sequence[Figure]], str] | None = None,
    steps: Steps | None = None,
) -> None:
    """Prints one JSON line per figure on standard output, then a table, the load of the machine, and the result of
    `page`."""
    began_s, load = time.perf_counter(), os.getloadavg()[0]
    figures = []
    columns = (TextColumn("{task.description}", table_column=None), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(measures))
        if steps is not None:
            steps.show_in(progress)
        for name, measure in measures.items():
            progress.update(task, description=name)
            for figure in measure():
                figures.append(figure)
                print(figure.as_json(), flush=True)
            progress.advance(task)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table_of(figures, floor_name))
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()}; load average "
        f"{load:.1f} before, {os.getloadavg()[0]:.1f} after; {time.perf_counter() - began_s:.0f} s"
    )
    if page is not None:
        print(page(figures))
