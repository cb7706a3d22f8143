"""Result of a pipeline: figures, tables and plots. Report and JSON are generated from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Figure = int | float | str | bool | None


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Figure]]
    note: str = ""


class Plot(NamedTuple):
    """Series of points (x, y) by name. x is a number, or a text for bars."""

    title: str
    kind: Literal["line", "bar", "step"]
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[Any, float]]]


class BatchFigures(NamedTuple):
    """One micro-batch, as Spark reports it."""

    number: int
    rows: int
    seconds: float
    ended_ms: int
    written: int = 0  # rows written, if counted


@dataclasses.dataclass
class Outcome:
    """`found` is the number of findings (faults, letters), for programs and the exit code."""

    pipeline: str
    settings: dict[str, Any]
    figures: dict[str, Figure] = dataclasses.field(default_factory=dict)
    tables: list[Table] = dataclasses.field(default_factory=list)
    plots: list[Plot] = dataclasses.field(default_factory=list)
    batches: list[BatchFigures] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    found: int = 0

    def table(self, title: str) -> list[dict[str, Figure]]:
        """Returns the rows of the table with this title as dictionaries."""
        (table,) = [each for each in self.tables if each.title == title]
        return [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    def as_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "settings": self.settings,
            "figures": self.figures,
            "found": self.found,
            "tables": {
                table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in self.tables
            },
            "batches": [batch._asdict() for batch in self.batches],
            "notes": self.notes,
        }


def batch_plots(batches: Sequence[BatchFigures]) -> list[Plot]:
    """Returns plots of rows and rates per batch; none for fewer than two batches."""
    if len(batches) < 2:
        return []
    rows = [(batch.number, float(batch.rows)) for batch in batches]
    rates = [(batch.number, batch.rows / max(batch.seconds, 0.001)) for batch in batches]
    return [
        Plot("Rows per batch", "bar", "batch", "rows", {"rows": rows}),
        Plot("Rows per second", "line", "batch", "rows/s", {"rows/s": rates}),
    ]
