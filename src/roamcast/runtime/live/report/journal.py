"""What a node records of its own run: counters always, trace records where it has a folder for them."""

import logging

from roamcast.broker.assembly import Problem as ChunkProblem
from roamcast.event import EventId
from roamcast.host import Channel, Frame, Host, Kind
from roamcast.runtime.live.port.clock import Clock
from roamcast.runtime.live.report.counters import Count, Counters
from roamcast.runtime.live.report.misfits import Misfits
from roamcast.runtime.live.report.overlay import OverlayWatch
from roamcast.runtime.live.report.peer_watch import PeerWatch
from roamcast.runtime.live.report.segments import TraceSegments
from roamcast.runtime.live.report.tally import (
    DROP_WORDS,
    NORMAL_DROPS,
    NORMAL_REFUSALS,
    REFUSAL_WORDS,
    ReasonTally,
)
from roamcast.runtime.live.report.ways import EventWays
from roamcast.trace import Dropped, DropReason, LoadSampled, OverlayChanged, Record, Transmitted
from roamcast.underlay.base import UnderlayListener
from roamcast.units import NodeId

_logger = logging.getLogger("roamcast.radio")
_KINDS = {kind: kind.name.lower() for kind in Kind}
_LAYERS = {channel: channel.name.lower() for channel in Channel}


class NeighbourJournal:
    """Stands between underlay and strategy, and records the neighbours as they come and go."""

    def __init__(self, strategy: UnderlayListener, host: Host) -> None:
        self._strategy = strategy
        self._host = host

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._add("neighbour_up", neighbour)
        self._strategy.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._add("neighbour_down", neighbour)
        self._strategy.on_neighbour_down(neighbour)

    def on_routes_changed(self) -> None:
        self._strategy.on_routes_changed()

    def _add(self, change: str, neighbour: NodeId) -> None:
        self._host.trace(OverlayChanged(self._host.now(), self._host.node, change, neighbour))


class NodeJournal:
    def __init__(
        self,
        node: NodeId,
        clock: Clock,
        counters: Counters,
        trace: TraceSegments | None,
        presence: float = 1.0,
    ) -> None:
        self._node = node
        self.peers = PeerWatch(presence, lambda: clock.now)
        self.misfits = Misfits(counters)
        self.ways = EventWays(clock)
        self.overlay = OverlayWatch()
        self.load: float | None = None  # of this node as a broker, lately
        self.drops = ReasonTally(_logger, "dropped", DROP_WORDS, NORMAL_DROPS, clock.now)
        self.refusals = ReasonTally(_logger, "refused", REFUSAL_WORDS, NORMAL_REFUSALS, clock.now)
        self._clock = clock
        self._counters = counters
        self._trace = trace
        self.is_traced = trace is not None
        self._drop_counts = {
            reason: counters.counter("drops_total", reason=reason.value) for reason in DropReason
        }
        self._sent: dict[tuple[Channel, Kind], tuple[Count, Count]] = {}  # frames and octets
        for channel, layer in _LAYERS.items():
            for kind, name in _KINDS.items():
                self._sent[channel, kind] = (
                    counters.counter("frames_sent_total", kind=name, layer=layer),
                    counters.counter("frame_bytes_sent_total", kind=name, layer=layer),
                )

    def add(self, record: Record) -> None:
        """A record of a layer."""
        if type(record) is Dropped:
            self._drop_counts[record.reason].value += 1
            # A table of a strategy that lets its oldest entry go does its work: counted, no news for anyone.
            if record.reason is not DropReason.STORE_FULL or not record.detail:
                self._dropped(record)
        elif type(record) is OverlayChanged:
            self.overlay.add(record)
        elif type(record) is LoadSampled:
            self.load = record.load
        if self._trace is not None:
            self._trace.add(record)

    def _dropped(self, record: Dropped) -> None:
        self.drops.count(record.reason.value, self._clock.now, record.detail or record.message)
        if record.publisher is not None and record.sequence is not None:
            self.ways.dropped(record.publisher, record.sequence, record.to, record.reason.value)

    def given_up(self, problem: ChunkProblem, whole: EventId | None) -> None:
        """A large payload, or a chunk of one, that no application gets."""
        self._counters.count("drops_total", reason=f"chunk_{problem.reason}")
        detail = "" if whole is None else f"event {whole.publisher}:{whole.sequence}"
        self.drops.count(f"chunk_{problem.reason}", self._clock.now, detail)

    def transmitted(self, channel: Channel, frame: Frame, to: NodeId | None, size: int, attempt: int) -> None:
        """A frame was handed to the kernel. `size` includes the overhead of datagram and seal, so that sizes
        add up to what was sent; of frames that share a datagram the first one has all the overhead."""
        count, octets = self._sent[channel, frame.kind]
        count.value += 1
        octets.value += size
        if to is not None:
            self.peers.sent(to, size)
        if frame.event is not None:
            self.ways.sent(frame.event, to, frame.message, size, attempt)
        if self._trace is None:
            return
        publisher, sequence = (None, None) if frame.event is None else frame.event
        self._trace.add(
            Transmitted(
                self._clock.now,
                self._node,
                to,
                _KINDS[frame.kind],
                frame.message,
                size,
                attempt,
                0,
                publisher,
                sequence,
                frame.own,
                0,
                0,
                0,
                _LAYERS[channel],
            )
        )

    def refused(self, sender: NodeId | None, why: str, detail: str) -> None:
        """A frame was not accepted; `sender` is what it claims."""
        reason = why.replace(" ", "_")
        self._counters.count("frames_refused_total", reason=reason)
        self.refusals.count(reason, self._clock.now, detail)
        if reason == "own_frame":
            return
        if sender is not None and sender >= 2**31:
            sender = None  # does not fit the tables of a trace, and no real node has such a number
        if self._trace is not None:
            self._trace.add(
                Dropped(self._clock.now, self._node, DropReason.SEAL, "sealed", to=sender, detail=why)
            )

    def look(self) -> None:
        """Once a second: notice who is gone, and log what was counted in a minute."""
        self._clock.enter()
        for one in (self.peers, self.drops, self.refusals):
            one.look(self._clock.now)

    def dropped(self, frame: Frame, to: NodeId | None, reason: DropReason, detail: str = "") -> None:
        """The radio gave a frame up."""
        publisher, sequence = (None, None) if frame.event is None else frame.event
        self.add(Dropped(self._clock.now, self._node, reason, frame.message, publisher, sequence, to, detail))
