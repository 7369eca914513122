"""Tables of comparisons: strategy against strategy, and our values beside the published ones."""

from collections.abc import Sequence

from roamcast.lab.published import FigureRow
from roamcast.lab.report.comparison import Comparison, compare_by_place, compare_overall
from roamcast.lab.report.markup import Markup, element, folded, section, table
from roamcast.lab.report.numbers import interval, number, probability
from roamcast.lab.report.statistics import SIGNIFICANT
from roamcast.lab.report.subject import ReportedSweep
from roamcast.lab.sweep.results import value_label

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
    """What was found in front, the whole list behind a fold."""
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


def published_table(rows: Sequence[FigureRow]) -> Markup:
    """Our values beside the published ones. The page of `reproduce` shows the same."""
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
