"""Output of commands: rich tables on a terminal, aligned columns in a pipe, JSON for programs. The library for
terminals is imported only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from trimq.config import readable_number

Row = Sequence[object]

UNLIMITED = 2**63 - 1
"""Value of Kafka's settings for no limit."""


def print_json(value: Any) -> None:
    """Prints one indented JSON document."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: Any) -> None:
    """Prints one JSON document in one line, for output of unknown length."""
    print(msgspec.json.encode(value).decode())


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Prints a table with whole numbers aligned right and texts aligned left."""
    if sys.stdout.isatty():
        _print_rich_table(columns, rows)
    else:
        for line in align(columns, rows):
            print(line)


def shown(value: object) -> str:
    """Returns a cell as text for people: None as a dash, yes or no, and fractions rounded to three digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def local_time(time_ms: int) -> str:
    """Returns a time in the time zone of this machine."""
    return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def duration(time_ms: int) -> str:
    """Returns a duration with its unit: `850 ms`, `3.02 s`, `2 min 5 s`, `1 h 30 min`."""
    if time_ms < 1000:
        return f"{time_ms} ms"
    if time_ms < 60_000:
        return f"{time_ms / 1000:.3g} s"
    seconds = round(time_ms / 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds // 60 % 60} min"


def with_unit(name: str, value: str, unit: str = "") -> str:
    """Returns the value of a setting with its unit, by default that of its name, and in a larger one if there is one:
    `604800000 (7 days)`, `61 ms`."""
    unit = unit or name.rpartition("_")[2]
    if unit not in ("ms", "bytes") or not value.isdecimal():
        return value
    number = int(value)
    if number == UNLIMITED:
        return f"{value} (no limit)"
    readable = readable_number(number, unit)
    if not readable and unit == "ms" and number >= 1000:
        readable = duration(number)
    return f"{value} ({readable})" if readable else f"{value} {unit}"


def align(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """Yields the lines of a table in plain text."""
    cells = [[escape_unprintable(shown(cell)) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    numeric = [_is_numeric(rows, i) for i in range(len(columns))]
    for row in cells:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        yield "  ".join(padded).rstrip()


def escape_unprintable(text: str) -> str:
    """Escapes control characters: names are set by clients and could otherwise control the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _is_numeric(rows: Sequence[Row], column: int) -> bool:
    return bool(rows) and all(
        isinstance(row[column], int | float) and not isinstance(row[column], bool) for row in rows
    )


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
            *(Text(escape_unprintable(shown(cell))) for cell in row)
        )  # as Text: brackets in a name are not markup
    Console().print(table)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function to call with (done, total) bytes. The bar is shown on stderr if it is a terminal; stdout is for
    the findings."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
