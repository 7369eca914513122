"""What stood from when to when: radio links, links of the overlay, roles, homes, nodes that were down."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.lab.play.packing import Columns, Numbers, Window
from roamcast.lab.run.tables import records
from roamcast.trace import FaultHappened, HandedOff, LinkChanged, OverlayChanged
from roamcast.units import Micros, NodeId

LISTED_MAX = 5_000  # faults and handoffs that the page lists; chosen by us
ROLES_MAX = 30  # names of roles; the page has a bit for each
Interval = tuple[Any, Micros, Micros]


def pack_changes(
    columns: Columns, tables: Mapping[str, pa.Table], window: Window, brokers: Iterable[NodeId]
) -> dict[str, Any]:
    """Columns `link.*`, `over.*`, `role.*`, `home.*` and `down.*`; faults and handoffs as lists."""
    faults = records(tables, FaultHappened)
    overlay = records(tables, OverlayChanged)
    handoffs = records(tables, HandedOff)
    _pack_pairs(columns, "link", _radio(tables, window), window)
    _pack_pairs(columns, "over", _overlay_links(overlay, faults, window), window)
    _pack_pairs(columns, "home", _homes(handoffs, window), window)
    down = _states(
        ((f.t, f.node, f.kind == "crash") for f in faults if f.kind in ("crash", "restart")), window
    )
    _pack(columns, "down", {"node": [window.place(node) for node, *_ in down]}, down, window)
    roles = _roles(overlay, window)
    named = sorted({role for (_, role), *_ in roles})[:ROLES_MAX]
    roles = [row for row in roles if row[0][1] in named]
    _pack(
        columns,
        "role",
        {
            "node": [window.place(node) for (node, _), *_ in roles],
            "role": [named.index(role) for (_, role), *_ in roles],
        },
        roles,
        window,
    )
    given = sorted(set(brokers))
    fixed = given if 0 < len(given) < len(window.nodes) else []  # where every node is one, none stands out
    shown_faults = [f for f in faults if window.begin <= f.t <= window.end][:LISTED_MAX]
    shown_handoffs = [h for h in handoffs if window.begin <= h.t <= window.end][:LISTED_MAX]
    return {
        "roles": named,
        "brokers": [] if "broker" in named else [window.place(node) for node in fixed],
        "faults": [
            [
                int(window.ticks(f.t)),
                f.kind,
                window.place(f.node),
                None if f.peer is None else window.place(f.peer),
            ]
            for f in shown_faults
        ],
        "handoffs": [
            [int(window.ticks(h.t)), *(window.place(n) for n in (h.node, h.source, h.destination)), h.outcome]
            for h in shown_handoffs
        ],
    }


def link_intervals(
    tables: Mapping[str, pa.Table], window: Window
) -> Iterator[tuple[Numbers, Numbers, Numbers, Numbers]]:
    """Places of both ends, begin and end, of radio links and of overlay links."""
    faults = records(tables, FaultHappened)
    overlay = _overlay_links(records(tables, OverlayChanged), faults, window)
    for found in (_radio(tables, window), overlay):
        rows = [(window.place(a), window.place(b), begin, end) for (a, b, _), begin, end in found]
        if rows:
            a, b, begin, end = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
            yield a, b, begin, end


def _radio(tables: Mapping[str, pa.Table], window: Window) -> list[Interval]:
    """By pair, the lower number first; the third of a key is 1 while only one of them hears the other."""
    hears: dict[tuple[NodeId, NodeId], bool] = {}
    changes: list[tuple[Micros, Hashable, bool]] = []
    for change in records(tables, LinkChanged):
        a, b = sorted((change.sender, change.receiver))
        before = hears.get((a, b), False), hears.get((b, a), False)
        for sender, receiver in ((change.sender, change.receiver), (change.receiver, change.sender))[
            : 1 + change.both
        ]:
            hears[sender, receiver] = change.up
        after = hears.get((a, b), False), hears.get((b, a), False)
        for state, key in ((all, (a, b, 0)), (lambda pair: pair[0] != pair[1], (a, b, 1))):
            if state(before) != state(after):
                changes.append((change.t, key, state(after)))
    return _states(changes, window)


def _overlay_links(
    overlay: Iterable[OverlayChanged], faults: Iterable[FaultHappened], window: Window
) -> list[Interval]:
    """An overlay's link stands while one end says so; a node that crashes says nothing any more."""
    said: dict[tuple[NodeId, NodeId, int], set[NodeId]] = {}
    changes: list[tuple[Micros, Hashable, bool]] = []

    def say(t: Micros, key: tuple[NodeId, NodeId, int], node: NodeId, up: bool) -> None:
        holders = said.setdefault(key, set())
        stood = bool(holders)
        (holders.add if up else holders.discard)(node)
        if stood != bool(holders):
            changes.append((t, key, not stood))

    crashes = [f for f in faults if f.kind == "crash"]
    both: list[OverlayChanged | FaultHappened] = [*overlay, *crashes]
    for record in sorted(both, key=lambda record: record.t):
        if isinstance(record, FaultHappened):
            for key in [key for key, holders in said.items() if record.node in holders]:
                say(record.t, key, record.node, False)
        elif record.peer is not None and record.change in _LINK_CHANGES:
            up, kind = _LINK_CHANGES[record.change]
            a, b = sorted((record.node, record.peer))
            say(record.t, (a, b, kind), record.node, up)
    return _states(changes, window)


