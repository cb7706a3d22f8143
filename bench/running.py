"""What every run of measurements has: a folder that vanishes with it, a line for each figure as soon as it is there,
and the table at its end. Measures nothing."""

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

# What Python is told about where it keeps what it has compiled, and whether: installed programs are compiled.
_COMPILING = ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")


class Steps:
    """How far a long measurement has come: shown below the bar of the whole run, once there is one."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def show_in(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", visible=False)

    def tell(self, what: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, description=what, completed=done, total=total, visible=done < total)

    def say(self, line: str) -> None:
        """What is known already, for whoever looks on, above the bars."""
        if self._progress is not None:
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def scratch(asked: Path | None) -> Iterator[Path]:
    """On the disk that data would be on: the usual folder for temporary files may be in memory. What the processes that
    are started compile goes there too, and with it."""
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
    beside: str = "floor",
    page: Callable[[Sequence[Figure]], str] | None = None,
    steps: Steps | None = None,
) -> None:
    """Print one line of JSON per figure on standard output, then a table, how busy the machine was, and what `page`
    makes of the figures."""
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
    console.print(table_of(figures, beside))
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()}; load average "
        f"{load:.1f} before, {os.getloadavg()[0]:.1f} after; {time.perf_counter() - began_s:.0f} s"
    )
    if page is not None:
        print(page(figures))
