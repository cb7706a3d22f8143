"""One figure: the measured value, its floor (a bare loop of the same system calls, or another broker), and the goal.
Measures nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from rich.table import Table


class Goal(NamedTuple):
    """A bound on the ratio to the floor, or on the value itself where there is no floor."""

    bound: float
    is_ceiling: bool
    is_ratio: bool

    def is_met_by(self, value: float) -> bool:
        return value <= self.bound if self.is_ceiling else value >= self.bound

    def text(self, floor_name: str) -> str:
        return f"{'<=' if self.is_ceiling else '>='} {self.bound:g}{f' x {floor_name}' if self.is_ratio else ''}"


def at_most_times_floor(bound: float) -> Goal:
    return Goal(bound, is_ceiling=True, is_ratio=True)


def at_least_times_floor(bound: float) -> Goal:
    return Goal(bound, is_ceiling=False, is_ratio=True)


def at_most(bound: float) -> Goal:
    return Goal(bound, is_ceiling=True, is_ratio=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """`note` names the clock that is judged, and further observations. A figure without a goal is for orientation.
    `floor_name` names the origin of `floor`."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    goal: Goal | None = None
    note: str = ""
    floor_name: str = "floor"

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None

    @property
    def is_met(self) -> bool | None:
        if self.goal is None:
            return None
        if not self.goal.is_ratio:
            return self.goal.is_met_by(self.value)
        return self.ratio is not None and self.goal.is_met_by(self.ratio)

    @property
    def goal_text(self) -> str:
        return "" if self.goal is None else self.goal.text(self.floor_name)

    def as_json(self) -> str:
        return json.dumps(
            {
                "figure": self.name,
                "value": _rounded(self.value),
                "unit": self.unit,
                self.floor_name: _rounded(self.floor),
                "ratio": _rounded(self.ratio),
                "goal": self.goal_text or None,
                "met": self.is_met,
                "note": self.note,
            }
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def format_number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


_VERDICTS = {True: "[green]met", False: "[bold red]missed", None: ""}


def table_of(figures: list[Figure], floor_name: str = "floor") -> Table:
    table = Table(title="Figures of this run", title_justify="left")
    table.add_column("figure", overflow="fold", min_width=30)
    for name in ("value", floor_name, "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("unit", "goal", ""):
        table.add_column(name, no_wrap=True)
    for figure in figures:
        numbers = map(format_number, (figure.value, figure.floor, figure.ratio))
        table.add_row(figure.name, *numbers, figure.unit, figure.goal_text, _VERDICTS[figure.is_met])
    return table