_LINK_CHANGES = {
    "link_up": (True, 0),
    "link_down": (False, 0),
    "neighbour_up": (True, 1),
    "neighbour_down": (False, 1),
}
"""Whether it stands, and of which kind: 0 of a tree, 1 of an overlay with cycles."""


def _roles(overlay: Iterable[OverlayChanged], window: Window) -> list[Interval]:
    return _states(
        (
            (change.t, (change.node, change.role), change.change == "role_on")
            for change in overlay
            if change.change in ("role_on", "role_off")
        ),
        window,
    )


def _homes(handoffs: Iterable[HandedOff], window: Window) -> list[Interval]:
    """A client is at home where its last handoff brought it; before its first, at the broker that it left."""
    found: list[Interval] = []
    since: dict[NodeId, tuple[Micros, NodeId]] = {}
    for handoff in handoffs:
        if handoff.outcome in ("moved", "resumed"):
            begin, home = since.get(handoff.node, (0, handoff.source))
            found.append(((handoff.node, home, 0), begin, handoff.t))
            since[handoff.node] = (handoff.t, handoff.destination)
    found += [((node, home, 0), begin, window.end) for node, (begin, home) in since.items()]
    return [row for row in found if row[2] >= window.begin and row[1] <= window.end]


def _states(changes: Iterable[tuple[Micros, Any, bool]], window: Window) -> list[Interval]:
    """From changes in the order of time to intervals, by their beginning."""
    since: dict[Any, Micros] = {}
    found: list[Interval] = []
    for t, key, up in changes:
        if up:
            since.setdefault(key, t)
        elif key in since:
            found.append((key, since.pop(key), t))
    found += [(key, begin, window.end) for key, begin in since.items()]
    kept = [row for row in found if row[2] >= window.begin and row[1] <= window.end]
    return sorted(kept, key=lambda row: (row[1], row[2], row[0]))


def _pack_pairs(columns: Columns, name: str, found: list[Interval], window: Window) -> None:
    pairs = {
        "a": [window.place(a) for (a, _, _), *_ in found],
        "b": [window.place(b) for (_, b, _), *_ in found],
        "kind": [kind for (_, _, kind), *_ in found],
    }
    _pack(columns, name, pairs, found, window)


def _pack(
    columns: Columns, name: str, of_key: Mapping[str, list[int]], found: list[Interval], window: Window
) -> None:
    begins, ends = window.ticks([begin for _, begin, _ in found]), window.ticks([end for *_, end in found])
    columns.whole(name, {**of_key, "from": begins, "to": ends})
