"""Figures of a comparison with another broker as Markdown tables for docs/performance.md. Measures nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bench.comparison import RATE
from bench.figures import Figure, format_number

_VERDICTS = {True: "met", False: "**missed**", None: ""}


def as_page(figures: Sequence[Figure], peer: str, goals: str) -> str:
    """Returns one table of the work, with CPU time and rate side by side, and one of all other figures. `peer` is the
    name of the other broker, `goals` the heading of the column that shows if the goals are met."""
    rates = {figure.name.removesuffix(RATE): figure for figure in figures if figure.name.endswith(RATE)}
    work = [figure for figure in figures if figure.name in rates]
    others = [figure for figure in figures if figure.name not in rates and not figure.name.endswith(RATE)]
    tables = []
    if work:
        tables.append(_table(_work_head(peer, goals), [_work_row(figure, rates[figure.name]) for figure in work]))
    if others:
        tables.append(_table(_other_head(peer), [_other_row(figure, peer) for figure in others]))
    return "\n\n".join(tables)


def _work_head(peer: str, goals: str) -> tuple[str, ...]:
    return ("work", "CPU, µs each", peer, "ratio", "rate, 1/s", peer, "ratio", goals)


def _other_head(peer: str) -> tuple[str, ...]:
    return ("figure", "ours", peer, "ratio", "goal", "")


def _work_row(cpu: Figure, rate: Figure) -> tuple[str, ...]:
    numbers = [format_number(value) for each in (cpu, rate) for value in (each.value, each.floor, each.ratio)]
    verdicts = [each.is_met for each in (cpu, rate)]
    verdict = "" if None in verdicts else ", ".join("met" if met else "**missed**" for met in verdicts)
    return (cpu.name, *numbers, verdict)


def _other_row(figure: Figure, peer: str) -> tuple[str, ...]:
    goal = figure.goal_text.replace("<=", "≤").replace(">=", "≥").replace(f" x {figure.floor_name}", f" of {peer}'s")
    value = f"{format_number(figure.value)} {figure.unit.replace('us', 'µs')}"
    return (
        figure.name,
        value,
        format_number(figure.floor),
        format_number(figure.ratio),
        goal,
        _VERDICTS[figure.is_met],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
