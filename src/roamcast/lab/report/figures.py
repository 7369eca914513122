"""The sweep that a page reports, and its figures as data: the page draws them, and `plots.py` writes them as
SVG and CSV."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from roamcast.lab.published import FigureRow
from roamcast.lab.report.layout import CellLayout
from roamcast.lab.report.markup import Markup, element, folded, section
from roamcast.lab.report.verdict import PlaceVerdict
from roamcast.lab.run.metrics import metric_of
from roamcast.lab.sweep.results import Results
from roamcast.lab.sweep.summary import SampleMean, spread

MAIN = (
    "delivery_ratio",
    "delivery_of_limit",
    "latency_p50",
    "latency_p95",
    "latency_excess_p95",
    "hops_mean",
    "control_overhead",
    "data_messages",
    "airtime_of_limit",
)
"""The metrics that are shown first; chosen by us. The others are folded."""

CELLS_MAX = 1000  # that are shown with all metrics; with more, the main ones: a page of 10 MB at most


@dataclass(frozen=True)
class ReportedSweep:
    """Its results, how they are laid out, and which metrics are shown first."""

    results: Results
    layout: CellLayout
    published: list[FigureRow]

    @property
    def measured(self) -> list[str]:
        return self.results.measured()

    @property
    def main(self) -> list[str]:
        """The main metrics that were measured; first those for which published figures exist."""
        asked = [name for row in self.published for name in row.metrics]
        return [name for name in dict.fromkeys([*asked, *MAIN]) if name in self.measured]

    @property
    def rest(self) -> list[str]:
        return [name for name in self.measured if name not in self.main]

    @property
    def compares(self) -> bool:
        return len(self.layout.series()) > 1

    @property
    def compared(self) -> str:
        return " and ".join(self.layout.series_axes)

    def varies(self, metric: str) -> bool:
        """Whether any two runs differ in it."""
        values = [value for by_seed in self.results.figures[metric].values() for value in by_seed.values()]
        return min(values) != max(values)


SHARES = (
    "delivery_ratio",
    "delivery_ratio_reachable",
    "reachable_ratio",
    "limit_delivery",
    "delivery_of_limit",
)
"""Ratios that cannot exceed 1."""
PANELS_MAX = 4  # combinations of other axes that get figures of their own
DIGITS = 6  # of a number on the page


class FigurePoint(msgspec.Struct, frozen=True):
    """`low` and `high`: the 95% confidence interval of y; `left` and `right`: of x."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    left: float | None = None
    right: float | None = None


class FigureSeries(msgspec.Struct, frozen=True):
    name: str
    index: int  # decides colour and marker, the same in all figures
    points: list[FigurePoint]


class ReportFigure(msgspec.Struct, frozen=True, kw_only=True):
    """`kind`: `lines` (points joined), `dots` (points apart), `steps` (a distribution), `bars` (stacked)."""

    id: str
    kind: str
    title: str
    x_title: str
    y_title: str
    labels: list[str] | None = None  # of the places 0, 1, … on the x-axis, where they are words
    x_log: bool = False
    most: float | None = None  # what no y can exceed
    series: list[FigureSeries]
    front: list[tuple[float, float]] = []


def along_axes(sweep: ReportedSweep, figures: list[ReportFigure]) -> Markup:
    """Every metric along every axis that has several values; one that is the same in every run is only
    named."""
    if not sweep.layout.plot_axes:
        return section("Plots", element("p", "There is one cell only: nothing to plot."), anchor="plots")
    varying = [name for name in sweep.measured if sweep.varies(name)]
    still = [name for name in sweep.main if name not in varying]
    parts: list[object] = []
    for place, key in enumerate(sweep.layout.plot_axes):
        axis = sweep.layout.axes[key]
        shown = [name for name in sweep.main if name in varying]
        others = [name for name in sweep.rest if name in varying]
        parts.append(element("h3", f"Along {axis.title}"))
        parts.append(element("p", _panels_note(sweep.layout, key), class_="note"))
        parts.append(_drawn(sweep, key, shown, f"p{place}", figures))
        if others and len(sweep.layout.cells) <= CELLS_MAX:
            title = f"The other {len(others)} metrics along {key}"
            parts.append(folded(title, _drawn(sweep, key, others, f"q{place}", figures)))
    if still:
        text = f"The same in every run, so not plotted: {', '.join(still)}."
        parts.append(element("p", text, class_="note"))
    return section("Plots", *parts, anchor="plots")


