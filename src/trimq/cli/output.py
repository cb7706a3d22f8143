"""What commands print: tables for a person at a terminal, aligned columns for a pipe, JSON for a program. The library
for terminals is imported only when there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

Row = Sequence[object]


def print_json(value: Any) -> None:
    """One indented JSON document."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: Any) -> None:
    """One JSON document in one line, for output that has no end in sight."""
    print(msgspec.json.encode(value).decode())


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Whole numbers to the right, texts to the left."""
    if sys.stdout.isatty():
        _print_rich_table(columns, rows)
    else:
        for line in align(columns, rows):
            print(line)


def align(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """The lines of a table in plain text."""
    cells = [[escape_unprintable(str(cell)) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    numeric = [_is_numeric(rows, i) for i in range(len(columns))]
    for row in cells:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        yield "  ".join(padded).rstrip()


def escape_unprintable(text: str) -> str:
    """Names come from clients: what would move the cursor or colour the terminal is shown as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _is_numeric(rows: Sequence[Row], column: int) -> bool:
    return bool(rows) and all(isinstance(row[column], int) for row in rows)


def _print_rich_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if _is_numeric(rows, i) else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(escape_unprintable(str(cell))) for cell in row)
        )  # as text: a name with brackets is no markup
    Console().print(table)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """What to call with (done, total) bytes. Shown on a terminal only, on stderr: stdout is for the findings."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
