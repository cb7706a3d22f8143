"""Draws plots as SVG text that can be embedded in a page: no scripts, no fonts, no external addresses."""

from __future__ import annotations

import io
import re
from typing import Any

from pyspark_trimq.pipelines.reports.outcome import Plot

WIDTH_IN, HEIGHT_IN = 6.4, 3.0
COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#475569")
MAX_BAR_LABELS = 12
MIN_BARS = 6
MAX_LABEL_LENGTH = 24
STYLE = {
    "svg.fonttype": "none",  # keep texts as text, in the font of the page
    "svg.hashsalt": "trimq",  # the same plot has the same bytes
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#94a3b8",
    "axes.labelcolor": "#475569",
    "xtick.color": "#475569",
    "ytick.color": "#475569",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e2e8f0",
    "axes.axisbelow": True,
}


def draw(plot: Plot) -> str:
    """Returns the plot as an `<svg>` element."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        axes = figure.add_subplot()
        _draw_series(axes, plot)
        axes.set_xlabel(plot.x_label)
        axes.set_ylabel(plot.y_label)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(_short_number)
        if len(plot.series) > 1:
            axes.legend(frameon=False, fontsize=8)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None}, transparent=True)
    # Drop the XML declaration and the document type, which are not allowed inside a page.
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(
        r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )


def _draw_series(axes: Any, plot: Plot) -> None:
    names = list(plot.series)
    places = sorted({x for points in plot.series.values() for x, _ in points}, key=lambda x: (isinstance(x, str), x))
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        points = plot.series[name]
        if plot.kind == "bar":
            width = 0.8 / len(names)
            at = [places.index(x) - 0.4 + width * (number + 0.5) for x, _ in points]
            axes.bar(at, [y for _, y in points], width=width * 0.92, color=colour, label=_shortened(name))
        else:
            xs, ys = [x for x, _ in points], [y for _, y in points]
            how = {"drawstyle": "steps-post"} if plot.kind == "step" else {}
            marker = "o" if len(points) <= 40 else ""
            axes.plot(xs, ys, color=colour, label=_shortened(name), linewidth=1.8, marker=marker, markersize=3, **how)
    if plot.kind != "bar":
        axes.xaxis.get_major_locator().set_params(integer=all(isinstance(x, int) for x in places))
    else:
        # Keep few bars from filling the whole width.
        margin = max(MIN_BARS - len(places), 0) / 2
        axes.set_xlim(-0.5 - margin, len(places) - 0.5 + margin)
        step = max(1, -(-len(places) // MAX_BAR_LABELS))
        shown = list(range(0, len(places), step))
        slanted = any(len(str(places[i])) > 8 for i in shown)
        axes.set_xticks(
            shown,
            [_shortened(str(places[i])) for i in shown],
            rotation=20 if slanted else 0,
            ha="right" if slanted else "center",
        )


def _shortened(text: str) -> str:
    # Matplotlib hides names with a leading underscore from the legend, and treats a dollar sign as a formula.
    text = text.replace("$", r"\$").lstrip("_") or "-"
    if len(text) <= MAX_LABEL_LENGTH:
        return text
    # Keep the end, which may be a partition number, and shorten the middle.
    half = MAX_LABEL_LENGTH // 2
    return f"{text[: half - 1]}…{text[-half:]}"


def _short_number(value: float, _: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