def placeholder(figure: ReportFigure, caption: object = "", wide: bool = False) -> Markup:
    """Where the page's script draws a figure."""
    body = element("div", class_="chart", data_figure=figure.id)
    return element("figure", body, element("figcaption", caption), class_="panels" if wide else "panel")


def trade_off(verdict: PlaceVerdict, identifier: str) -> ReportFigure:
    """Delivery against cost, one point per strategy, with the Pareto front."""
    series = [
        FigureSeries(one.name, one.series, [_crossing(one.cost, one.delivery)])
        for one in verdict.served
        if one.cost.mean is not None
    ]
    front = sorted(
        (one.cost.mean, one.delivery.mean)
        for one in verdict.served
        if one.name in verdict.front and one.cost.mean is not None and one.delivery.mean is not None
    )
    return ReportFigure(
        id=identifier,
        kind="dots",
        title=verdict.place or "What delivery costs",
        x_title="octets sent per delivery",
        y_title=verdict.metric,
        x_log=True,
        most=1.0,
        series=series,
        front=[(_short(x), _short(y)) for x, y in front],
    )


def _panels_note(shown: CellLayout, key: str) -> str:
    others = shown.others(key)
    bars = (
        "Points are means over the seeds, bars their 95% confidence intervals, as far as values are possible "
        "(a share ends at 0 and 1). Drag over a part to see it larger, double-click to see all."
    )
    if not others:
        return bars
    names = " and ".join(others)
    if len(shown.combinations(others)) <= PANELS_MAX:
        return f"{bars} One figure for each value of {names}."
    return f"{bars} Each seed’s figure is first averaged over the values of {names}."


def _drawn(
    sweep: ReportedSweep, key: str, metrics: Sequence[str], prefix: str, figures: list[ReportFigure]
) -> Markup:
    made: list[Markup] = []
    for index, metric in enumerate(metrics):
        places = sweep.layout.combinations(sweep.layout.others(key))
        if len(places) > PANELS_MAX:
            places = [{}]
        for panel, place in enumerate(places):
            figure = _figure(sweep, key, metric, place, f"{prefix}-{index}-{panel}")
            figures.append(figure)
            meaning = element("span", element("b", metric), f": {metric_of(metric).meaning}")
            made.append(placeholder(figure, meaning))
    return element("div", *made, class_="plots")


def _figure(
    sweep: ReportedSweep, key: str, metric: str, place: Mapping[str, int], identifier: str
) -> ReportFigure:
    shown, axis = sweep.layout, sweep.layout.axes[key]
    # Where the compared values lie along the x-axis, there is only one series.
    lines: list[dict[str, int]] = [{}] if key in shown.series_axes else shown.series()
    series = []
    for index, chosen in enumerate(lines):
        points = []
        for value in range(len(axis.labels)):
            cells = shown.matching(chosen | dict(place) | {key: value})
            found = spread(list(sweep.results.means(metric, cells).values()))
            x = float(value) if axis.positions is None else axis.positions[value]
            if found.mean is not None:
                points.append(FigurePoint(x, _short(found.mean), *_interval(found)))
        series.append(FigureSeries(shown.label(chosen), index, sorted(points, key=lambda point: point.x)))
    unit = metric_of(metric).unit
    return ReportFigure(
        id=identifier,
        kind="dots" if axis.positions is None else "lines",
        title=shown.full_label(place),
        x_title=axis.plot_title,
        y_title=f"{metric} ({unit})" if unit else metric,
        labels=axis.labels if axis.positions is None else None,
        most=1.0 if metric in SHARES else None,
        series=series,
    )


def _crossing(x: SampleMean, y: SampleMean) -> FigurePoint:
    assert x.mean is not None and y.mean is not None
    return FigurePoint(_short(x.mean), _short(y.mean), *_interval(y), *_interval(x))


def _interval(found: SampleMean) -> tuple[float | None, float | None]:
    if found.ci_low is None or found.ci_high is None:
        return None, None
    return _short(found.ci_low), _short(found.ci_high)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else 0.0
