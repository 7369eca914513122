"""Figures for a paper: each as SVG and its data as CSV. The page has its own (`pages/chart.js`).

The same data give the same bytes. Series differ by marker and dash as well as by colour; the colours are
those that people with any colour vision tell apart (Okabe and Ito, 2008).
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from roamcast.errors import FileError
from roamcast.lab.report.figures import FigurePoint, ReportFigure

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7f7f7f", "#a58a00"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES: list[Any] = [
    "-",
    (0, (5, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
    (0, (3, 1)),
    (0, (8, 3)),
    "-",
    "--",
]
STYLE = {
    "svg.hashsalt": "roamcast",
    "text.parse_math": False,  # a `$` in a name is a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so the layout is the same everywhere
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
}
WIDTH, HEIGHT = 5.2, 3.4  # inches


def write_figures(figures: Iterable[ReportFigure], folder: Path) -> None:
    """Into a folder, as `<id>.svg` and `<id>.csv`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            (folder / f"{figure.id}.svg").write_text(as_svg(figure), encoding="utf-8")
            (folder / f"{figure.id}.csv").write_text(as_csv(figure), encoding="utf-8")
    except OSError as error:
        raise FileError(str(folder), f"cannot be written: {error.strerror or error}") from error


def as_csv(figure: ReportFigure) -> str:
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow(["series", figure.x_title or "x", figure.y_title, "low", "high", "x_low", "x_high"])
    for series in figure.series:
        for p in series.points:
            x = p.x if figure.labels is None else figure.labels[round(p.x)]
            rows.writerow([series.name, x, p.y, p.low, p.high, p.left, p.right])
    return written.getvalue()


def as_svg(figure: ReportFigure) -> str:
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        drawing = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasSVG(drawing)
        axes = drawing.subplots()
        if figure.front:
            axes.plot(*zip(*figure.front, strict=True), color="#bbbbbb", linewidth=5, zorder=0)
        (_bars if figure.kind == "bars" else _points)(axes, figure)
        if figure.labels is not None:
            axes.set_xticks(range(len(figure.labels)), figure.labels, rotation=20)
        if figure.x_log:
            axes.set_xscale("log")
        axes.set_xlabel(figure.x_title)
        axes.set_ylabel(figure.y_title)
        axes.set_title(figure.title)
        if len(figure.series) > 1:
            drawing.legend(loc="outside lower center", ncols=4, frameon=False)
        written = io.StringIO()
        drawing.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return written.getvalue()


def _points(axes: Axes, figure: ReportFigure) -> None:
    for place, series in enumerate(figure.series):
        style = series.index % len(COLOURS)
        aside = 0.0 if figure.labels is None else (place - (len(figure.series) - 1) / 2) * 0.08
        axes.errorbar(
            [p.x + aside for p in series.points],
            [p.y for p in series.points],
            yerr=_halves(series.points, "low", "high", "y"),
            xerr=_halves(series.points, "left", "right", "x"),
            color=COLOURS[style],
            marker="" if figure.kind == "steps" else MARKERS[style],
            linestyle="none" if figure.kind == "dots" else DASHES[style],
            capsize=3.0,
            label=series.name,
        )


def _halves(points: list[FigurePoint], low: str, high: str, middle: str) -> list[list[float]] | None:
    if not points or any(getattr(p, low) is None for p in points):
        return None
    below = [max(0.0, getattr(p, middle) - getattr(p, low)) for p in points]
    return [below, [max(0.0, getattr(p, high) - getattr(p, middle)) for p in points]]


def _bars(axes: Axes, figure: ReportFigure) -> None:
    base = [0.0] * len(figure.labels or [])
    for series in figure.series:
        values = [p.y for p in series.points]
        axes.bar(range(len(values)), values, bottom=base, color=COLOURS[series.index % 8], label=series.name)
        base = [low + value for low, value in zip(base, values, strict=True)]
