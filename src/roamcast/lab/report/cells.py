"""Tables of means: one row per compared strategy (or other value), and one row per cell."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from roamcast.lab.report.layout import Axis
from roamcast.lab.report.markup import Markup, element, folded, section, table
from roamcast.lab.report.numbers import with_interval
from roamcast.lab.report.subject import CELLS_MAX, ReportedSweep
from roamcast.lab.run.metrics import METRICS, metric_of
from roamcast.lab.sweep.segments import OK
from roamcast.lab.sweep.summary import spread

COLUMNS_MAX = 9  # axes and metrics side by side in one table: what fits a screen or a sheet


def overview(sweep: ReportedSweep) -> Markup:
    """One row for each compared value."""
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


def by_cell(sweep: ReportedSweep, played: Mapping[int, str]) -> Markup:
    """Every cell, the main metrics first, with a link to one of its runs that plays."""
    missing = [name for name in METRICS if name not in sweep.measured]
    parts: list[object] = [
        element(
            "p",
            "Mean over the seeds ± half of its 95% confidence interval; n: runs measured.",
            class_="note",
        ),
        *_cell_tables(sweep, sweep.main, played),
    ]
    if sweep.rest and len(sweep.layout.cells) > CELLS_MAX:
        left_out = f"The other {len(sweep.rest)} metrics of so many cells are in the table `summary` only."
        parts.append(element("p", left_out, class_="note"))
    elif sweep.rest:
        parts.append(folded(f"The other {len(sweep.rest)} metrics", *_cell_tables(sweep, sweep.rest, {})))
    if missing:
        names = ", ".join(missing)
        parts.append(element("p", f"Without meaning for these runs, so not shown: {names}.", class_="note"))
    return section("Cell by cell", *parts, anchor="cells")


def _cell_tables(sweep: ReportedSweep, metrics: Sequence[str], played: Mapping[int, str]) -> list[Markup]:
    """As many tables as it takes, of about the same width. Axes with a single value are left out."""
    axes = [axis for axis in sweep.layout.axes.values() if len(axis.labels) > 1]
    axes = axes or list(sweep.layout.axes.values())
    count = math.ceil(len(metrics) / max(3, COLUMNS_MAX - len(axes)))
    width = math.ceil(len(metrics) / count) if count else 1
    return [
        _cell_table(sweep, axes, metrics[at : at + width], played) for at in range(0, len(metrics), width)
    ]


def play_link(run: str | None) -> Markup:
    """To the page of a run, beside the report."""
    return Markup("") if run is None else element("a", "▶ play", href=f"play/{run}.html")


def _cell_table(
    sweep: ReportedSweep, axes: Sequence[Axis], metrics: Sequence[str], played: Mapping[int, str]
) -> Markup:
    measured = Counter(run.cell for run in sweep.results.runs if run.status == OK)
    rows = []
    for cell, indices in enumerate(sweep.layout.cells):
        figures = [spread(list(sweep.results.values(metric, cell).values())) for metric in metrics]
        labels = [element("span", axis.labels[indices[axis.key]], class_="whole") for axis in axes]
        link = [play_link(played.get(cell))] if played else []
        rows.append([*labels, *link, measured[cell], *(with_interval(found) for found in figures)])
    heads = [_axis_head(axis.key, axis.unit) for axis in axes]
    link_head = ["a run"] if played else []
    return table(
        [*heads, *link_head, "n", *map(_metric_head, metrics)], rows, texts=len(axes) + len(link_head)
    )


def _axis_head(key: str, unit: str) -> Markup:
    return element("span", key, element("small", unit)) if unit else element("span", key)


def _metric_head(name: str) -> Markup:
    unit = metric_of(name).unit
    # A long name may break after its underscores, or the table would not fit a sheet of paper.
    shown = Markup(name.replace("_", "_<wbr>"))
    return element("span", shown, element("small", unit) if unit else "", title=metric_of(name).meaning)
