"""Why an expected delivery did not happen, and which way the others went.

Everything here is read from the trace; nothing is guessed from the strategy. For an event, its
*holders* are its publisher and every node that received a frame with it. A subscriber that is no holder
was either missed by a frame that reached its place (collision, fading), or the event died on the way:
then there is a first hop h → m, from a holder to a node that never held it, on a shortest path from the
holders to the subscriber. What became of the event at that hop is the reason.

The rules, in their order:

1. The subscriber held a copy: it crashed, had unsubscribed, dropped it, or was not served from what it
   held (`late_subscriber`); else it refused what it should have handed over (`filtered`, a defect).
2. Frames with the event hit it, but were lost there, or not opened: the last of them counts.
3. It was down: at publication, or for all the time in which a memorized event mattered.
4. No path from the holders: at publication for a real-time event, ever within its lifetime for a
   memorized one (`no_path`).
5. The first hop h → m: frames of h lost at m; else h sent, but m or the link had failed by then; else what
   h dropped; else why h did not send (crashed, run ended, its strategy chose not to).

A memorized event matters until its lifetime or the run ends; a late subscriber's hop is looked for from
the instant of its subscription on.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.errors import InputError
from roamcast.event import EventId
from roamcast.lab.run.expected import RecordedInterests
from roamcast.lab.run.graph import ContactGraph, LinkHistory
from roamcast.lab.run.tables import RunInfo, records
from roamcast.lab.why.story import Story, frames_of, served
from roamcast.trace import (
    Delivered,
    Dropped,
    DropReason,
    Expected,
    FaultHappened,
    LinkChanged,
    NodeSet,
    Published,
    Subscribed,
)
from roamcast.units import SECOND, Micros, NodeId, seconds

PATIENCE_MIN: Micros = SECOND
"""How long a node may hold a real-time event before it sends it: jitter, backoff and queue. A trace in which
nodes held one longer raises this. Who crashes, or sees the run end, later than that after its copy
came had decided not to pass it on."""


ORDERING = ("opportunistic",)  # strategies that hand over each producer's events in their order


class LossReason(Enum):
    """Why a pair was not served. The value is what people read."""

    SUBSCRIBER_CRASHED = "subscriber_crashed"
    PUBLISHER_CRASHED = "publisher_crashed"
    RELAY_CRASHED = "relay_crashed"
    NO_PATH = "no_path"
    COLLISION = "collision"
    FADING = "fading"  # lost by the radio's random loss, or out of range before the frame's end
    QUEUE_FULL = "queue_full"
    RETRIES = "retries"  # unicast: no attempt was acknowledged
    LINK_BROKE = "link_broke"  # stood when the event came, not when it was sent on
    EXPIRED = "expired"  # hop limit or lifetime
    STORE_FULL = "store_full"  # pushed out of a bounded store
    SUPERSEDED = "superseded"  # a newer retained event of its topic had taken its place
    STALE_ROUTE = "stale_route"  # arrived by a route that the node had given up, and was refused
    WIRE = "wire"  # arrived, but could not be decoded
    SEAL = "seal"  # heard, but not opened: forged, replayed, or of a node that had not proven itself
    NOT_SENT = "not_sent"  # a holder with a link did not send: its strategy's choice
    LATE_SUBSCRIBER = "late_subscriber"  # memorized, but nobody served it from memory
    IN_ORDER = "in_order"  # arrived, and waited for an earlier one of its producer
    RUN_ENDED = "run_ended"  # still on its way when the run ended
    UNSUBSCRIBED = "unsubscribed"  # meanwhile
    FILTERED = "filtered"  # arrived, stood subscribed, was not handed over: a defect
    UNKNOWN = "unknown"  # a defect of this module


class Explanation(NamedTuple):
    """One missing pair. The event got as far as `holder` and did not pass to `missed`, at time `t`."""

    event: EventId
    node: NodeId
    reason: LossReason
    holder: NodeId
    missed: NodeId
    t: Micros
    detail: str


class DeliveryPath(NamedTuple):
    """How an event came to a node that delivered it: the first copy's relays, publisher first."""

    node: NodeId
    t: Micros  # of the first delivery
    path: tuple[NodeId, ...]


