"""The page of a reproduction: every figure, our values beside the published ones."""

from collections.abc import Sequence

from roamcast import __version__
from roamcast.lab.published import FigureRow, PublishedFigure
from roamcast.lab.report import NAME as REPORT_NAME
from roamcast.lab.report.markup import Markup, element, joined, page, section
from roamcast.lab.report.sections import published_table


def render(found: Sequence[tuple[PublishedFigure, Sequence[FigureRow]]], profile: str, failed: int) -> str:
    """The whole document."""
    rows = [row for _, of_figure in found for row in of_figure]
    agreeing = sum(row.agrees for row in rows)
    tiles = [
        (len(found), "published figures"),
        (agreeing, "quantities agree"),
        (len(rows) - agreeing, "quantities differ"),
        (failed, "runs failed"),
    ]
    return page(
        "Reproduction · Roamcast",
        element("h1", "Published figures, ours beside theirs"),
        element("p", f"Profile “{profile}”, by Roamcast {__version__}.", class_="lead"),
        element(
            "ul",
            *(element("li", element("b", count), element("span", what)) for count, what in tiles),
            class_="tiles",
        ),
        joined(_figure(figure, of_figure) for figure, of_figure in found),
        _reading(),
    )


def _figure(figure: PublishedFigure, rows: Sequence[FigureRow]) -> Markup:
    return section(
        figure.file.title,
        element("p", element("code", figure.name), f" · {figure.file.source}", class_="lead"),
        element("p", figure.file.note) if figure.file.note else "",
        published_table(rows),
        element("p", element("a", "The whole sweep", href=f"{figure.name}/{REPORT_NAME}"), class_="note"),
    )


def _reading() -> Markup:
    texts = [
        "Ours is the mean over the seeds, with Student’s 95% confidence interval. A quantity agrees when "
        "that mean meets the rule beside it; the interval shows how sure the mean is.",
        "For an order (smallest first), ours is the smallest step between neighbours and must be above 0. "
        "For a trend, ours is Spearman’s rank correlation between the axis and the means along it, which "
        "must be 1 or −1: every step in the same direction; its interval comes from drawing the seeds "
        "again.",
        "A dash under “published” means that the claim is an order, a trend or a bound, not a number.",
    ]
    return section("How to read this", *(element("p", text) for text in texts))
