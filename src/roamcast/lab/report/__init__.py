"""The report of a sweep: one HTML file that needs nothing else.

Read in this order: `layout` (what is compared, what is plotted), `statistics` and `comparison` (significance
tests), `plots` (SVG), `markup` (escaping and style), `page` (the document) with its sections `cells`,
`figures` and `findings`, all about one `subject`. A page depends on the sweep's tables alone: the same tables
give the same bytes. `docs/study/report.md` is the users' page.
"""

from pathlib import Path

from roamcast.errors import FileError
from roamcast.lab.sweep.results import read_results

NAME = "report.html"


def report(folder: Path, out: Path | None = None) -> Path:
    """Write the report of a sweep's folder; by default inside it. Gives the file's path."""
    results = read_results(folder)
    from roamcast.lab.report.page import render  # here: a bad folder is refused before matplotlib loads

    return place(render(results), out or folder / NAME)


def place(text: str, target: Path) -> Path:
    """Write a page atomically: whole or not at all."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise FileError(str(target), f"cannot be written: {error.strerror or error}") from error
    return target