def explain(
    tables: Mapping[str, pa.Table],
    run: RunInfo,
    event: EventId | None = None,
    node: NodeId | None = None,
) -> list[Explanation]:
    """Every expected pair that was not delivered, by publication time, then by node.

    As in the metrics, events published before the warm-up ended are left out, unless asked for.
    """
    publications = {EventId(p.publisher, p.sequence): p for p in records(tables, Published)}
    if event is not None and event not in publications:
        raise InputError(f"event {event_text(event)}", "was not published in this run")
    done = served(tables)
    missing = [
        pair
        for pair in records(tables, Expected)
        if (pair.publisher, pair.sequence, pair.node) not in done
        and (node is None or pair.node == node)
        and (
            event == (pair.publisher, pair.sequence)
            if event is not None
            else publications[EventId(pair.publisher, pair.sequence)].t >= run.warmup
        )
    ]
    # The contact graph is replayed forwards, so the pairs are taken by the time they look at.
    missing.sort(key=lambda pair: (pair.since, pair.publisher, pair.sequence, pair.node))
    wanted = {EventId(pair.publisher, pair.sequence) for pair in missing}
    inquest = _Inquest(tables, run, {key: publications[key] for key in sorted(wanted)})
    explanations = [inquest.explain(pair) for pair in missing]
    return sorted(explanations, key=lambda e: (publications[e.event].t, e.event, e.node))


def ways(tables: Mapping[str, pa.Table], event: EventId) -> list[DeliveryPath]:
    """For each node that got the event, the way it came, by time of delivery."""
    publications = {EventId(p.publisher, p.sequence): p for p in records(tables, Published)}
    if event not in publications:
        raise InputError(f"event {event_text(event)}", "was not published in this run")
    story = Story(publications[event], frames_of(tables, {event}).get(event, []))
    first: dict[NodeId, Micros] = {}
    for delivery in records(tables, Delivered):
        if (delivery.publisher, delivery.sequence) == event and delivery.matched:
            first[delivery.node] = min(delivery.t, first.get(delivery.node, delivery.t))
    return [
        DeliveryPath(node, t, story.path_to(node))
        for t, node in sorted((t, node) for node, t in first.items())
    ]


def counts(explanations: Iterable[Explanation]) -> dict[LossReason, int]:
    """How often each reason occurs, the most frequent first."""
    counted = Counter(explanation.reason for explanation in explanations)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0].value)))


def to_text(
    explanations: Sequence[Explanation], ways: Sequence[DeliveryPath] = (), limit: int | None = None
) -> str:
    """Plain lines: the reasons counted, then each pair (at most `limit`), then the ways."""
    lines = [f"{len(explanations)} expected deliveries did not happen"]
    lines += [f"{count:8d}  {reason.value}" for reason, count in counts(explanations).items()]
    for explanation in explanations[:limit]:
        lines.append(
            f"event {event_text(explanation.event)} to node {explanation.node}: {explanation.reason.value}"
            f" at {_place(explanation)}, {_clock(explanation.t)}: {explanation.detail}"
        )
    if limit is not None and len(explanations) > limit:
        lines.append(f"… and {len(explanations) - limit} more")
    lines += [f"delivered to node {w.node} at {_clock(w.t)} by {' → '.join(map(str, w.path))}" for w in ways]
    return "\n".join(lines)


def to_json(explanations: Sequence[Explanation], ways: Sequence[DeliveryPath] = ()) -> str:
    """One object: the reasons counted, every missing pair, and the ways if an event was asked for."""
    reasons = {reason.value: count for reason, count in counts(explanations).items()}
    answer = {
        "reasons": reasons,
        "missing": [e._asdict() | {"event": event_text(e.event)} for e in explanations],
        "ways": [w._asdict() for w in ways],
    }
    return msgspec.json.encode(answer).decode()


def event_text(event: EventId) -> str:
    """An event's name on the command line: `publisher:sequence`."""
    return f"{event.publisher}:{event.sequence}"


