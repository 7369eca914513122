"""The sections of a page: the verdict (in words, one picture, and a table of who serves best where), tables
of means by compared value and by cell, and tables of comparisons (strategy against strategy, and our values
beside the published ones)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from roamcast.lab.published import FigureRow
from roamcast.lab.published.standing import told
from roamcast.lab.report.figures import CELLS_MAX, ReportedSweep, ReportFigure, placeholder, trade_off
from roamcast.lab.report.layout import Axis, layout
from roamcast.lab.report.markup import Markup, element, folded, section, table
from roamcast.lab.report.numbers import interval, number, numbered, probability, with_interval
from roamcast.lab.report.statistics import SIGNIFICANT, Comparison, compare_by_place, compare_overall
from roamcast.lab.report.verdict import PlaceVerdict, judge, judge_places, sentences
from roamcast.lab.run.metrics import METRICS, metric_of
from roamcast.lab.sweep.folder import OK
from roamcast.lab.sweep.results import Results, value_label
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
    """A link to the page that plays a run, beside the report."""
    return Markup("") if run is None else element("a", "▶ play", href=f"play/{run}.html", class_="whole")


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


PLACES_MAX = 200  # combinations of the other axes that are compared one by one; chosen by us, for the page


def differences(sweep: ReportedSweep) -> Markup:
    """Every two compared values: the size of the difference, and whether it is significant."""
    varying = [name for name in sweep.main if sweep.varies(name)]
    overall = compare_overall(sweep.results, sweep.layout, varying)
    parts: list[object] = [
        element(
            "p",
            f"Second minus first, over all cells. Significant: p below {SIGNIFICANT} after Holm’s correction "
            "for all tests of the table. Effect: the difference in standard deviations (Cohen’s d of the "
            "pairs; Hedges’ g where runs could not be paired).",
            class_="note",
        ),
        *_found(overall),
    ]
    places = len(sweep.layout.cells) // len(sweep.layout.series())
    if places > PLACES_MAX:
        text = f"Not compared one by one: {places:,} combinations of {' and '.join(sweep.layout.others())}."
        parts.append(element("p", text, class_="note"))
    elif sweep.layout.others():
        by_place = compare_by_place(sweep.results, sweep.layout, varying)
        parts.append(
            folded(
                f"The same for each value of {' and '.join(sweep.layout.others())}",
                _comparison_table(by_place, with_place=True),
            )
        )
    return section(f"Differences between values of {sweep.compared}", *parts, anchor="differences")


def _found(rows: Sequence[Comparison]) -> list[Markup]:
    """The significant differences first, then the whole list, folded."""
    found = [row for row in rows if row.corrected is not None and row.corrected < SIGNIFICANT]
    front = [
        _comparison_table(found, with_place=False)
        if found
        else element("p", f"None of {len(rows)} comparisons shows a difference beyond chance.")
    ]
    if len(found) < len(rows):
        title = f"All {len(rows)} comparisons: {len(rows) - len(found)} show no difference beyond chance"
        front.append(folded(title, _comparison_table(rows, with_place=False)))
    return front


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


VERDICT_CLASSES = {"agrees": "good", "better": "good", "differs": "bad"}


def published_table(rows: Sequence[FigureRow]) -> Markup:
    """Our values beside the published ones. The page of `reproduce` shows the same."""
    made = []
    for row in rows:
        verdict = element("span", told(row), class_=VERDICT_CLASSES.get(row.verdict, ""))
        why = [element("div", text, class_="note") for text in (row.detail, row.note) if text]
        place = ", ".join(f"{key} = {value_label(value)}" for key, value in row.at.items())
        made.append(
            [
                element("div", row.quantity, *why, class_="words"),
                row.kind,
                place or "–",
                row.rule,
                verdict,
                number(row.published),
                number(row.ours),
                interval(row.low, row.high),
                numbered(row.seeds) or "–",
            ]
        )
    heads = ["quantity", "kind", "at", "agreement means", "", "published", "ours", "95% interval", "seeds"]
    return table(heads, made, texts=5)


CAPTION = (
    "Up and to the left is better. The grey line is the Pareto front: whoever is on it is beaten by no other "
    "in both. Bars are 95% confidence intervals."
)


def verdict_of(sweep: ReportedSweep) -> tuple[PlaceVerdict, list[PlaceVerdict], list[str]] | None:
    """Over all cells, for each place, and both in words; None where there is nothing to judge."""
    whole = judge(sweep.results, sweep.layout, {})
    if whole is None:
        return None
    places = judge_places(sweep.results, sweep.layout)
    others = " and ".join(sweep.layout.others())
    return whole, places, sentences(whole, places, sweep.compared, others)


def verdict_section(sweep: ReportedSweep, played: Mapping[int, str], figures: list[ReportFigure]) -> Markup:
    found = verdict_of(sweep)
    if found is None:
        text = "Fewer than two of the compared values have a delivery ratio: nothing to judge."
        return section("Verdict", element("p", text), anchor="verdict")
    whole, places, said = found
    words = element("div", *(element("p", sentence) for sentence in said), _links(sweep, whole, played))
    parts: list[object] = []
    if whole.winner.cost.mean is None:
        parts.append(words)
    else:
        figure = trade_off(whole, "verdict")
        figures.append(figure)
        parts.append(element("div", words, placeholder(figure, CAPTION), class_="verdict"))
    if places:
        parts.append(_by_place(places))
        shown = [trade_off(place, f"verdict-{at}") for at, place in enumerate(places)]
        shown = [figure for figure in shown if figure.series]
        figures.extend(shown)
        pictures = element("div", *(placeholder(figure) for figure in shown), class_="plots")
        parts.append(folded("The same picture for each of them", pictures))
    return section("Verdict", *parts, anchor="verdict")


def _links(sweep: ReportedSweep, whole: PlaceVerdict, played: Mapping[int, str]) -> Markup:
    cells = sweep.layout.matching(sweep.layout.series()[whole.winner.series])
    links = [play_link(played[cell]) for cell in cells if cell in played]
    if not links:
        return Markup("")
    return element("p", f"See a run of {whole.winner.name}: ", Markup(" · ".join(links)), class_="note")


def _by_place(places: list[PlaceVerdict]) -> Markup:
    rows = []
    for verdict in places:
        winner = verdict.winner
        front = ", ".join(verdict.front)
        rows.append(
            [
                verdict.place,
                element("b", winner.name),
                front,
                with_interval(winner.delivery),
                number(winner.cost.mean, 3),
                number(winner.latency.mean, 3),
            ]
        )
    heads = [
        "where",
        "serves best",
        "Pareto front",
        places[0].metric,
        "octets per delivery",
        "latency_p95 (s)",
    ]
    return table(heads, rows, texts=3)


def in_words(results: Results) -> list[str]:
    """The verdict on a sweep, for a terminal."""
    found = verdict_of(ReportedSweep(results, layout(results.description.axes), []))
    return [] if found is None else found[2]


def run_of_the_winner(results: Results) -> str | None:
    """The name of a run of the strategy that serves best: the first, whose page is beside the report."""
    shown = layout(results.description.axes)
    whole = judge(results, shown, {})
    if whole is None:
        return None
    cells = shown.matching(shown.series()[whole.winner.series])
    return next((run.run for run in results.runs if run.status == OK and run.cell in cells), None)
