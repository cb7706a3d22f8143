"""Writes the report of a run: one self-contained HTML page, and JSON for programs."""

from __future__ import annotations

import html
import json
from pathlib import Path

from pyspark_trimq.pipelines.reports.outcome import Figure, Outcome, Table
from pyspark_trimq.pipelines.reports.plots import draw
from trimq.clock import system_clock

MAX_ROWS = 500  # per table in the page; the JSON has all rows

STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #0f172a;
  background: #f8fafc; margin: 0 auto; max-width: 1080px; padding: 32px 24px 64px }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 17px; margin: 36px 0 10px }
.when, .note { color: #64748b; font-size: 13px }
.figures { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 }
.figure { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; padding: 10px 16px; min-width: 110px }
.figure b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
.figure span { color: #64748b; font-size: 12px }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); gap: 16px }
figure { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; margin: 0; padding: 12px }
figcaption { font-weight: 600; font-size: 14px; margin-bottom: 6px } svg { width: 100%; height: auto; display: block }
.wide { overflow-x: auto; background: #fff; border: 1px solid #e2e8f0; border-radius: 8px }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th { text-align: left; color: #475569; border-bottom: 1px solid #cbd5e1; white-space: nowrap }
th, td { padding: 6px 12px; vertical-align: top } tr:nth-child(even) td { background: #f8fafc }
td { overflow-wrap: anywhere } .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
"""


def write_report(outcome: Outcome, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html_page(outcome), encoding="utf-8")


def write_json(outcome: Outcome, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outcome.as_json(), indent=2, default=str) + "\n", encoding="utf-8")


def html_page(outcome: Outcome) -> str:
    """Returns the page. Escapes all texts, because names come from clients."""
    from datetime import datetime

    made = datetime.fromtimestamp(system_clock().message.now_ms() / 1000).astimezone()
    settings = Table(
        "Settings", ("setting", "value"), [(name, _as_text(value)) for name, value in outcome.settings.items()]
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{html.escape(outcome.pipeline)} · TriMQ</title><style>{STYLE}</style></head><body>",
        f"<h1>{html.escape(outcome.pipeline)}</h1><div class=when>TriMQ pipeline · {made:%Y-%m-%d %H:%M:%S %Z}</div>",
        _figures(outcome),
        *(f"<p class=note>{html.escape(note)}</p>" for note in outcome.notes),
        _plots(outcome),
        *(_table(table) for table in [*outcome.tables, settings]),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def format_figure(value: Figure) -> str:
    """Returns a figure as text for people."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"
    return value


def _as_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _figures(outcome: Outcome) -> str:
    cards = [
        f"<div class=figure><b>{html.escape(format_figure(value))}</b><span>{html.escape(name)}</span></div>"
        for name, value in outcome.figures.items()
    ]
    return f"<div class=figures>{''.join(cards)}</div>" if cards else ""


def _plots(outcome: Outcome) -> str:
    drawn = [
        f"<figure><figcaption>{html.escape(plot.title)}</figcaption>{draw(plot)}</figure>" for plot in outcome.plots
    ]
    return f"<div class=plots>{''.join(drawn)}</div>" if drawn else ""


def _table(table: Table) -> str:
    numeric = [
        bool(table.rows) and all(isinstance(row[i], int | float) or row[i] is None for row in table.rows)
        for i in range(len(table.columns))
    ]
    kinds = [" class=number" if is_number else "" for is_number in numeric]
    head = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, table.columns, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{html.escape(format_figure(cell))}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in table.rows[:MAX_ROWS]
    )
    left_out = len(table.rows) - MAX_ROWS
    notes = [
        table.note,
        f"{left_out:,} more rows are in the JSON." if left_out > 0 else "",
        "" if table.rows else "None.",
    ]
    note = "".join(f"<p class=note>{html.escape(text)}</p>" for text in notes if text)
    grid = (
        f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        if table.rows
        else ""
    )
    return f"<h2>{html.escape(table.title)}</h2>{grid}{note}"
