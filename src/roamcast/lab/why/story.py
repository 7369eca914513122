"""What happened to events on the air, from the trace: who held one, since when, and from whom."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from roamcast.event import EventClass, EventId
from roamcast.lab.run.tables import plain
from roamcast.trace import Delivered, Dropped, DropReason, NodeSet, Published
from roamcast.units import MILLISECOND, Micros, NodeId

OPENED_WITHIN: Micros = 500 * MILLISECOND
"""How long after its end a busy node may take to open a frame; chosen by us."""


class SentFrame(NamedTuple):
    """One transmission of an event."""

    t: Micros
    end: Micros
    sender: NodeId
    to: NodeId | None
    received: list[NodeId]
    collided: list[NodeId]
    faded: list[NodeId]
    refused: list[NodeId]  # heard it, but did not open its seal


class Story:
    """What happened to one event on the air: who held it since when, and who gave it to whom."""

    def __init__(self, publication: Published, frames: list[SentFrame]) -> None:
        self.publication = publication
        self.frames = sorted(frames, key=lambda frame: frame.t)
        self.held_since: dict[NodeId, Micros] = {publication.publisher: publication.t}
        self.givers: dict[NodeId, NodeId] = {}  # whose frame brought it first
        # By arrival; the sort is stable, so frames that arrive together stay in the order of sending.
        for frame in sorted(self.frames, key=lambda frame: frame.end):
            for node in frame.received:
                if node not in self.held_since:
                    self.held_since[node] = frame.end
                    self.givers[node] = frame.sender
        self.holders: NodeSet = sum(1 << node for node in self.held_since)

    @property
    def memorized(self) -> bool:
        return self.publication.event_class == EventClass.MEMORIZED.value

    def held_longest(self) -> Micros:
        """The longest time between a node's first copy and its first frame."""
        first_sent: dict[NodeId, Micros] = {}
        for frame in self.frames:
            first_sent.setdefault(frame.sender, frame.t)
        return max((t - self.held_since.get(node, t) for node, t in first_sent.items()), default=0)

    def path_to(self, node: NodeId) -> tuple[NodeId, ...]:
        path = [node]
        while path[-1] in self.givers and self.givers[path[-1]] not in path:
            path.append(self.givers[path[-1]])
        return tuple(reversed(path))

    def giver(self, node: NodeId) -> NodeId:
        return self.givers.get(node, node)

    def lost_at(self, node: NodeId, sender: NodeId | None = None) -> list[SentFrame]:
        """The frames that were in range of `node` but did not arrive, in the order of sending."""
        return [
            frame
            for frame in self.frames
            if node in (*frame.collided, *frame.faded, *frame.refused) and sender in (None, frame.sender)
        ]

    def sent_by(self, sender: NodeId) -> list[SentFrame]:
        return [frame for frame in self.frames if frame.sender == sender]


def served(tables: Mapping[str, pa.Table]) -> set[tuple[NodeId, int, NodeId]]:
    """Publisher, sequence and node of every delivery that matched."""
    deliveries = tables[Delivered.TABLE].filter(pc.field("matched"))
    columns = [plain(deliveries[name]) for name in ("publisher", "sequence", "node")]
    return set(zip(*columns, strict=True))


def frames_of(
    tables: Mapping[str, pa.Table], events: set[EventId], drops: Iterable[Dropped] = ()
) -> dict[EventId, list[SentFrame]]:
    """The transmissions of `events`, in the order of the trace."""
    carrying = tables["transmissions"].filter(pc.field("publisher").is_valid())
    carried = list(map(EventId, plain(carrying["publisher"]), plain(carrying["sequence"])))
    chosen = [row for row, event in enumerate(carried) if event in events]
    table = carrying.take(pa.array(chosen, pa.int64()))
    names = ("t", "airtime", "node", "to", "received", "collided", "faded")
    frames: dict[EventId, list[SentFrame]] = {}
    rows = zip(chosen, *(plain(table[name]) for name in names), strict=True)
    for row, t, airtime, node, to, received, collided, faded in rows:
        frame = SentFrame(t, t + airtime, node, to, received, collided, faded, [])
        frames.setdefault(carried[row], []).append(frame)
    refusals = _Refusals(drops, served(tables))
    if refusals:
        return {event: refusals.taken_out(event, found) for event, found in frames.items()}
    return frames


class _Refusals:
    """Frames that the ether carried to a node and that the node refused to open.

    Such a node does not know which event it refused, nor what else was in the datagram. So a frame counts as
    refused if the node refused one of the same sender at that time and nothing shows that it had the event.
    """

    def __init__(self, drops: Iterable[Dropped], deliveries: set[tuple[NodeId, int, NodeId]]) -> None:
        self._times: dict[tuple[NodeId, NodeId], list[Micros]] = {}  # by node and sender
        self._known: set[tuple[NodeId, int, NodeId]] = set(deliveries)  # who had which event
        for drop in drops:
            if drop.reason is DropReason.SEAL and drop.to is not None:
                self._times.setdefault((drop.node, drop.to), []).append(drop.t)
            elif drop.publisher is not None and drop.sequence is not None:
                self._known.add((drop.publisher, drop.sequence, drop.node))

    def __bool__(self) -> bool:
        return bool(self._times)

    def taken_out(self, event: EventId, frames: list[SentFrame]) -> list[SentFrame]:
        senders = {frame.sender for frame in frames}
        found = []
        for frame in frames:
            refused = [
                node
                for node in frame.received
                if node not in senders and (*event, node) not in self._known and self._is_refused(frame, node)
            ]
            received = [node for node in frame.received if node not in refused]
            found.append(frame._replace(received=received, refused=refused))
        return found

    def _is_refused(self, frame: SentFrame, node: NodeId) -> bool:
        times = self._times.get((node, frame.sender), ())
        return any(frame.t <= t <= frame.end + OPENED_WITHIN for t in times)
