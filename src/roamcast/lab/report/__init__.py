"""The report of a sweep: one HTML file that needs nothing else.

Read in this order: `layout` (what is compared, what is plotted), `statistics` and `comparison` (significance
tests), `plots` (SVG), `markup` (escaping and style), `page` (the document) with its sections `cells`,
`figures` and `findings`, all about one `subject`. A page depends on the sweep's tables alone: the same tables
give the same bytes. `docs/study/report.md` is the users' page.
"""

from pathlib import Path

from roamcast.lab.storage import Storage
from roamcast.lab.sweep.results import read_results

NAME = "report.html"


def report(folder: Storage | Path | str, out: Storage | Path | str | None = None) -> str:
    """Write the report of a sweep's folder; by default inside it. Gives the file's name."""
    results = read_results(folder)
    from roamcast.lab.report.page import render  # here: a bad folder is refused before matplotlib loads

    text = render(results)
    if out is None:
        return place(text, Storage.open(folder), NAME)
    return place(text, *Storage.of_file(out))


def place(text: str, folder: Storage, name: str) -> str:
    """Write a page: whole or not at all. Gives its full name."""
    folder.write(name, text.encode())
    return folder.name(name)