def parse_event(text: str) -> EventId:
    """The event that `event_text` wrote."""
    publisher, colon, sequence = text.partition(":")
    if not (colon and publisher.isdecimal() and sequence.isdecimal()):
        raise InputError(f"event {text!r}", "is no event; allowed: publisher:sequence, as in 3:17")
    return EventId(int(publisher), int(sequence))


class _Finding(NamedTuple):
    reason: LossReason
    holder: NodeId
    missed: NodeId
    t: Micros
    detail: str


class _Inquest:
    """Explains missing pairs, in the order of their `since`."""

    def __init__(
        self, tables: Mapping[str, pa.Table], run: RunInfo, events: Mapping[EventId, Published]
    ) -> None:
        links, faults = records(tables, LinkChanged), records(tables, FaultHappened)
        self._links, self._faults = links, faults
        self._run = run
        self._rises = _rises(links, faults)
        self._graph = ContactGraph(links, faults)
        self._history = LinkHistory(links, faults)
        self._interests = RecordedInterests(records(tables, Subscribed))
        drops = records(tables, Dropped)
        frames = frames_of(tables, set(events), drops)
        self._stories = {key: Story(event, frames.get(key, [])) for key, event in events.items()}
        self._patience = max(
            [PATIENCE_MIN, *(story.held_longest() for story in self._stories.values() if not story.memorized)]
        )
        self._drops: dict[EventId, list[Dropped]] = {}
        for drop in drops:
            if drop.reason is DropReason.FALSE_POSITIVE:
                continue  # a copy that nobody wanted there: no delivery is missing because of it
            if drop.publisher is not None and drop.sequence is not None:
                self._drops.setdefault(EventId(drop.publisher, drop.sequence), []).append(drop)
        self._wire_drops = [drop for drop in drops if drop.reason is DropReason.WIRE]
        self._parents: dict[EventId, tuple[int, dict[NodeId, NodeId]]] = {}
        self._spreads: dict[tuple[EventId, Micros], dict[NodeId, tuple[NodeId, Micros]]] = {}

    def explain(self, pair: Expected) -> Explanation:
        event = EventId(pair.publisher, pair.sequence)
        story = self._stories[event]
        finding = (
            self._at_the_subscriber(story, pair)
            or self._lost(story, pair, pair.node, None)
            or self._down(story, pair)
            or self._on_the_way(story, pair)
        )
        return Explanation(event, pair.node, *finding)

    # The rules.

    def _at_the_subscriber(self, story: Story, pair: Expected) -> _Finding | None:
        node = pair.node
        if node not in story.held_since:
            return None
        held = story.held_since[node]
        giver = story.giver(node)

        def found(reason: LossReason, t: Micros, detail: str) -> _Finding:
            return _Finding(reason, giver, node, t, detail)

        wanted = max(held, pair.since)
        crash = self._history.first_down(node, held, wanted)
        if crash is not None:
            return found(LossReason.SUBSCRIBER_CRASHED, crash, f"node {node} lost its copy by a crash")
        ended = self._interests.ended(story.publication, node, wanted)
        if ended is not None:
            return found(LossReason.UNSUBSCRIBED, ended, f"node {node} unsubscribed before it arrived")
        for drop in self._drops_of(story, node):
            # What it dropped as a relay is no reason; what it dropped from its store is one later on.
            if drop.reason in (DropReason.EXPIRED, DropReason.STALE) or (
                drop.reason in (DropReason.STORE_FULL, DropReason.SUPERSEDED) and held <= drop.t <= pair.since
            ):
                return found(_REASON_OF_DROP[drop.reason], drop.t, _of_drop(drop))
        if held < pair.since:
            detail = f"node {node} had seen it at {_clock(held)}, before it subscribed, and was not served"
            return found(LossReason.LATE_SUBSCRIBER, pair.since, detail)
        for drop in self._wire_drops:
            if drop.node == node and drop.t == held:
                return found(LossReason.WIRE, drop.t, _of_drop(drop))
        earlier = self._earlier_missing(story.publication, node) if self._run.strategy in ORDERING else None
        if earlier is not None:
            detail = f"node {node} had it, and waited for event {earlier} of node {pair.publisher}"
            return found(LossReason.IN_ORDER, held, detail)
        if held + self._patience > self._run.duration:
            return found(LossReason.RUN_ENDED, self._run.duration, "the run ended while it arrived")
        return found(LossReason.FILTERED, held, f"node {node} received it and handed it to nobody")

    def _earlier_missing(self, publication: Published, node: NodeId) -> int | None:
        """The last event of the same producer before this one that never came to the node."""
        missing = (
            key.sequence
            for key, story in self._stories.items()
            if key.publisher == publication.publisher
            and key.sequence < publication.sequence
            and node not in story.held_since
        )
        return max(missing, default=None)

    def _down(self, story: Story, pair: Expected) -> _Finding | None:
        crash = self._history.down_since(pair.node, pair.since)
        if crash is None:
            return None
        if story.memorized and self._history.up_in(pair.node, pair.since, self._deadline(story)):
            return None
        detail = f"node {pair.node} was down when the event was published"
        return _Finding(LossReason.SUBSCRIBER_CRASHED, pair.publisher, pair.node, crash, detail)

    def _lost(self, story: Story, pair: Expected, node: NodeId, sender: NodeId | None) -> _Finding | None:
        """Frames that reached the place of `node`, but not `node`."""
        frames = story.lost_at(node, sender)
        if not frames:
            return None
        last = frames[-1]
        for who in (last.sender, node):  # a radio may report a frame that a crash cut short as collided
            crash = self._history.first_down(who, last.t, last.end)
            if crash is not None:
                return self._crashed(story, pair, who, last.sender, node, crash)
        collided = sum(node in frame.collided for frame in frames)
        refused = sum(node in frame.refused for frame in frames)
        detail = (
            f"frames lost at node {node}: {collided} collided, {len(frames) - collided - refused} faded"
            + (f", {refused} refused by the seal" if refused else "")
        )
        if last.to is not None:
            for drop in self._drops_of(story, last.sender, node):
                if drop.reason is DropReason.RETRIES and drop.t >= last.t:
                    return _Finding(LossReason.RETRIES, last.sender, node, drop.t, detail)
        if node in last.refused:
            return _Finding(LossReason.SEAL, last.sender, node, last.end, detail)
        if node in last.collided:
            return _Finding(LossReason.COLLISION, last.sender, node, last.t, detail)
        broke = self._history.link_falls(last.sender, node, last.t, last.end)
        if broke is not None:
            detail = f"node {node} left the range of node {last.sender} during the frame"
            return _Finding(LossReason.LINK_BROKE, last.sender, node, broke, detail)
        return _Finding(LossReason.FADING, last.sender, node, last.t, detail)

    def _on_the_way(self, story: Story, pair: Expected) -> _Finding:
        hop = self._first_hop(story, pair)
        if hop is None:
            within = " within its lifetime" if story.memorized else " when it was published"
            return _Finding(
                LossReason.NO_PATH,
                pair.publisher,
                pair.node,
                pair.since,
                f"no chain of links led there{within}",
            )
        holder, missed, since = hop
        return (
            self._lost(story, pair, missed, holder)
            or self._out_of_reach(story, pair, holder, missed, since)
            or self._dropped(story, pair, holder, missed)
            or self._never_sent(story, pair, holder, missed, since)
        )

    def _dropped(self, story: Story, pair: Expected, holder: NodeId, missed: NodeId) -> _Finding | None:
        drops = self._drops_of(story, holder, missed)
        if not drops:
            return None
        drop = drops[-1]
        if drop.reason is DropReason.CRASHED:
            return self._crashed(story, pair, holder, holder, missed, drop.t)
        return _Finding(_REASON_OF_DROP[drop.reason], holder, missed, drop.t, _of_drop(drop))

    def _out_of_reach(
        self, story: Story, pair: Expected, holder: NodeId, missed: NodeId, since: Micros
    ) -> _Finding | None:
        """The holder sent while it had the way, or should have had it, but `missed` was not in range.

        The trace does not say how long after its end a frame arrives (the disk model has a delay), so
        what failed shortly afterwards is looked at too.
        """
        frames = [f for f in story.sent_by(holder) if f.t >= since and f.to in (None, missed)]
        if not frames:
            return None
        frame = frames[-1]
        latest = frame.end + self._patience
        crash = self._history.first_down(missed, frame.t, latest)
        broke = self._history.link_falls(holder, missed, frame.t, latest)
        if crash is not None and (broke is None or crash <= broke):
            crash = self._history.down_since(missed, crash)
            assert crash is not None
            return self._crashed(story, pair, missed, holder, missed, crash)
        crash = self._history.first_down(holder, frame.t, frame.end)
        if crash is not None:
            return self._crashed(story, pair, holder, holder, missed, crash)
        if broke is not None:
            down_since = self._history.link_down_since(holder, missed, broke)
            assert down_since is not None
            detail = f"node {missed} was out of range when node {holder} sent at {_clock(frame.t)}"
            return _Finding(LossReason.LINK_BROKE, holder, missed, max(down_since, since), detail)
        if frame.end >= self._run.duration:
            detail = "the run ended while it was on the air"
            return _Finding(LossReason.RUN_ENDED, holder, missed, self._run.duration, detail)
        return None

    def _never_sent(
        self, story: Story, pair: Expected, holder: NodeId, missed: NodeId, since: Micros
    ) -> _Finding:
        held = story.held_since[holder]
        begin = max(held, since)
        sent = story.sent_by(holder)
        crash = self._history.first_down(holder, held, begin + self._patience)
        if crash is not None:
            return self._crashed(story, pair, holder, holder, missed, crash)
        if any(frame.t >= since and frame.to in (None, missed) for frame in sent):
            detail = (
                f"node {holder} sent it over a link that stood, and the trace does not say what became of it"
            )
            return _Finding(LossReason.UNKNOWN, holder, missed, begin, detail)
        if begin + self._patience > self._run.duration:
            detail = f"node {holder} had no time left to send it"
            return _Finding(LossReason.RUN_ENDED, holder, missed, self._run.duration, detail)
        ended = self._interests.ended(story.publication, pair.node, self._deadline(story))
        if ended is not None:
            detail = f"node {pair.node} unsubscribed before it was sent there"
            return _Finding(LossReason.UNSUBSCRIBED, holder, missed, ended, detail)
        if pair.since > story.publication.t:
            detail = f"node {holder} had it, and did not send it again for the later subscription"
            return _Finding(LossReason.LATE_SUBSCRIBER, holder, missed, begin, detail)
        if not sent:
            return _Finding(LossReason.NOT_SENT, holder, missed, begin, f"node {holder} never sent it on")
        last = sent[-1]
        others = sorted({frame.to for frame in sent if frame.to is not None and frame.t >= since})
        if others:
            detail = f"node {holder} sent it to other nodes only: {', '.join(map(str, others))}"
        else:
            detail = f"node {holder} sent it at {_clock(last.t)}, before the link came up, and not again"
        return _Finding(LossReason.NOT_SENT, holder, missed, max(last.t, since), detail)

    # Questions.

    def _first_hop(self, story: Story, pair: Expected) -> tuple[NodeId, NodeId, Micros] | None:
        """Holder, the next node on the way to the subscriber, and since when that way existed."""
        self._graph.advance(pair.since)
        event = EventId(pair.publisher, pair.sequence)
        known = self._parents.get(event)
        if known is None or known[0] != self._graph.epoch:
            known = self._parents[event] = (self._graph.epoch, self._graph.parents(story.holders))
        parents = known[1]
        node = pair.node
        if node in parents:
            while not story.holders >> parents[node] & 1:
                node = parents[node]
            return parents[node], node, pair.since
        if not story.memorized:
            return None
        key = (event, pair.since)
        if key not in self._spreads:
            self._spreads[key] = self._spread(story, pair.since)
        spread = self._spreads[key]
        if node not in spread:
            return None
        while not story.holders >> spread[node][0] & 1:
            node = spread[node][0]
        return spread[node][0], node, spread[node][1]

    def _spread(self, story: Story, since: Micros) -> dict[NodeId, tuple[NodeId, Micros]]:
        """Whom perfect store-and-forward would have reached by the deadline: from whom, and when."""
        deadline = self._deadline(story)
        graph = ContactGraph(self._links, self._faults)
        reached: dict[NodeId, tuple[NodeId, Micros]] = {}
        seen: NodeSet = 0
        arrivals = [(max(held, since), 1 << holder) for holder, held in story.held_since.items()]
        first = bisect_right(self._rises, since, key=lambda rise: rise[0])
        # A link that comes up matters only if it leads out of what is reached already.
        steps = sorted(
            [(t, 0, bit) for t, bit in arrivals]
            + [(since, 0, 0)]
            + [(t, from_, to) for t, from_, to in self._rises[first:] if t <= deadline]
        )
        for t, from_, to in steps:
            if from_ == 0:
                seen |= to
            elif not (seen & from_ and to & ~seen):
                continue
            graph.advance(t)
            for node, giver in graph.parents(seen).items():
                seen |= 1 << node
                reached[node] = (giver, t)
        return reached

    def _deadline(self, story: Story) -> Micros:
        """Until when the event matters to its subscribers."""
        publication = story.publication
        if story.memorized:
            return min(publication.t + publication.lifetime, self._run.duration)
        last = max((frame.end for frame in story.frames), default=publication.t)
        return min(max(last, publication.t), self._run.duration)

    def _drops_of(self, story: Story, node: NodeId, to: NodeId | None = None) -> list[Dropped]:
        """How `node` gave the event up, for everyone or for `to`, by time."""
        event = EventId(story.publication.publisher, story.publication.sequence)
        drops = [d for d in self._drops.get(event, []) if d.node == node and d.to in (None, to)]
        return sorted(drops, key=lambda drop: drop.t)

    def _crashed(
        self, story: Story, pair: Expected, who: NodeId, holder: NodeId, missed: NodeId, t: Micros
    ) -> _Finding:
        if who == pair.node:
            reason = LossReason.SUBSCRIBER_CRASHED
        elif who == story.publication.publisher:
            reason = LossReason.PUBLISHER_CRASHED
        else:
            reason = LossReason.RELAY_CRASHED
        return _Finding(reason, holder, missed, t, f"node {who} crashed before it could pass")


