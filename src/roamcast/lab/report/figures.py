"""The section of plots: every metric along every axis that has several values."""

from collections.abc import Sequence

from roamcast.lab.report import plots
from roamcast.lab.report.layout import CellLayout
from roamcast.lab.report.markup import Markup, element, folded, section
from roamcast.lab.report.subject import CELLS_MAX, ReportedSweep
from roamcast.lab.run.metrics import metric_of
from roamcast.lab.sweep.summary import spread

SHARES = ("delivery_ratio", "delivery_ratio_reachable", "reachable_ratio", "own_control_ratio")
"""Ratios that cannot exceed 1."""
PANELS_MAX = 4  # combinations of other axes side by side in one plot
LABEL_LENGTH_MAX = 30


def plot_section(sweep: ReportedSweep) -> Markup:
    """All plots; a metric that is the same in every run is only named."""
    if not sweep.layout.plot_axes:
        return section("Plots", element("p", "There is one cell only: nothing to plot."), anchor="plots")
    varying = [name for name in sweep.measured if sweep.varies(name)]
    still = [name for name in sweep.main if name not in varying]
    parts: list[object] = []
    if sweep.compares and not set(sweep.layout.plot_axes) & set(sweep.layout.series_axes):
        parts.append(_key(sweep.layout))
    for place, key in enumerate(sweep.layout.plot_axes):
        axis = sweep.layout.axes[key]
        shown = [name for name in sweep.main if name in varying]
        others = [name for name in sweep.rest if name in varying]
        parts.append(element("h3", f"Along {axis.title}"))
        parts.append(element("p", _panels_note(sweep.layout, key), class_="note"))
        parts.append(_figures(sweep, key, shown, f"p{place}"))
        if others and len(sweep.layout.cells) <= CELLS_MAX:
            title = f"The other {len(others)} metrics along {key}"
            parts.append(folded(title, _figures(sweep, key, others, f"q{place}")))
    if still:
        text = f"The same in every run, so not plotted: {', '.join(still)}."
        parts.append(element("p", text, class_="note"))
    return section("Plots", *parts, anchor="plots")


def _key(shown: CellLayout) -> Markup:
    samples = [
        element("li", plots.key_sample(index), shown.label(series))
        for index, series in enumerate(shown.series())
    ]
    return element("ul", *samples, class_="key")


def _panels_note(shown: CellLayout, key: str) -> str:
    others = shown.others(key)
    bars = "Points are means over the seeds, bars their 95% confidence intervals, set apart sideways."
    if not others:
        return bars
    names = " and ".join(others)
    if len(shown.combinations(others)) <= PANELS_MAX:
        return f"{bars} One panel for each value of {names}."
    return f"{bars} Each seed’s figure is first averaged over the values of {names}."


def _figures(sweep: ReportedSweep, key: str, metrics: Sequence[str], prefix: str) -> Markup:
    made = [_figure(sweep, key, metric, f"{prefix}-{index}") for index, metric in enumerate(metrics)]
    return element("div", *made, class_="plots")


def _figure(sweep: ReportedSweep, key: str, metric: str, identifier: str) -> Markup:
    shown, axis = sweep.layout, sweep.layout.axes[key]
    places = shown.combinations(shown.others(key))
    if len(places) > PANELS_MAX:
        places = [{}]
    # Where the compared values lie along the x-axis, there is only one series.
    lines = [{}] if key in shown.series_axes else shown.series()
    panels = []
    for place in places:
        curves = []
        for index, series in enumerate(lines):
            points = []
            for value in range(len(axis.labels)):
                cells = shown.matching(series | place | {key: value})
                points.append(spread(list(sweep.results.means(metric, cells).values())))
            curves.append(plots.Curve(index, points))
        panels.append(plots.Panel(_cut(shown.full_label(place)), curves))
    unit = metric_of(metric).unit
    title = f"{metric} ({unit})" if unit else metric
    drawn = plots.plot(
        panels,
        axis.positions,
        [_cut(label) for label in axis.labels],
        _cut(axis.plot_title),
        title,
        most=1.0 if metric in SHARES else None,
    )
    caption = element("figcaption", element("b", metric), f": {metric_of(metric).meaning}")
    body = plots.inline(drawn, identifier, f"{metric} along {key}")
    return element("figure", body, caption, class_="panels" if len(panels) > 1 else "panel")


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_LENGTH_MAX else text[: LABEL_LENGTH_MAX - 1] + "…"
