"""What a node records of its own run: counters always, trace records where it has a folder for them.

What it gave up or refused is counted by reason. The first of each kind is logged, then a count per minute; a
reason that is part of normal operation (`NORMAL_…`) is not logged.
"""

import logging
from collections.abc import Mapping

from roamcast.broker.assembly import PROBLEMS
from roamcast.broker.assembly import Problem as ChunkProblem
from roamcast.event import EventId
from roamcast.host import Channel, Frame, Host, Kind
from roamcast.runtime.live.inputs import Clock
from roamcast.runtime.live.report.counters import Count, Counters
from roamcast.runtime.live.report.misfits import REFUSED, HeardPeer, Misfits
from roamcast.runtime.live.report.names import Names
from roamcast.runtime.live.report.segments import TraceSegments
from roamcast.runtime.live.report.ways import EventWays
from roamcast.sealing import SealError
from roamcast.trace import Dropped, DropReason, LoadSampled, OverlayChanged, Record, Transmitted
from roamcast.underlay.base import UnderlayListener
from roamcast.units import SECOND, Micros, NodeId

_logger = logging.getLogger("roamcast.radio")
_KINDS = {kind: kind.name.lower() for kind in Kind}
_LAYERS = {channel: channel.name.lower() for channel in Channel}

SLOT: Micros = 10 * SECOND
SLOTS = 6  # a minute
MINUTE: Micros = SLOT * SLOTS

DROP_WORDS = {
    "queue_full": "the queue for a neighbour or for the radio was full: more is published than gets through",
    "retries": "a neighbour did not acknowledge it: it moved away, or the link is bad",
    "not_in_range": "it was for a node that is no neighbour any more",
    "no_route": "no route to its destination is known",
    "crashed": "it was queued when the node stopped",
    "expired": "its lifetime or its hop limit ended",
    "wire": "it could not be decoded: damaged, or of another version",
    "seal": "its seal was not accepted",
    "store_full": "the store of events was full, or the disk",
    "superseded": "a newer retained event of its topic took its place",
    "stale": "it came by a route that is not used any more",
    "modulator": "a consumer's function failed",
    "false_positive": "a summary matched by mistake; nobody here wanted it",
}
DROP_WORDS |= {f"chunk_{problem.reason}": problem.words for problem in PROBLEMS}
NORMAL_DROPS = frozenset(
    # A neighbour that moves away acknowledges nothing more, and what went by it has no route for a while.
    {"not_in_range", "retries", "no_route", "expired", "superseded", "stale", "false_positive", "crashed"}
)

REFUSAL_WORDS = {
    "too_short": "too short to be a frame of ours: another program uses this port",
    "too_long": "too long to be a frame of ours: another program uses this port",
    "unknown_version": "of another version of Roamcast, or of another program on this port",
    "unknown_key": "of another group: it has a group key that this node does not have",
    "forged": "damaged or forged: its tag does not fit",
    "own_frame": "our own, come back to us",
    "replayed": "came twice: a repeat of the network, or a recording",
    "distant": "far from what its sender sent last: much of it was missed, or another member forges it",
    "stale_epoch": "from before its sender's restart",
    "unproven": "the first ones of a new peer, before it answered our challenge",
    "bad_announcement": "an announcement that cannot be read: another version, or damaged",
    "bad_signature": "an announcement with a false signature",
    "identity": "a node number that is known with another key",
    "revoked": "of a device that was revoked",
    "clash": "another device has our own node number",
    "records": "its content cannot be read: another version",
}
NORMAL_REFUSALS = frozenset({"own_frame", "unproven", "stale_epoch", "replayed"}) | {
    reason.value.replace(" ", "_")
    for reason in REFUSED  # the log of misfits names these
}
LINKS_MAX = 4_096  # chosen by us; beyond, the oldest is forgotten


