"""What was on the air: frames with their kind, and who lost them; frames that were given up."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.lab.play.events import EventIndex
from roamcast.lab.play.packing import Columns, Numbers
from roamcast.lab.play.window import Window
from roamcast.lab.report.markup import visible
from roamcast.trace import Dropped, Transmitted

FRAMES_MAX = 300_000  # chosen by us: 3 MB of the page's 10
DROPS_MAX = 50_000
NONE = -1


def pack_frames(
    columns: Columns, tables: Mapping[str, pa.Table], window: Window, events: EventIndex, notes: list[str]
) -> dict[str, Any]:
    """Columns `frame.*` by time; those in range that lost it are flat in `collided.*` and `faded.*`. An
    addressee or event of 0 is none; others are one more than their place."""
    table = tables[Transmitted.TABLE]
    table = table.filter(pa.array(window.contains(table["t"].to_numpy())))
    if not _is_sorted(table["t"].to_numpy()):
        table = table.sort_by("t")
    found = len(table)
    if found > FRAMES_MAX:
        step = -(-found // FRAMES_MAX)
        table = table.take(pa.array(np.arange(0, found, step)))
        notes.append(
            f"Left out to keep this file small: of {found:,} frames one in {step} is drawn. The curves "
            "count all of them; --from and --until show a shorter time in full."
        )
    messages = pc.unique(pc.binary_join_element_wise(table["kind"], table["message"], " ")).to_pylist()
    names = sorted(messages)
    joined = pc.binary_join_element_wise(table["kind"], table["message"], " ")
    columns.whole("frame.t", window.ticks(table["t"].to_numpy()))
    columns.whole("frame.node", window.places(table["node"].to_numpy()))
    columns.whole("frame.to", _optional_places(table["to"], window))
    columns.whole("frame.message", pc.index_in(joined, pa.array(names, pa.string())).to_numpy())
    columns.whole("frame.air", np.minimum(table["airtime"].to_numpy() // window.tick, 2**31))
    columns.whole("frame.event", _events(table, events) + 1)
    for field in ("collided", "faded"):
        lists = table[field].combine_chunks()
        columns.whole(f"{field}.first", _offsets(lists))
        columns.whole(f"{field}.node", window.places(lists.flatten().to_numpy()))
    return {"messages": [_message(name) for name in names]} | _pack_drops(
        columns, tables, window, events, notes
    )


def _pack_drops(
    columns: Columns, tables: Mapping[str, pa.Table], window: Window, events: EventIndex, notes: list[str]
) -> dict[str, Any]:
    table = tables[Dropped.TABLE]
    table = table.filter(pa.array(window.contains(table["t"].to_numpy()))).sort_by("t")
    if len(table) > DROPS_MAX:
        notes.append(f"Of {len(table):,} frames and events that nodes gave up, {DROPS_MAX:,} are drawn.")
        table = table.slice(0, DROPS_MAX)
    reasons = sorted(pc.unique(table["reason"]).to_pylist())
    columns.whole("drop.t", window.ticks(table["t"].to_numpy()))
    columns.whole("drop.node", window.places(table["node"].to_numpy()))
    columns.whole("drop.reason", pc.index_in(table["reason"], pa.array(reasons, pa.string())).to_numpy())
    columns.whole("drop.event", _events(table, events) + 1)
    return {"dropReasons": [visible(reason) for reason in reasons]}


def _events(table: pa.Table, events: EventIndex) -> Numbers:
    """The places of the events that rows name; -1 for none."""
    publisher = pc.fill_null(table["publisher"], NONE).to_numpy().astype(np.int64)
    sequence = pc.fill_null(table["sequence"], NONE).to_numpy().astype(np.int64)
    return np.where(sequence == NONE, NONE, events.places(publisher, sequence))


def _optional_places(column: pa.ChunkedArray, window: Window) -> Numbers:
    filled = pc.fill_null(column, NONE).to_numpy().astype(np.int64)
    return np.where(filled == NONE, 0, window.places(filled) + 1)


def _offsets(lists: pa.ListArray) -> Numbers:
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return np.concatenate([[0], np.cumsum(lengths)])


def _is_sorted(times: Numbers) -> bool:
    return bool(np.all(times[1:] >= times[:-1]))


def _message(joined: str) -> dict[str, str]:
    kind, _, name = joined.partition(" ")
    return {"kind": visible(kind), "name": visible(name)}
