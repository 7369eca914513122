"""The first section of a page: the verdict in words, one picture, and a table of who serves best where."""

from collections.abc import Mapping

from roamcast.lab.report.cells import play_link
from roamcast.lab.report.figures import ReportFigure, placeholder, trade_off
from roamcast.lab.report.markup import Markup, element, folded, section, table
from roamcast.lab.report.numbers import number, with_interval
from roamcast.lab.report.subject import ReportedSweep
from roamcast.lab.report.verdict import PlaceVerdict, judge, judge_places, sentences
from roamcast.lab.sweep.results import Results

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
        "delivery_ratio",
        "octets per delivery",
        "latency_p95 (s)",
    ]
    return table(heads, rows, texts=3)


def in_words(results: Results) -> list[str]:
    """The verdict on a sweep, for a terminal."""
    from roamcast.lab.report.layout import layout

    found = verdict_of(ReportedSweep(results, layout(results.description.axes), []))
    return [] if found is None else found[2]
