"""Curves over the time of a run, from all of its rows, whatever the page leaves out."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.lab.play.events import EventIndex
from roamcast.lab.play.packing import Numbers, Window
from roamcast.lab.run.graph import ContactGraph
from roamcast.lab.run.tables import Expected, records
from roamcast.trace import Delivered, FaultHappened, LinkChanged, Published, Transmitted
from roamcast.units import SECOND
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
