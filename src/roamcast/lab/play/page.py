"""From a run's tables to what the page is given (a head and columns, one text), and to the page itself: one
file with the runs' content, the script and the style inside. It needs nothing else.

The page's time is in ticks from the beginning of the part that is shown; a tick is a microsecond unless the
part is longer than an hour. Nodes are numbered without gaps; `labels` has their own numbers or names.

Curves over time are computed from all rows of a run, whatever the page leaves out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.errors import InputError, RoamcastError
from roamcast.event import EventId
from roamcast.lab.play.changes import pack_changes
from roamcast.lab.play.events import EventIndex, pack_events, pack_frames, shown_events
from roamcast.lab.play.motion import pack_motion
from roamcast.lab.play.packing import Columns, Numbers, Window
from roamcast.lab.play.source import PlayedRun
from roamcast.lab.report.markup import Markup, element, escaped, visible
from roamcast.lab.run.graph import ContactGraph
from roamcast.lab.run.limit import best_trees
from roamcast.lab.run.tables import NODE_COLUMNS, Expected, records
from roamcast.lab.why.inquest import Examined, examine
from roamcast.pages import asset, bundle, policy
from roamcast.scenario import Scenario, scenario_from
from roamcast.trace import Delivered, FaultHappened, LinkChanged, Published, Transmitted
from roamcast.units import SECOND, micros, seconds
from roamcast.world.reach import members

POINTS = 200  # of a curve: more than a timeline has room for; chosen by us

Shares = npt.NDArray[np.float64]


def over_time(tables: Mapping[str, pa.Table], window: Window) -> dict[str, Any]:
    """For each span of the window: deliveries expected of the events published in it, and those that
    happened; seconds on the air per second, of all nodes; octets per second of control and data; parts of the
    network."""
    edges = np.linspace(window.begin, window.end, POINTS + 1)
    span = (window.end - window.begin) / POINTS / SECOND
    frames = tables[Transmitted.TABLE]
    t, size, airtime = (frames[name].to_numpy() for name in ("t", "size", "airtime"))
    control = pc.equal(frames["kind"], "control").to_numpy()
    expected, delivered = _pairs(tables, edges)
    return {
        "expected": expected.tolist(),
        "delivered": delivered.tolist(),
        "airtime": _rounded(np.histogram(t, edges, weights=airtime)[0] / SECOND / span),
        "control": _rounded(np.histogram(t, edges, weights=np.where(control, size, 0))[0] / span),
        "data": _rounded(np.histogram(t, edges, weights=np.where(control, 0, size))[0] / span),
        "parts": _parts(tables, edges, window),
    }


def _pairs(tables: Mapping[str, pa.Table], edges: Shares) -> tuple[Numbers, Numbers]:
    """Expected pairs by the span in which their event was published, and those of them that were served."""
    events = EventIndex(records(tables, Published))
    published = np.array([p.t for p in events.publications], dtype=np.int64)
    expected = tables[Expected.TABLE]
    pairs = _keys(expected, events)
    delivered = tables[Delivered.TABLE].filter(pc.field("matched"))
    served = np.isin(pairs, _keys(delivered, events))
    times = published[pairs // _NODES] if len(pairs) else np.zeros(0)
    return np.histogram(times, edges)[0], np.histogram(times[served], edges)[0]


_NODES = 2**32


def _keys(table: pa.Table, events: EventIndex) -> Numbers:
    columns = (table[name].to_numpy().astype(np.int64) for name in ("publisher", "sequence", "node"))
    publisher, sequence, node = columns
    place = events.places(publisher, sequence)
    keys: Numbers = (place * _NODES + node)[place >= 0]
    return keys


def _parts(tables: Mapping[str, pa.Table], edges: Shares, window: Window) -> list[int]:
    """Into how many parts the radio links divide the nodes that are up, in the middle of each span."""
    faults = records(tables, FaultHappened)
    links = records(tables, LinkChanged)
    if not links:
        return []
    graph = ContactGraph(links, faults)
    found: list[int] = []
    epoch = -1
    for middle in ((edges[1:] + edges[:-1]) / 2).astype(np.int64).tolist():
        graph.advance(middle)
        if graph.epoch == epoch:
            found.append(found[-1])
            continue
        epoch = graph.epoch
        left = set(window.nodes.tolist()).difference(members(graph.down))
        count = 0
        while left:
            left -= graph.distances(min(left)).keys()
            count += 1
        found.append(count)
    return found


def _rounded(values: Shares) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]


FORMAT = 1


@dataclass(frozen=True)
class Selection:
    """Which part of a run is shown. Times in seconds; None: from the beginning, to the end."""

    since: float | None = None
    until: float | None = None
    event: EventId | None = None  # is not thinned out


WHOLE = Selection()


def content(run: PlayedRun, selection: Selection = WHOLE, examined: Examined | None = None) -> str:
    """All that the page needs of a run. `examined` saves asking `why` again."""
    window = _window(run, selection)
    columns, notes = Columns(), list(run.remarks)
    scenario = _scenario(run)
    if selection.since is not None or selection.until is not None:
        begin, end, whole = (seconds(t) for t in (window.begin, window.end, run.info.duration))
        notes.append(f"Shown are {begin:g} s to {end:g} s of {whole:g} s.")
    head: dict[str, Any] = {
        "format": FORMAT,
        "name": visible(run.info.name),
        "strategy": visible(run.info.strategy),
        "seed": run.info.seed,
        "runtime": run.info.runtime,
        "begin": window.begin,
        "end": window.end,
        "tick": window.tick,
        "warmup": run.info.warmup,
        "labels": [visible(run.names.get(node, str(node))) for node in window.nodes.tolist()],
    }
    examined = examined or examine(run.tables, run.info)
    head |= pack_motion(columns, run.tables, window, scenario, notes)
    head |= pack_changes(columns, run.tables, window, run.info.brokers)
    events = shown_events(run.tables, window, selection.event, notes)
    best = best_trees(run.tables, run.info, selection.event)
    head |= pack_events(columns, run.tables, window, events, examined, best)
    head |= pack_frames(columns, run.tables, window, events, notes)
    head["series"] = over_time(run.tables, window)
    return columns.packed(head | {"notes": [visible(note) for note in notes]})


def _window(run: PlayedRun, selection: Selection) -> Window:
    begin = 0 if selection.since is None else micros(selection.since)
    end = run.info.duration if selection.until is None else min(micros(selection.until), run.info.duration)
    if not 0 <= begin < max(end, 1):
        shown = f"{seconds(begin):g} to {seconds(end):g}"
        allowed = f"a part of 0 to {seconds(run.info.duration):g} s"
        raise InputError("--from, --until", f"are {shown} s; allowed: {allowed}")
    return Window(begin, max(end, begin + 1), numbers(run))


def numbers(run: PlayedRun) -> Numbers:
    """The numbers of all nodes, increasing: those that the run has, and those that any row names."""
    numbered = [] if run.info.runtime == "live" else range(run.info.nodes)
    return np.union1d(_named(run.tables), np.array(numbered, dtype=np.int64))


def _named(tables: Mapping[str, pa.Table]) -> Numbers:
    """The numbers of all nodes that any row names."""
    found = [
        table[name].drop_null().unique().to_numpy().astype(np.int64)
        for table in tables.values()
        for name in NODE_COLUMNS.intersection(table.column_names)
    ]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found]))


def _scenario(run: PlayedRun) -> Scenario | None:
    """The world of the run, as far as its description suffices: files that it names may be elsewhere now. No
    module of its is loaded: a folder may come from a stranger."""
    if not run.info.scenario:
        return None
    try:
        return scenario_from(run.info.scenario, loads_modules=False)
    except RoamcastError:
        return None


TOO_OLD = (
    "This page draws a run with JavaScript. If nothing else appears, the browser runs no scripts or is too "
    "old: Firefox 113, Chrome 80, Safari 16.4 or any newer one will do."
)


def render(title: str, contents: Sequence[str], start: str = "") -> str:
    """The document. `contents`: one text per run (`content`); `start`: what stands for the part after `#`
    of an address that has none."""
    script = bundle("player.js")
    runs = "\n".join(f'<script type="application/x-roamcast-run">{text}</script>' for text in contents)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy([script]))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>{asset('player.css')}</style>\n</head>\n"
        f'<body data-start="{escaped(start)}">\n'
        f"{element('p', TOO_OLD, id='old')}\n{Markup(runs)}\n"
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )
