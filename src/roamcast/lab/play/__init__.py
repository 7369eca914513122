"""`roamcast play`: one or two runs as one self-contained page.

Read in this order: `source` (which run), `page` (tables to columns to the file: `motion`, `changes`, `events`
with their frames; curves over time), `layout` (places for nodes that have none), `packing`
(columns to text). The page itself is in `roamcast/pages`. `docs/study/play.md` is the users' page.
"""

from collections.abc import Sequence
from pathlib import Path

from roamcast.errors import InputError
from roamcast.event import EventId
from roamcast.lab.play.page import WHOLE, Selection, content, numbers, render
from roamcast.lab.play.source import PlayedRun
from roamcast.lab.storage import Storage
from roamcast.lab.why.answer import event_text
from roamcast.lab.why.inquest import Examined
from roamcast.units import NodeId

__all__ = ["PlayedRun", "Selection", "page_of_run", "play", "started_at"]


def play(
    runs: Sequence[PlayedRun],
    out: Storage | Path | str,
    selection: Selection = WHOLE,
    start: str = "",
) -> str:
    """Write the page of one run, or of two side by side. Gives the file's full name."""
    names = " and ".join(dict.fromkeys(f"{run.info.name}: {run.info.strategy}" for run in runs))
    text = render(f"{names} · Roamcast", [content(run, selection) for run in runs], start)
    folder, name = Storage.of_file(out)
    folder.write(name, text.encode())
    return folder.name(name)


def page_of_run(run: PlayedRun, examined: Examined) -> str:
    """The page of a run that was examined already."""
    return render(f"{run.info.name}: {run.info.strategy} · Roamcast", [content(run, examined=examined)])


def started_at(runs: Sequence[PlayedRun], event: EventId | None, node: NodeId | None) -> str:
    """What a page begins with, as the part of its address after `#`; refused if no run has it."""
    parts = []
    if event is not None:
        names = (run.tables["publications"].select(["publisher", "sequence"]).to_pylist() for run in runs)
        if not any({"publisher": event.publisher, "sequence": event.sequence} in found for found in names):
            raise InputError(f"event {event_text(event)}", "was not published in this run")
        parts.append(f"event={event_text(event)}")
    if node is not None:
        if not any(node in numbers(run) for run in runs):
            raise InputError(f"node {node}", "is not in this run")
        parts.append(f"node={next(run.names.get(node, str(node)) for run in runs)}")
    return "&".join(parts)