class NodeJournal:
    def __init__(self, node: NodeId, clock: Clock, counters: Counters, trace: TraceSegments | None) -> None:
        self._node = node
        self.names = Names()
        self.misfits = Misfits(counters, self.names)
        self.ways = EventWays(clock)
        self.links: dict[NodeId, tuple[str, Micros]] = {}  # of the overlay: this end's role, and since when
        self.roles: set[str] = set()  # of this node in the overlay
        self.load: float | None = None  # of this node as a broker, lately
        self.drops = ReasonTally(_logger, "dropped", DROP_WORDS, NORMAL_DROPS, clock.now)
        self.refusals = ReasonTally(_logger, "refused", REFUSAL_WORDS, NORMAL_REFUSALS, clock.now)
        self._clock = clock
        self.counters = counters
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
            if record.reason is DropReason.STORE_FULL and record.detail:
                # A table of a strategy that lets its oldest entry go does its work: that is no loss.
                self.counters.count("table_evictions_total", table=record.detail)
            else:
                self._drop_counts[record.reason].value += 1
                self._dropped(record)
        elif type(record) is OverlayChanged:
            self._overlay_changed(record)
        elif type(record) is LoadSampled:
            self.load = record.load
        if self._trace is not None:
            self._trace.add(record)

    def _overlay_changed(self, record: OverlayChanged) -> None:
        match record.change:
            case "link_up" if record.peer is not None:
                self.links[record.peer] = (record.role, record.t)
                if len(self.links) > LINKS_MAX:
                    del self.links[next(iter(self.links))]
            case "link_down" if record.peer is not None:
                self.links.pop(record.peer, None)
            case "role_on":
                self.roles.add(record.role)
            case "role_off":
                self.roles.discard(record.role)

    def _dropped(self, record: Dropped) -> None:
        self.drops.count(record.reason.value, self._clock.now, record.detail or record.message)
        if record.publisher is not None and record.sequence is not None:
            self.ways.dropped(record.publisher, record.sequence, record.to, record.reason.value)

    def given_up(self, problem: ChunkProblem, whole: EventId | None) -> None:
        """A large payload, or a chunk of one, that no application gets."""
        self.counters.count("drops_total", reason=f"chunk_{problem.reason}")
        detail = "" if whole is None else f"event {whole.publisher}:{whole.sequence}"
        self.drops.count(f"chunk_{problem.reason}", self._clock.now, detail)

    def transmitted(self, channel: Channel, frame: Frame, to: NodeId | None, size: int, attempt: int) -> None:
        """A frame was handed to the kernel. `size` includes the overhead of datagram and seal, so that sizes
        add up to what was sent; of frames that share a datagram the first one has all the overhead."""
        count, octets = self._sent[channel, frame.kind]
        count.value += 1
        octets.value += size
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
        self.counters.count("frames_refused_total", reason=reason)
        self.refusals.count(reason, self._clock.now, detail)
        if reason == "own_frame":
            return
        if sender is not None and sender >= 2**31:
            sender = None  # does not fit the tables of a trace, and no real node has such a number
        if self._trace is not None:
            self._trace.add(
                Dropped(self._clock.now, self._node, DropReason.SEAL, "sealed", to=sender, detail=why)
            )

    def unopened(self, sender: NodeId | None, error: SealError, host: str) -> None:
        """A sealed frame from this address, for people: whose it says it is by name, and no places in it."""
        problem = error.problem.removeprefix("begins ")
        if sender is not None and sender in self.names:
            problem = problem.replace(f"node {sender}", self.names.called(sender))
        self.refused(sender, error.reason.value, f"from {host}: {problem}")
        self.misfits.refused(error.reason, host, problem, self._clock.now)

    def look(self, now: Micros, peers: Mapping[NodeId, HeardPeer]) -> None:
        """Once a second: log what was counted in a minute, and see who is still here."""
        self.misfits.look(now, peers)
        self.drops.look(now)
        self.refusals.look(now)

    def dropped(self, frame: Frame, to: NodeId | None, reason: DropReason, detail: str = "") -> None:
        """The radio gave a frame up."""
        publisher, sequence = (None, None) if frame.event is None else frame.event
        self.add(Dropped(self._clock.now, self._node, reason, frame.message, publisher, sequence, to, detail))


class ReasonTally:
    """Counts of one kind (`what`: "dropped", "refused")."""

    def __init__(
        self, logger: logging.Logger, what: str, words: dict[str, str], normal: frozenset[str], now: Micros
    ) -> None:
        self._logger = logger
        self._what = what
        self._words = words
        self._normal = normal
        # By reason: the counts of the last slots, the latest first, then the total and that of the last line.
        self._counts: dict[str, list[int]] = {}
        self._slot = now // SLOT
        self._slot_ends: Micros = (self._slot + 1) * SLOT
        self._minute = now // MINUTE

    def count(self, reason: str, now: Micros, detail: str = "") -> None:
        if now >= self._slot_ends:
            self.look(now)
        counts = self._counts.get(reason)
        if counts is None:
            self._counts[reason] = [1, *([0] * (SLOTS - 1)), 1, 1]
            if reason not in self._normal:
                about = f" ({detail})" if detail else ""
                self._logger.warning("%s%s: %s", self._what, about, self.in_words(reason))
            return
        counts[0] += 1
        counts[SLOTS] += 1

    def look(self, now: Micros) -> None:
        """Log the counts of a minute once it is over. Call it every second or so."""
        past = now // SLOT - self._slot
        if past <= 0:
            return
        self._slot += past
        self._slot_ends = (self._slot + 1) * SLOT
        for counts in self._counts.values():
            kept = counts[: max(0, SLOTS - past)]
            counts[:SLOTS] = [0] * (SLOTS - len(kept)) + kept
        if now // MINUTE != self._minute:
            self._minute = now // MINUTE
            self._log_minute()

    def last_minute(self, reason: str, now: Micros) -> int:
        self.look(now)
        return sum(self._counts.get(reason, ())[:SLOTS])

    def totals(self) -> dict[str, int]:
        return {reason: counts[SLOTS] for reason, counts in self._counts.items()}

    def in_words(self, reason: str) -> str:
        return self._words.get(reason, reason)

    def _log_minute(self) -> None:
        for reason, counts in sorted(self._counts.items()):
            more = counts[SLOTS] - counts[SLOTS + 1]
            counts[SLOTS + 1] = counts[SLOTS]
            if more and reason not in self._normal:
                self._logger.warning("%s in a minute: %d: %s", self._what, more, self.in_words(reason))


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
