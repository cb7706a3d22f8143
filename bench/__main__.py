"""`python -m bench [--tiny] [--only WORD] [--folder F]`: one JSON line per figure on standard output, then a table."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench import appends, commits, reads, startup, streams, whole_path
from bench.figures import Figure, table_of
from bench.measuring import garbage_collected_as_in_the_broker
from bench.processes import PROJECT
from bench.sizes import FULL, TINY, Sizes

Measure = Callable[[Sizes, Path], Iterator[Figure]]

MEASURES: dict[str, Measure] = {
    "append of large batches": appends.measure_large,
    "append of small batches": appends.measure_small,
    "group commit": commits.measure,
    "fdatasync against syncfs": commits.measure_crossover,
    "sequential read": reads.measure_reads,
    "recovery": reads.measure_recovery,
    "many streams": streams.measure,
    "process start": startup.measure_process,
    "embedded start": startup.measure_embedded,
    "whole path": whole_path.measure,
}


def main(words: list[str] | None = None) -> int:
    """0 even where a goal is missed: the figures depend on who else uses the machine."""
    chosen = _parser().parse_args(words)
    sizes = TINY if chosen.tiny else FULL
    measures = {name: measure for name, measure in MEASURES.items() if chosen.only in name}
    if not measures:
        print(f"no figure is named like {chosen.only!r}; there are: {', '.join(MEASURES)}", file=sys.stderr)
        return 2
    began_s, load = time.perf_counter(), os.getloadavg()[0]
    with _scratch(chosen.folder) as folder, garbage_collected_as_in_the_broker():
        figures = _run(measures, sizes, folder)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table_of(figures))
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()}; load average "
        f"{load:.1f} before, {os.getloadavg()[0]:.1f} after; {time.perf_counter() - began_s:.0f} s"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="see that every figure runs; its value means nothing")
    parser.add_argument("--only", default="", metavar="WORD", help="only the measurements whose name has this in it")
    parser.add_argument("--folder", type=Path, help="where 3 GB of files may lie meanwhile; default: TMPDIR or build/")
    return parser


@contextmanager
def _scratch(asked: Path | None) -> Iterator[Path]:
    """On the disk that data would be on: the usual folder for temporary files may be in memory. What the processes that
    are started compile goes there too, and with it."""
    parent = asked or Path(os.environ.get("TMPDIR", PROJECT / "build"))
    parent.mkdir(parents=True, exist_ok=True)
    compiled = os.environ.pop("PYTHONPYCACHEPREFIX", None)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        try:
            yield Path(folder).resolve()
        finally:
            del os.environ["PYTHONPYCACHEPREFIX"]
            if compiled is not None:
                os.environ["PYTHONPYCACHEPREFIX"] = compiled


def _run(measures: dict[str, Measure], sizes: Sizes, folder: Path) -> list[Figure]:
    figures = []
    columns = (TextColumn("{task.description}", table_column=None), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(measures))
        for name, measure in measures.items():
            progress.update(task, description=name)
            for figure in measure(sizes, folder):
                figures.append(figure)
                print(figure.as_json(), flush=True)
            progress.advance(task)
    return figures


if __name__ == "__main__":
    sys.exit(main())
