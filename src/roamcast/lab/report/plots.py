"""Plots as SVG text to be embedded in a page: same input, same bytes.

matplotlib draws with stand-in colours that are then replaced by the page's own style variables, so one
drawing serves light, dark and print. Series differ by marker and dash as well as by colour.
"""

import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from roamcast.lab.report.markup import Markup, escaped
from roamcast.lab.sweep.summary import SampleMean

INK, FAINT, LINE = "#010203", "#040506", "#070809"
SERIES = [f"#0a0b{index:02x}" for index in range(0x10, 0x18)]
STAND_INS = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    LINE: "var(--line)",
    **{colour: f"var(--series-{index})" for index, colour in enumerate(SERIES)},
}
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES: list[Any] = [
    "-",
    (0, (5, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
    (0, (3, 1)),
    (0, (8, 3)),
    "-",
    "-",
]
STYLE = {
    "svg.hashsalt": "roamcast",
    "svg.fonttype": "none",  # text stays text: smaller, and read by screen readers
    "text.parse_math": False,  # a `$` in a name is a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so the layout is the same everywhere
    "font.size": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.unicode_minus": True,
}
WIDTH, HEIGHT = 5.2, 3.1  # inches of one panel


@dataclass(frozen=True)
class Curve:
    """One series in one panel: a figure for each place on the x-axis."""

    series: int
    points: list[SampleMean]


@dataclass(frozen=True)
class Panel:
    title: str
    curves: list[Curve]


def plot(
    panels: Sequence[Panel],
    positions: Sequence[float] | None,
    labels: Sequence[str],
    x_title: str,
    y_title: str,
    most: float | None = None,
) -> str:
    """Means with their 95% confidence intervals. Without `positions` the x-axis has words.

    `most`: what no value can exceed; an interval that does is cut there.
    """
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        width = WIDTH if len(panels) == 1 else 2 * WIDTH + 0.3
        figure = Figure(figsize=(width, HEIGHT), layout="constrained")
        FigureCanvasSVG(figure)
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=True):
            if positions is None:
                _dots(axes, panel.curves, labels)
            else:
                _lines(axes, panel.curves, positions, ticks_max=16 // len(panels))
            axes.set_title(panel.title)
            axes.set_xlabel(x_title)
        grid[0].set_ylabel(y_title)
        _set_limits(grid[0], [p for panel in panels for curve in panel.curves for p in curve.points], most)
        written = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(written, format="svg", metadata=nothing)
    return written.getvalue()


def inline(svg: str, identifier: str, label: str) -> Markup:
    """The drawing as an element of a page: page colours, and ids that no other drawing has."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for stand_in, variable in STAND_INS.items():
        body = body.replace(stand_in, variable)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', body))
    body = re.sub(
        r' id="([^"]*)"', lambda found: f' id="{identifier}-{found[1]}"' if found[1] in used else "", body
    )
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{identifier}-", body)
    body = re.sub(r"font: ([^;\"]*?)px [^;\"]*", r"font: \1px system-ui, 'DejaVu Sans', sans-serif", body)
    return Markup(body.replace("<svg", f'<svg role="img" aria-label="{escaped(label)}"', 1).strip())


def key_sample(series: int) -> Markup:
    """The line and marker of a series, for the key above the plots."""
    dash = DASHES[series % len(DASHES)]
    pattern = "" if isinstance(dash, str) else " ".join(f"{2 * part:g}" for part in dash[1])
    colour = f"var(--series-{series % len(SERIES)})"
    shape = {
        "o": '<circle cx="22" cy="8" r="5"/>',
        "s": '<rect x="17" y="3" width="10" height="10"/>',
        "^": '<path d="M22 2L28 13H16Z"/>',
        "D": '<path d="M22 1L29 8L22 15L15 8Z"/>',
        "v": '<path d="M22 14L28 3H16Z"/>',
        "P": '<path d="M20 2h4v4h4v4h-4v4h-4v-4h-4v-4h4z"/>',
        "X": '<path d="M17 3l5 5 5-5M17 13l5-5 5 5" stroke-width="3"/>',
        "*": '<path d="M22 1l2 5h5l-4 3 2 6-5-4-5 4 2-6-4-3h5z"/>',
    }[MARKERS[series % len(MARKERS)]]
    return Markup(
        f'<svg viewBox="0 0 44 16" aria-hidden="true" style="stroke: {colour}; fill: {colour}">'
        f'<path d="M1 8H43" stroke-width="3" stroke-dasharray="{pattern}"/>{shape}</svg>'
    )


def _lines(axes: Axes, curves: Sequence[Curve], positions: Sequence[float], ticks_max: int) -> None:
    order = sorted(range(len(positions)), key=positions.__getitem__)
    places = [positions[i] for i in order]
    step = 0.01 * (places[-1] - places[0])
    for index, curve in enumerate(curves):
        offset = (index - (len(curves) - 1) / 2) * step  # else the intervals would hide each other
        _draw(axes, curve, [x + offset for x in places], [curve.points[i] for i in order], joined=True)
    gap = min((b - a for a, b in itertools.pairwise(places)), default=1.0)
    if len(places) == 1 or gap * ticks_max >= places[-1] - places[0]:  # else their labels would overlap
        axes.set_xticks(places, [f"{place:g}" for place in places])


def _dots(axes: Axes, curves: Sequence[Curve], labels: Sequence[str]) -> None:
    """The points of all series side by side over each word, so that intervals do not hide each other."""
    step = 0.6 / max(len(curves), 1)
    for place, curve in enumerate(curves):
        offset = (place - (len(curves) - 1) / 2) * step
        _draw(axes, curve, [index + offset for index in range(len(labels))], curve.points, joined=False)
    axes.set_xticks(range(len(labels)), labels, rotation=20 if max(map(len, labels)) > 14 else 0)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(visible=False, axis="x")


def _draw(axes: Axes, curve: Curve, xs: Sequence[float], points: Sequence[SampleMean], joined: bool) -> None:
    shown = [
        (x, point.mean, _half(point)) for x, point in zip(xs, points, strict=True) if point.mean is not None
    ]
    if not shown:
        return
    x, y, half = zip(*shown, strict=True)
    style = curve.series % len(SERIES)
    axes.errorbar(
        x,
        y,
        yerr=half,
        color=SERIES[style],
        marker=MARKERS[style],
        linestyle=DASHES[style] if joined else "none",
        capsize=3.0,
        elinewidth=1.2,
    )


def _half(point: SampleMean) -> float:
    return 0.0 if point.ci_high is None or point.mean is None else point.ci_high - point.mean


def _set_limits(axes: Axes, points: Sequence[SampleMean], most: float | None) -> None:
    """The y-axis begins at 0, unless all points would lie in the upper half, and ends just above `most`."""
    means = [point.mean for point in points if point.mean is not None]
    if not means or min(means) < 0:
        return
    bottom, top = axes.get_ylim()
    if min(means) < 0.5 * max(means) or bottom < 0:
        bottom = -0.02 * top  # a point at 0 is seen whole
    if most is not None:
        top = min(top, most + 0.03 * (most - bottom))
    axes.set_ylim(bottom, top)
