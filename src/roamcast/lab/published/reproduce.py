"""Sweep the chosen figures, apply their rules, write what came out."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from roamcast.errors import InputError
from roamcast.lab.published import FigureRow, PublishedFigure, rows, selected
from roamcast.lab.published.figure import FOLDER, PROFILES
from roamcast.lab.report import place, report
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
    from roamcast.lab.published.page import render

    page = place(render(found, profile, failed), whole, PAGE_NAME)
    return Reproduction(all_rows, failed, page)


def _named(
    progress: Callable[[str, Progress], None] | None, figure: PublishedFigure
) -> Callable[[Progress], None] | None:
    if progress is None:
        return None
    return lambda now: progress(figure.name, now)
