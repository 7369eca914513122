"""Sweep the chosen figures, apply their rules, write what came out: rows, and a page of them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from roamcast import __version__
from roamcast.errors import InputError
from roamcast.lab.published import FigureRow, PublishedFigure, rows, selected
from roamcast.lab.published.figure import FOLDER, PROFILES
from roamcast.lab.report import NAME as REPORT_NAME
from roamcast.lab.report import place, report
from roamcast.lab.report.markup import Markup, element, joined, page, section
from roamcast.lab.report.sections import published_table
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import Progress, Sweep, run_sweeps

JSON_NAME = "reproduction.json"
PAGE_NAME = "reproduction.html"


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` computed. Disagreement is a result, not a failure; a failed run is a failure."""

    rows: list[FigureRow]
    failed: int  # runs
    page: str

    @property
    def agreeing(self) -> int:
        return sum(row.agrees for row in self.rows)

    def to_line(self) -> str:
        """The last line that the command prints."""
        differing = len(self.rows) - self.agreeing
        line = f"{self.agreeing} of {len(self.rows)} quantities agree, {differing} differ"
        return f"{line}; {self.failed} runs failed" if self.failed else line


def reproduce(
    selection: str | None,
    profile: str,
    out: Storage | Path | str,
    master: str | None = None,
    progress: Callable[[str, Progress], None] | None = None,
    published: Path = FOLDER,
) -> Reproduction:
    """Run `PAPER`, `PAPER/FIGURE` or everything into `out`; runs that are there already are not repeated.

    The runs of all figures are one set of tasks. Each sweep lies in `out/<paper>/<figure>/`, with its own
    report. A folder holds one profile.
    """
    if profile not in PROFILES:
        raise InputError("profile", f"is {profile!r}; allowed: {', '.join(PROFILES)}")
    figures = selected(selection, published)
    whole = Storage.open(out)
    folders = [whole.folder(figure.name) for figure in figures]
    sweeps = [
        Sweep(figure.experiment(profile), folder, resume=True)
        for figure, folder in zip(figures, folders, strict=True)
    ]
    with ExitStack() as watches:
        for figure, made in zip(figures, sweeps, strict=True):
            watches.enter_context(made.watched(_named(progress, figure)))
        run_sweeps(master, sweeps)
    found: list[tuple[PublishedFigure, list[FigureRow]]] = []
    failed = 0
    for figure, made, folder in zip(figures, sweeps, folders, strict=True):
        failed += made.finish(master).failed
        found.append((figure, rows(figure, profile, read_results(folder))))
        report(folder)
    all_rows = [row for _, of_figure in found for row in of_figure]
    place(msgspec.json.format(msgspec.json.encode(all_rows), indent=2).decode() + "\n", whole, JSON_NAME)
    page = place(render(found, profile, failed), whole, PAGE_NAME)
    return Reproduction(all_rows, failed, page)


def _named(
    progress: Callable[[str, Progress], None] | None, figure: PublishedFigure
) -> Callable[[Progress], None] | None:
    if progress is None:
        return None
    return lambda now: progress(figure.name, now)


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
