"""`roamcast play`: one or two runs as one self-contained page.

Read in this order: `source` (which run), `content` (tables to columns: `motion`, `changes`, `frames`, `events`),
`series` (curves over time), `layout` (places for nodes that have none), `packing` (columns to text), `page` (the
file). The page itself is in `roamcast/pages`. `docs/study/play.md` is the users' page.
"""

from collections.abc import Sequence
from pathlib import Path

from roamcast.lab.play.content import Selection, content
from roamcast.lab.play.page import render
from roamcast.lab.play.source import PlayedRun
from roamcast.lab.storage import Storage

__all__ = ["PlayedRun", "Selection", "play"]


def play(
    runs: Sequence[PlayedRun],
    out: Storage | Path | str,
    selection: Selection = Selection(),  # noqa: B008 (a value that never changes)
    start: str = "",
) -> str:
    """Write the page of one run, or of two side by side. Gives the file's full name."""
    names = " and ".join(dict.fromkeys(f"{run.info.name}: {run.info.strategy}" for run in runs))
    text = render(f"{names} · Roamcast", [content(run, selection) for run in runs], start)
    folder, name = Storage.of_file(out)
    folder.write(name, text.encode())
    return folder.name(name)
