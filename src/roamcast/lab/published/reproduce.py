"""Sweep the chosen figures until their verdicts are decided, and write what came out: rows, and pages."""

import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import TypeAlias

import msgspec

from roamcast import __version__
from roamcast.errors import FileError, InputError
from roamcast.lab.published import FigureRow, PublishedFigure, rows, selected
from roamcast.lab.published.agreement import undecided_cells
from roamcast.lab.published.figure import FOLDER, PROFILES
from roamcast.lab.published.standing import markdown, sentence, standing
from roamcast.lab.report import NAME as REPORT_NAME
from roamcast.lab.report import markdown_table, place, put_between, report
from roamcast.lab.report.markup import Markup, element, joined, page, section, table
from roamcast.lab.report.numbers import numbered
from roamcast.lab.report.sections import published_table
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.experiment import Experiment
from roamcast.lab.sweep.results import Results
from roamcast.lab.sweep.sweep import GROWTH, Growth, Progress, Sweep, run_sweeps

JSON_NAME = "reproduction.json"
PAGE_NAME = "reproduction.html"
PACKAGE = FOLDER.parents[1]
Found: TypeAlias = list[tuple[PublishedFigure, list[FigureRow]]]
CORES = 2  # that the estimate is told for, and profiles are made for


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` computed. Disagreement is a result, not a failure; a failed run is a failure."""

    rows: list[FigureRow]
    failed: int  # runs
    page: str

    @property
    def counts(self) -> tuple[list[str], list[list[str]]]:
        return standing(self.rows)

    def to_line(self) -> str:
        """The last line that the command prints."""
        line = sentence(self.rows)
        return f"{line}; {self.failed} runs failed" if self.failed else line


@dataclass(frozen=True)
class UntilDecided:
    """Seeds are added to the cells of verdicts that are undecided, twice as many each time, up to a cap."""

    figure: PublishedFigure
    profile: str
    seeds_first: int
    seeds: tuple[int, ...]  # all that a cell may have

    def begun(self, experiment: Experiment) -> tuple[Experiment, Growth]:
        return replace(experiment, seeds=self.seeds), self

    def wanted(self, counts: list[int], results: Results) -> list[int]:
        undecided = undecided_cells(self.figure, self.profile, results)
        most = len(self.seeds)
        return [
            min(GROWTH * count, most) if cell in undecided else count for cell, count in enumerate(counts)
        ]

    @property
    def cost(self) -> tuple[int, int, float]:
        """Runs at first and at most, and the processor seconds of one."""
        axes = self.figure.experiment(self.profile).axes
        counted = [quantity for quantity in self.figure.quantities(self.profile) if not quantity.extra]
        growing = len(set[int]().union(*(quantity.cells(axes) for quantity in counted)))
        first = self.seeds_first * prod(map(len, axes.values()))
        return (
            first,
            first + growing * (len(self.seeds) - self.seeds_first),
            self.figure.settings(self.profile).run_seconds,
        )


def planned(
    figures: Sequence[PublishedFigure], profile: str, seed: int | None, seeds: int | None
) -> list[UntilDecided]:
    """Which seeds each figure gets: from `seed` on, else from the file's own; `seeds` at most, else the
    profile's cap."""
    made = []
    for figure in figures:
        settings = figure.settings(profile)
        first = figure.experiment(profile).seeds[0] if seed is None else seed
        most = settings.replications_max or settings.replications if seeds is None else seeds
        made.append(
            UntilDecided(figure, profile, min(settings.replications, most), tuple(range(first, first + most)))
        )
    return made


def estimate(plans: Sequence[UntilDecided]) -> str:
    """How long it will take, from the processor time that a run of each figure takes."""
    costs = [plan.cost for plan in plans]
    least, most = (sum(cost[at] * cost[2] for cost in costs) / 60 / CORES for at in (0, 1))
    return (
        f"{sum(cost[0] for cost in costs):,} runs, about {least:.0f} minutes on {CORES} cores; "
        f"at most {sum(cost[1] for cost in costs):,} runs, {most:.0f} minutes, where undecided verdicts "
        f"get more seeds (up to {max(len(plan.seeds) for plan in plans)} in a cell)"
    )


def reproduce(
    selection: str | None,
    profile: str,
    out: Storage | Path | str,
    master: str | None = None,
    progress: Callable[[str, Progress], None] | None = None,
    published: Path = FOLDER,
    *,
    seed: int | None = None,
    seeds: int | None = None,
    resume: bool = False,
    anew: bool = False,
    tell: Callable[[str], None] | None = None,
    results_page: Path | None = None,
    counts_page: Path | None = None,
    beside: Sequence[Path] = (),
) -> Reproduction:
    """Run `PAPER`, `PAPER/FIGURE` or everything into `out`.

    The runs of all figures are one set of tasks. Each sweep lies in `out/<paper>/<figure>/`, with its own
    report. A folder holds one profile. `tell` hears the estimate. `results_page`: the Markdown too.
    `counts_page`: put the counts by work between its markers. `beside`: the `reproduction.json` of other
    calls, whose rows go into both where this call has not the same figure. What an interrupted call has is
    written all the same; `resume` goes on from there, and `anew` runs again what other code ran.
    """
    if profile not in PROFILES:
        raise InputError("profile", f"is {profile!r}; allowed: {', '.join(PROFILES)}")
    if seeds is not None and seeds < 2:
        raise InputError("--seeds", f"is {seeds}; allowed: at least 2, or nothing can be decided")
    plans = planned(selected(selection, published), profile, seed, seeds)
    if tell is not None:
        tell(estimate(plans))
    of_others = rows_in(beside, published)
    by = commit()
    whole = Storage.open(out)
    sweeps = [
        Sweep(
            plan.figure.experiment(profile),
            whole.folder(plan.figure.name),
            resume,
            replication=plan,
            run_seconds=plan.figure.settings(profile).run_seconds,
            anew=anew,
            master=master,
        )
        for plan in plans
    ]

    def write(failed: int) -> Reproduction:
        found = [
            (plan.figure, [msgspec.structs.replace(row, commit=by) for row in of_figure])
            for plan, made in zip(plans, sweeps, strict=True)
            for of_figure in [rows(plan.figure, profile, made.results())]
        ]
        all_rows = _rows(found)
        place(msgspec.json.format(msgspec.json.encode(all_rows), indent=2).decode() + "\n", whole, JSON_NAME)
        written = place(render(found, made_by(all_rows), failed), whole, PAGE_NAME)
        has_run = any(row.ours is not None for row in all_rows)  # else a page that stands is not overwritten
        mine = {figure.name for figure, _ in found}
        found += [each for each in of_others if each[0].name not in mine]
        found.sort(key=lambda each: each[0].name)
        if results_page is not None and has_run:
            place(markdown(found, made_by(_rows(found))), *Storage.of_file(results_page))
        if counts_page is not None and has_run:
            put_between(markdown_table(*standing(_rows(found))) + "\n", counts_page, "reproduction")
        return Reproduction(all_rows, failed, written)

    with ExitStack() as held:
        for made in sweeps:
            held.enter_context(made)
        try:
            with ExitStack() as watches:
                for plan, made in zip(plans, sweeps, strict=True):
                    watches.enter_context(made.watched(_named(progress, plan.figure)))
                run_sweeps(master, sweeps)
        except BaseException:  # also when the user interrupts it
            write(0)
            raise
        failed = sum(made.finish(master).failed for made in sweeps)
        for made in sweeps:
            report(made.folder.storage)
        return write(failed)


def _rows(found: Found) -> list[FigureRow]:
    return [row for _, of_figure in found for row in of_figure]


def _named(
    progress: Callable[[str, Progress], None] | None, figure: PublishedFigure
) -> Callable[[Progress], None] | None:
    if progress is None:
        return None
    return lambda now: progress(figure.name, now)


def made_by(rows: Sequence[FigureRow]) -> str:
    """Version and date; by work, the profiles, commits and seeds."""
    parts = [f"Roamcast {__version__}; {datetime.now(UTC).date().isoformat()}."]
    for work in dict.fromkeys(row.work for row in rows):
        mine = [row for row in rows if row.work == work and row.seeds]
        commits = " and ".join(dict.fromkeys(row.commit for row in mine))
        profiles = " and ".join(dict.fromkeys(f"`{row.profile}`" for row in mine))
        seeds = numbered(sorted({seed for row in mine for seed in row.seeds}))
        ran = f"profile {profiles}, commit {commits}, seeds {seeds}"
        parts.append(f"{work}: {ran if mine else 'not run'}.")
    return " ".join(parts)


def rows_in(files: Sequence[Path], published: Path) -> Found:
    """What earlier calls found, from their `reproduction.json`."""
    found: dict[str, list[FigureRow]] = {}
    for file in files:
        try:
            rows = msgspec.json.decode(file.read_bytes(), type=list[FigureRow])
        except (OSError, msgspec.MsgspecError) as error:
            raise FileError(str(file), f"holds no rows: {error}") from error
        for name in {f"{row.paper}/{row.figure}" for row in rows}:
            found[name] = [row for row in rows if f"{row.paper}/{row.figure}" == name]
    return [(selected(name, published)[0], rows) for name, rows in found.items()]


def commit() -> str:
    """Of the source that runs, and whether it was changed since; an installed package has none."""
    command = ["git", "-C", str(PACKAGE), "status", "--porcelain=v2", "--branch", "."]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    head, *rest = ended.stdout.splitlines()
    changed = any(not line.startswith("#") for line in rest)
    return f"{head.split()[-1][:12]}{' with changes' if changed else ''}"


def render(found: Sequence[tuple[PublishedFigure, Sequence[FigureRow]]], made: str, failed: int) -> str:
    """The whole document."""
    rows = [row for _, of_figure in found for row in of_figure]
    return page(
        "Reproduction · Roamcast",
        element("h1", "Published figures, ours beside theirs"),
        element("p", f"{sentence(rows)}.", class_="lead"),
        table(*standing(rows), texts=2),
        element("p", made, f" {failed} runs failed." if failed else "", class_="note"),
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
        "Ours is the mean over the seeds, with Student’s 95% confidence interval. A published number agrees "
        "when the interval reaches into the tolerance beside it, which is how exactly it can be read, and is "
        "narrow: half of it at most 5% of the number. It differs when the whole interval lies outside, and "
        "is undecided when the interval is too wide. A claim holds when the whole interval does.",
        "For an order (smallest first), ours is the step between neighbours that decides, and must be above "
        "0. Of what grows or falls, ours is the slope of the least-squares line; of what is linear, its R².",
        "What is extra is ours: no number or claim of the work, or one that counts elsewhere.",
    ]
    return section("How to read this", *(element("p", text) for text in texts))