_REASON_OF_DROP = {
    DropReason.QUEUE_FULL: LossReason.QUEUE_FULL,
    DropReason.RETRIES: LossReason.RETRIES,
    DropReason.NOT_IN_RANGE: LossReason.LINK_BROKE,
    DropReason.NO_ROUTE: LossReason.LINK_BROKE,
    DropReason.CRASHED: LossReason.RELAY_CRASHED,
    DropReason.EXPIRED: LossReason.EXPIRED,
    DropReason.WIRE: LossReason.WIRE,
    DropReason.STORE_FULL: LossReason.STORE_FULL,
    DropReason.SUPERSEDED: LossReason.SUPERSEDED,
    DropReason.STALE: LossReason.STALE_ROUTE,
}


def _rises(
    links: Iterable[LinkChanged], faults: Iterable[FaultHappened]
) -> list[tuple[Micros, NodeSet, NodeSet]]:
    """Each time at which a way may open, and from whom to whom: a link comes up, a node comes back."""
    rises = []
    for change in links:
        if change.up:
            sender, receiver = 1 << change.sender, 1 << change.receiver
            rises.append((change.t, sender, receiver))
            if change.both:
                rises.append((change.t, receiver, sender))
    for fault in faults:
        if fault.kind == "restart":
            rises.append((fault.t, -1, 1 << fault.node))  # from anyone
            rises.append((fault.t, 1 << fault.node, -1))  # to anyone
    return sorted(rises)


def _of_drop(drop: Dropped) -> str:
    return f"node {drop.node} dropped it ({drop.message}{', ' if drop.detail else ''}{drop.detail})"


def _place(explanation: Explanation) -> str:
    if explanation.holder == explanation.missed:
        return f"node {explanation.missed}"
    return f"hop {explanation.holder} → {explanation.missed}"


def _clock(t: Micros) -> str:
    return f"{seconds(t):.6f} s"
