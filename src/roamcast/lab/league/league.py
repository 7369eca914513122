"""`roamcast league`: run what is missing, judge, write the pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roamcast.lab.league.contest import contest
from roamcast.lab.league.page import LEADER_HEADS, RANK_HEADS, html, leader_rows, markdown, rank_rows
from roamcast.lab.league.standing import standing
from roamcast.lab.report import place
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import Progress, sweep

HTML_NAME = "league.html"
MARKDOWN_NAME = "league.md"


@dataclass(frozen=True)
class LeagueTables:
    """What the command prints: two tables, each its heads and rows, and where the page is."""

    leaders: tuple[list[str], list[list[str]]]
    ranks: tuple[list[str], list[list[str]]]
    failed: int  # runs
    page: str  # its file


def league(
    profile: str,
    out: Storage | Path | str,
    enter: Sequence[Path] = (),
    page: Path | None = None,
    master: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> LeagueTables:
    """Run the league into `out`; runs that are there already are not repeated.

    `page`: a further place for the Markdown.
    """
    entered = contest(profile, enter)
    ended = sweep(entered.experiment, out, master=master, resume=True, progress=progress)
    results = read_results(out)
    found = standing(results, entered.experiment.variants)
    text = markdown(entered, results, found)
    folder = Storage.open(out)
    place(text, folder, MARKDOWN_NAME)
    if page is not None:
        place(text, *Storage.of_file(page))
    written = place(html(entered, results, found), folder, HTML_NAME)
    return LeagueTables(
        (LEADER_HEADS, leader_rows(found)), (RANK_HEADS, rank_rows(found)), ended.failed, written
    )
