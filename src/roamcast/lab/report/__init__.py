"""The report of a sweep: one HTML file that needs nothing else.

Read in this order: `layout` (what is compared, what is plotted), `statistics` (significance tests), `verdict`
(who serves best), `samples` (what comes from the runs themselves), `figures` (the sweep, and figures as data;
`pages/chart.js` draws them), `markup` (escaping and style), `page` (the document) with its `sections`;
`plots` writes figures for a paper. A page depends on the sweep's tables alone: the same tables give the same
bytes. `docs/study/report.md` is the users' page.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from roamcast.errors import FileError
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.results import read_results

NAME = "report.html"


def report(
    folder: Storage | Path | str,
    out: Storage | Path | str | None = None,
    *,
    plays: bool = False,
    figures: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> str:
    """Write the report of a sweep's folder; by default inside it. Gives the file's name. `plays`: also a
    page that plays for one run of each cell, in a folder `play` beside it. `figures`: also each figure as
    SVG and CSV here."""
    results = read_results(folder)
    from roamcast.lab.report.layout import layout  # here: a bad folder is refused before all this loads
    from roamcast.lab.report.page import with_figures
    from roamcast.lab.report.samples import take_samples

    place_of, name = (Storage.open(folder), NAME) if out is None else Storage.of_file(out)
    samples = take_samples(Storage.open(folder), results, layout(results.description.axes))
    text, drawn = with_figures(results, samples, plays)
    written = place(text, place_of, name)
    if plays:
        from roamcast.lab.play import page_of_run

        for at, (cell, run) in enumerate(samples.names.items()):
            place_of.write(f"play/{run}.html", page_of_run(*samples.played[cell]).encode())
            if progress is not None:
                progress("pages that play", at + 1, len(samples.names))
    if figures is not None:
        from roamcast.lab.report.plots import write_figures

        write_figures(drawn, figures)
    return written


def place(text: str, folder: Storage, name: str) -> str:
    """Write a page: whole or not at all. Gives its full name."""
    folder.write(name, text.encode())
    return folder.name(name)


def put_between(text: str, file: Path, name: str) -> None:
    """Write a part of a page that people write otherwise: between its two markers."""
    page = file.read_text(encoding="utf-8")
    markers = re.compile(rf"(<!-- {name}: begin[^>]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    if not markers.search(page):
        raise FileError(str(file), f"has no lines `<!-- {name}: begin -->` and `<!-- {name}: end -->`")
    file.write_text(markers.sub(lambda found: found[1] + text + found[2], page), encoding="utf-8")


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        f"| {' | '.join(map(_in_a_cell, line))} |" for line in (heads, ["---"] * len(heads), *rows)
    )


def _in_a_cell(text: str) -> str:
    """Escape a text for a cell of a table: it may come from others' files."""
    return " ".join(text.replace("|", "/").replace("<", "‹").split())
