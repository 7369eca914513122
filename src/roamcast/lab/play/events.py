"""The events of a run: who published what, who got it from whom and when, who missed it and why. And what was
on the air: frames with their kind, and who lost them; frames that were given up."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.chunks import MARK
from roamcast.event import EventId
from roamcast.lab.play.packing import Columns, Numbers, Window
from roamcast.lab.report.markup import visible
from roamcast.lab.run.limit import BestTree
from roamcast.lab.run.tables import Expected, records
from roamcast.lab.why.answer import Explanation
from roamcast.lab.why.inquest import Examined
from roamcast.trace import Delivered, Dropped, Published, Transmitted
from roamcast.wire.exchange import of_applications

PAIRS_MAX = 400_000  # of events and nodes that have them; chosen by us: 4 MB of the page's 10
TEXT_LENGTH_MAX = 120


class EventIndex:
    """The events that are shown, in the order of publication, and their places."""

    def __init__(self, publications: Sequence[Published]) -> None:
        self.publications = publications
        publisher = np.array([p.publisher for p in publications], dtype=np.int64)
        sequence = np.array([p.sequence for p in publications], dtype=np.int64)
        self._base = int(sequence.max(initial=0)) + 1
        keys = publisher * self._base + sequence
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def __len__(self) -> int:
        return len(self.publications)

    def places(self, publisher: Numbers, sequence: Numbers) -> Numbers:
        """Where events are in the list; -1 for one that is not shown."""
        if not len(self):
            return np.full(len(publisher), -1, dtype=np.int64)
        keys = np.where(sequence < self._base, publisher * self._base + sequence, -1)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        return np.where(self._keys[at] == keys, self._order[at], -1)


def shown_events(
    tables: Mapping[str, pa.Table], window: Window, wanted: EventId | None, notes: list[str]
) -> EventIndex:
    """All events of the window, or every so many where there are too many."""
    found = [p for p in records(tables, Published) if window.begin <= p.t <= window.end]
    found.sort(key=lambda p: (p.t, p.publisher, p.sequence))
    step = -(-len(tables[Expected.TABLE]) // PAIRS_MAX)
    if step > 1 and len(found) > 1:
        kept = [p for at, p in enumerate(found) if at % step == 0 or (p.publisher, p.sequence) == wanted]
        notes.append(
            f"Left out to keep this file small: of {len(found):,} events one in {step} is here. The "
            "curves count all of them; --from and --until show a shorter time in full."
        )
        return EventIndex(kept)
    return EventIndex(found)


def pack_events(
    columns: Columns,
    tables: Mapping[str, pa.Table],
    window: Window,
    events: EventIndex,
    examined: Examined,
    best: Mapping[EventId, BestTree],
) -> dict[str, Any]:
    """Columns `event.*`; `got.*`, `held.*`, `best.*` and `miss.*` by event, with `…first` where each event's
    begin."""
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        cut = value if len(value) <= TEXT_LENGTH_MAX else value[: TEXT_LENGTH_MAX - 1] + "…"
        return texts.setdefault(visible(cut), len(texts))

    shown = events.publications
    columns.whole(
        "event",
        {
            "t": window.ticks([p.t for p in shown]),
            "publisher": window.places([p.publisher for p in shown]),
            "sequence": [p.sequence for p in shown],
            "text": [text(_described(p)) for p in shown],
            "size": [p.size for p in shown],
            "memorized": [p.event_class == "memorized" for p in shown],
            "chunk": [bool(_attributes(p).get(MARK)) for p in shown],  # behind the first of a large payload
        },
    )
    _pack_deliveries(columns, tables, window, events)
    _pack_holders(columns, window, events, examined)
    _pack_best(columns, window, events, best)
    reasons = _pack_misses(columns, window, events, examined.explanations, text)
    return {"texts": list(texts), "reasons": reasons}


def _described(publication: Published) -> str:
    attributes = of_applications(_attributes(publication))
    text = msgspec.json.encode(attributes).decode() if attributes else ""
    return " ".join(part for part in (publication.topic, publication.type, text) if part)


def _attributes(publication: Published) -> dict[str, Any]:
    return msgspec.json.decode(publication.attributes, type=dict[str, Any])


def _pack_deliveries(
    columns: Columns, tables: Mapping[str, pa.Table], window: Window, events: EventIndex
) -> None:
    """The first delivery of each pair."""
    table = tables[Delivered.TABLE].filter(pc.field("matched"))
    publisher, sequence, node, t, hops = (
        table[name].to_numpy().astype(np.int64) for name in ("publisher", "sequence", "node", "t", "hops")
    )
    event = events.places(publisher, sequence)
    order = np.lexsort((t, node, event))
    order = order[event[order] >= 0]
    event, node, t, hops = event[order], node[order], t[order], hops[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (event[1:] != event[:-1]) | (node[1:] != node[:-1])
    event, node, t, hops = event[first], node[first], t[first], hops[first]
    order = np.lexsort((t, event))
    columns.whole(
        "got",
        {
            "first": np.searchsorted(event, np.arange(len(events) + 1)),
            "node": window.places(node[order]),
            "t": window.ticks(t[order]),
            "hops": hops[order],
        },
    )


def _pack_holders(columns: Columns, window: Window, events: EventIndex, examined: Examined) -> None:
    """Who had a copy since when, and from whom: the way of the event, as `why` tells it."""
    first, node, t, giver = [0], [], [], []
    for publication in events.publications:
        story = examined.stories[EventId(publication.publisher, publication.sequence)]
        for since, holder in sorted((since, holder) for holder, since in story.held_since.items()):
            if holder in story.givers:
                node.append(holder)
                t.append(since)
                giver.append(story.givers[holder])
        first.append(len(node))
    columns.whole(
        "held",
        {
            "first": first,
            "node": window.places(node),
            "t": window.ticks(t),
            "giver": window.places(giver),
        },
    )


def _pack_best(
    columns: Columns, window: Window, events: EventIndex, best: Mapping[EventId, BestTree]
) -> None:
    """The fewest broadcasts that could have served the same nodes: who hears it first from whom, and when."""
    first, hops = [0], []
    for publication in events.publications:
        tree = best.get(EventId(publication.publisher, publication.sequence))
        for sent in tree.broadcasts if tree is not None else ():
            hops += [(sent.sender, receiver, sent.t) for receiver in sent.receivers]
        first.append(len(hops))
    columns.whole(
        "best",
        {
            "first": first,
            "sender": window.places([sender for sender, _, _ in hops]),
            "node": window.places([receiver for _, receiver, _ in hops]),
            "t": window.ticks([t for _, _, t in hops]),
        },
    )


def _pack_misses(
    columns: Columns, window: Window, events: EventIndex, explanations: Sequence[Explanation], text: Any
) -> list[str]:
    event = events.places(
        np.array([e.event.publisher for e in explanations], dtype=np.int64),
        np.array([e.event.sequence for e in explanations], dtype=np.int64),
    )
    order = np.argsort(event, kind="stable")
    chosen = [explanations[at] for at in order.tolist() if event[at] >= 0]
    reasons = sorted({e.reason.value for e in chosen})
    columns.whole(
        "miss",
        {
            "first": np.searchsorted(event[order][event[order] >= 0], np.arange(len(events) + 1)),
            "node": window.places([e.node for e in chosen]),
            "reason": [reasons.index(e.reason.value) for e in chosen],
            "holder": window.places([e.holder for e in chosen]),
            "missed": window.places([e.missed for e in chosen]),
            "t": window.ticks([e.t for e in chosen]),
            "detail": [text(e.detail) for e in chosen],
        },
    )
    return reasons


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
    joined = pc.binary_join_element_wise(table["kind"], table["message"], " ")
    names = sorted(pc.unique(joined).to_pylist())
    columns.whole(
        "frame",
        {
            "t": window.ticks(table["t"].to_numpy()),
            "node": window.places(table["node"].to_numpy()),
            "to": _optional_places(table["to"], window),
            "message": pc.index_in(joined, pa.array(names, pa.string())).to_numpy(),
            "air": np.minimum(table["airtime"].to_numpy() // window.tick, 2**31),
            "event": _events(table, events) + 1,
        },
    )
    for field in ("collided", "faded"):
        lists = table[field].combine_chunks()
        nodes = window.places(lists.flatten().to_numpy())
        columns.whole(field, {"first": _offsets(lists), "node": nodes})
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
    columns.whole(
        "drop",
        {
            "t": window.ticks(table["t"].to_numpy()),
            "node": window.places(table["node"].to_numpy()),
            "reason": pc.index_in(table["reason"], pa.array(reasons, pa.string())).to_numpy(),
            "event": _events(table, events) + 1,
        },
    )
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
