"""Sweep the chosen figures, apply their rules, write what came out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from roamcast.errors import FileError, InputError
from roamcast.lab.published import FigureRow, PublishedFigure, rows, selected
from roamcast.lab.published.figure import FOLDER, PROFILES
from roamcast.lab.published.study import Study, study_results
from roamcast.lab.report import place, report
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import Progress, sweep

JSON_NAME = "reproduction.json"
STUDY_NAME = "study.json"
PAGE_NAME = "reproduction.html"


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` computed. Disagreement is a result, not a failure; a failed run is a failure."""

    rows: list[FigureRow]
    failed: int  # runs
    page: Path

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
    out: Path,
    master: str | None = None,
    progress: Callable[[str, Progress], None] | None = None,
    published: Path = FOLDER,
) -> Reproduction:
    """Run `PAPER`, `PAPER/FIGURE` or everything into `out`; runs that are there already are not repeated.

    Sweeps lie in `out/<paper>/<figure>/`, each with its own report. A folder holds one profile.
    """
    if profile not in PROFILES:
        raise InputError("profile", f"is {profile!r}; allowed: {', '.join(PROFILES)}")
    figures = selected(selection, published)
    found: list[tuple[PublishedFigure, list[FigureRow]]] = []
    failed = 0
    for figure in figures:
        folder = out / figure.paper / figure.figure
        if figure.study is not None:
            found.append((figure, _studied(figure, figure.study, profile, folder, _named(progress, figure))))
            continue
        ended = sweep(
            figure.experiment(profile), folder, master=master, resume=True, progress=_named(progress, figure)
        )
        failed += ended.failed
        found.append((figure, rows(figure, profile, read_results(folder))))
        report(folder)
    all_rows = [row for _, of_figure in found for row in of_figure]
    place(msgspec.json.format(msgspec.json.encode(all_rows), indent=2).decode() + "\n", out / JSON_NAME)
    from roamcast.lab.published.page import render

    page = place(render(found, profile, failed), out / PAGE_NAME)
    return Reproduction(all_rows, failed, page)


def _studied(
    figure: PublishedFigure,
    study: Study,
    profile: str,
    folder: Path,
    progress: Callable[[Progress], None] | None,
) -> list[FigureRow]:
    """Run a study in this process; its results are kept in its folder."""
    kept = folder / STUDY_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        computed = kept.read_bytes() if kept.is_file() else None
    except OSError as error:
        raise FileError(str(folder), f"cannot be used: {error.strerror or error}") from None
    told = None if progress is None else lambda done, total: progress(Progress(done, 0, total, None))
    results, text = study_results(study, figure.experiment(profile), computed, told)
    place(text.decode(), kept)
    return rows(figure, profile, results)


def _named(
    progress: Callable[[str, Progress], None] | None, figure: PublishedFigure
) -> Callable[[Progress], None] | None:
    if progress is None:
        return None
    return lambda now: progress(figure.name, now)
