"""The page of a sweep, from its results to one HTML text."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roamcast.lab.published import FigureRow, rows_of_sweep
from roamcast.lab.report import plots
from roamcast.lab.report.comparison import Comparison, compare_by_place, compare_overall
from roamcast.lab.report.layout import Axis, CellLayout, layout
from roamcast.lab.report.markup import Markup, element, folded, joined, page, section, table
from roamcast.lab.report.numbers import interval, number, numbered, probability, with_interval
from roamcast.lab.report.statistics import SIGNIFICANT
from roamcast.lab.run.metrics import METRICS, metric_of
from roamcast.lab.sweep.folder import OK
from roamcast.lab.sweep.results import Results, value_label
from roamcast.lab.sweep.summary import spread

MAIN = (
    "delivery_ratio",
    "delivery_ratio_reachable",
    "latency_p50",
    "latency_p95",
    "hops_mean",
    "control_overhead",
    "data_messages",
)
"""What most readers ask first. The others are folded away."""
SHARES = ("delivery_ratio", "delivery_ratio_reachable", "reachable_ratio", "own_control_ratio")
"""Ratios that cannot exceed 1."""
COLUMNS_MAX = 9  # axes and metrics side by side in one table: what fits a screen or a sheet
PANELS_MAX = 4  # combinations of other axes side by side in one plot
LABEL_LENGTH_MAX = 30


def render(results: Results) -> str:
    """The whole document."""
    sweep = _Sweep(results, layout(results.description.axes), rows_of_sweep(results))
    return page(
        f"{results.description.experiment} · Roamcast",
        _head(sweep),
        _what_was_run(sweep),
        *([_nothing(sweep)] if not sweep.measured else _findings(sweep)),
        _failed(sweep),
        _reading(sweep),
    )


@dataclass(frozen=True)
class _Sweep:
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


def _findings(sweep: _Sweep) -> list[Markup]:
    return [
        *([_published(sweep)] if sweep.published else []),
        *([_overview(sweep)] if sweep.compares else []),
        _plots(sweep),
        *([_differences(sweep)] if sweep.compares else []),
        _by_cell(sweep),
    ]


# Head and description.


def _head(sweep: _Sweep) -> Markup:
    description = sweep.results.description
    runs, failed = len(sweep.results.runs), len(sweep.results.failed)
    tiles = [
        (runs - failed, "runs measured"),
        (failed, "runs failed"),
        (len(sweep.layout.cells), "cells"),
        (len(description.seeds), "seeds per cell"),
    ]
    links = [("run", "What was run")]
    if sweep.measured:
        links += [("published", "Published figures")] if sweep.published else []
        links += [("overview", "Overview")] if sweep.compares else []
        links += [("plots", "Plots")]
        links += [("differences", "Differences")] if sweep.compares else []
        links += [("cells", "Cell by cell")]
    links += [("failed", "Failed runs"), ("reading", "How to read this")]
    scenario = description.scenario.get("scenario", {}).get("name", "")
    return joined(
        [
            element("h1", description.experiment),
            element(
                "p",
                f"A sweep of the scenario “{scenario}”, by Roamcast {description.roamcast}.",
                class_="lead",
            ),
            element(
                "ul",
                *(element("li", element("b", f"{count:,}"), element("span", what)) for count, what in tiles),
                class_="tiles",
            ),
            element("nav", *(element("a", text, href=f"#{anchor}") for anchor, text in links)),
        ]
    )


def _what_was_run(sweep: _Sweep) -> Markup:
    description = sweep.results.description
    rows = [
        (element("code", axis.key), ", ".join(axis.labels), axis.unit or "–")
        for axis in sweep.layout.axes.values()
    ]
    return section(
        "What was run",
        element(
            "p",
            f"Every combination of the values below, each with the seeds {numbered(description.seeds)}: ",
            f"{len(sweep.layout.cells):,} cells, {len(sweep.results.runs):,} runs.",
        ),
        table(["axis", "values", "unit"], rows, texts=3),
        folded("The scenario", element("pre", _toml(description.scenario))),
        anchor="run",
    )


def _nothing(sweep: _Sweep) -> Markup:
    return section(
        "No results",
        element(
            "p", f"None of the {len(sweep.results.runs):,} runs ended well, so there is nothing to measure."
        ),
        anchor="cells",
    )


# Tables.


def _overview(sweep: _Sweep) -> Markup:
    rows = []
    for series in sweep.layout.series():
        cells = sweep.layout.matching(series)
        figures = [spread(list(sweep.results.means(metric, cells).values())) for metric in sweep.main]
        rows.append([sweep.layout.label(series), *(with_interval(found) for found in figures)])
    several = len(sweep.layout.cells) > len(sweep.layout.series())
    return section(
        f"Overview by {sweep.compared}",
        element(
            "p",
            "Mean over the seeds ± half of its 95% confidence interval",
            _over_cells(several),
            class_="note",
        ),
        table([sweep.compared, *map(_metric_head, sweep.main)], rows, texts=1),
        anchor="overview",
    )


def _over_cells(several: bool) -> str:
    return "; each seed’s figure is first averaged over all cells of the row." if several else "."


def _by_cell(sweep: _Sweep) -> Markup:
    missing = [name for name in METRICS if name not in sweep.measured]
    parts: list[object] = [
        element(
            "p",
            "Mean over the seeds ± half of its 95% confidence interval; n: runs measured.",
            class_="note",
        ),
        *_cell_tables(sweep, sweep.main),
    ]
    if sweep.rest:
        parts.append(folded(f"The other {len(sweep.rest)} metrics", *_cell_tables(sweep, sweep.rest)))
    if missing:
        names = ", ".join(missing)
        parts.append(element("p", f"Without meaning for these runs, so not shown: {names}.", class_="note"))
    return section("Cell by cell", *parts, anchor="cells")


def _cell_tables(sweep: _Sweep, metrics: Sequence[str]) -> list[Markup]:
    """As many tables as it takes, of about the same width. Axes with a single value are left out."""
    axes = [axis for axis in sweep.layout.axes.values() if len(axis.labels) > 1]
    axes = axes or list(sweep.layout.axes.values())
    count = math.ceil(len(metrics) / max(3, COLUMNS_MAX - len(axes)))
    width = math.ceil(len(metrics) / count) if count else 1
    return [_cell_table(sweep, axes, metrics[at : at + width]) for at in range(0, len(metrics), width)]


def _cell_table(sweep: _Sweep, axes: Sequence[Axis], metrics: Sequence[str]) -> Markup:
    measured = Counter(run.cell for run in sweep.results.runs if run.status == OK)
    rows = []
    for cell, indices in enumerate(sweep.layout.cells):
        figures = [spread(list(sweep.results.values(metric, cell).values())) for metric in metrics]
        labels = [element("span", axis.labels[indices[axis.key]], class_="whole") for axis in axes]
        rows.append([*labels, measured[cell], *(with_interval(found) for found in figures)])
    heads = [_axis_head(axis.key, axis.unit) for axis in axes]
    return table([*heads, "n", *map(_metric_head, metrics)], rows, texts=len(axes))


def _axis_head(key: str, unit: str) -> Markup:
    return element("span", key, element("small", unit)) if unit else element("span", key)


def _metric_head(name: str) -> Markup:
    unit = metric_of(name).unit
    # A long name may break after its underscores, or the table would not fit a sheet of paper.
    shown = Markup(name.replace("_", "_<wbr>"))
    return element("span", shown, element("small", unit) if unit else "", title=metric_of(name).meaning)


# Plots.


def _plots(sweep: _Sweep) -> Markup:
    if not sweep.layout.plot_axes:
        return section("Plots", element("p", "There is one cell only: nothing to plot."), anchor="plots")
    varying = [name for name in sweep.measured if _varies(sweep.results, name)]
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
        if others:
            title = f"The other {len(others)} metrics along {key}"
            parts.append(folded(title, _figures(sweep, key, others, f"q{place}")))
    if still:
        text = f"The same in every run, so not plotted: {', '.join(still)}."
        parts.append(element("p", text, class_="note"))
    return section("Plots", *parts, anchor="plots")


def _varies(results: Results, metric: str) -> bool:
    values = [value for by_seed in results.figures[metric].values() for value in by_seed.values()]
    return min(values) != max(values)


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


def _figures(sweep: _Sweep, key: str, metrics: Sequence[str], prefix: str) -> Markup:
    made = [_figure(sweep, key, metric, f"{prefix}-{index}") for index, metric in enumerate(metrics)]
    return element("div", *made, class_="plots")


def _figure(sweep: _Sweep, key: str, metric: str, identifier: str) -> Markup:
    shown, axis = sweep.layout, sweep.layout.axes[key]
    places = shown.combinations(shown.others(key))
    if len(places) > PANELS_MAX:
        places = [{}]
    # Where the compared values are themselves along the x-axis, there are no series besides.
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


# Differences.


def _differences(sweep: _Sweep) -> Markup:
    varying = [name for name in sweep.main if _varies(sweep.results, name)]
    overall = compare_overall(sweep.results, sweep.layout, varying)
    parts: list[object] = [
        element(
            "p",
            f"Second minus first, over all cells. Significant: p below {SIGNIFICANT} after Holm’s correction "
            "for all tests of the table. Effect: the difference in standard deviations (Cohen’s d of the "
            "pairs; Hedges’ g where runs could not be paired).",
            class_="note",
        ),
        _comparison_table(overall, with_place=False),
    ]
    if sweep.layout.others():
        by_place = compare_by_place(sweep.results, sweep.layout, varying)
        parts.append(
            folded(
                f"The same for each value of {' and '.join(sweep.layout.others())}",
                _comparison_table(by_place, with_place=True),
            )
        )
    return section(f"Differences between values of {sweep.compared}", *parts, anchor="differences")


def _comparison_table(rows: Sequence[Comparison], with_place: bool) -> Markup:
    heads = ["metric", *(["where"] if with_place else []), "first", "second", "finding"]
    numbers = ["difference", "95% interval", "effect", "p", "p (Holm)", "test", "n"]
    return table([*heads, *numbers], [_comparison_row(row, with_place) for row in rows], texts=len(heads))


def _comparison_row(row: Comparison, with_place: bool) -> list[object]:
    found = row.difference
    significant = row.corrected is not None and row.corrected < SIGNIFICANT
    verdict = element("b", row.verdict) if significant else row.verdict
    return [
        row.metric,
        *([row.place] if with_place else []),
        row.first,
        row.second,
        verdict,
        number(found.mean, 3),
        interval(found.low, found.high),
        number(found.effect, 3),
        probability(found.p),
        probability(row.corrected),
        found.test,
        found.count,
    ]


# Published figures, failures, reading.


def _published(sweep: _Sweep) -> Markup:
    agreeing = sum(row.agrees for row in sweep.published)
    return section(
        "Published figures",
        element("p", f"{agreeing} of {len(sweep.published)} agree with what was published or claimed."),
        published_table(sweep.published),
        anchor="published",
    )


def published_table(rows: Sequence[FigureRow]) -> Markup:
    """Ours beside theirs. The page of `reproduce` shows the same."""
    made = []
    for row in rows:
        verdict = element(
            "span", "agrees" if row.agrees else "differs", class_="good" if row.agrees else "bad"
        )
        why = [element("div", text, class_="note") for text in (row.detail, row.note) if text]
        place = ", ".join(f"{key} = {value_label(value)}" for key, value in row.at.items())
        made.append(
            [
                element("div", row.quantity, *why, class_="words"),
                place or "–",
                row.rule,
                verdict,
                number(row.published),
                number(row.ours),
                interval(row.low, row.high),
            ]
        )
    heads = ["quantity", "at", "agreement means", "", "published", "ours", "95% interval"]
    return table(heads, made, texts=4)


def _failed(sweep: _Sweep) -> Markup:
    failed = sweep.results.failed
    if not failed:
        return section("Failed runs", element("p", "None."), anchor="failed")
    rows = []
    for run in failed:
        where = (
            sweep.layout.full_label(sweep.layout.cells[run.cell])
            if run.cell < len(sweep.layout.cells)
            else ""
        )
        rows.append([element("code", run.run), where, run.seed, run.error])
    return section(
        "Failed runs",
        element(
            "p", f"{len(failed):,} of {len(sweep.results.runs):,} runs failed. They are in no figure above."
        ),
        table(["run", "cell", "seed", "error"], rows, texts=4),
        anchor="failed",
    )


def _reading(sweep: _Sweep) -> Markup:
    meanings = [
        (element("code", name), metric_of(name).meaning, metric_of(name).unit or "–")
        for name in sweep.measured
    ]
    texts = [
        "A figure of a cell is the mean over its seeds. Its 95% confidence interval is Student’s t "
        "interval of that mean; with few seeds it is wide, and for a ratio near 0 or 1 it may reach "
        "beyond what is possible.",
        "The same seed gives the same motion and publications in every cell that has the same world, so "
        "runs are compared in pairs of one seed by a two-sided paired t-test. Where fewer than two seeds "
        "are shared, Welch’s t-test takes its place. Over several cells, each seed counts once, with its "
        "mean over them. Many tests at once find something by chance; Holm’s correction keeps the chance "
        "of even one false finding at 5%.",
    ]
    parts: list[object] = [element("p", text) for text in texts]
    if meanings:
        parts.append(folded("What the metrics mean", table(["metric", "meaning", "unit"], meanings, texts=3)))
    return section("How to read this", *parts, anchor="reading")


def _toml(tables: dict[str, Any]) -> str:
    """The scenario roughly as its file has it: for reading, not for parsing."""
    lines = []
    for name, content in tables.items():
        if isinstance(content, dict):
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
            lines.append("")
        else:
            lines += [f"{name} = {json.dumps(content, ensure_ascii=False)}", ""]
    return "\n".join(lines).rstrip()
