"""Why an expected delivery did not happen, and which paths the others took.

Everything here is read from the trace; nothing is guessed from the strategy. For an event, its
*holders* are its publisher and every node that received a frame with it. A subscriber that is no holder
either lost a frame that was in range of it (collision, fading), or the event stopped before it: then there is
a first hop h → m, from a holder to a node that never held it, on a shortest path from the holders to the
subscriber. What happened to the event at that hop is the reason.

The rules, in their order:

1. The subscriber held a copy: it crashed, had unsubscribed, dropped it, or was not served from what it
   held (`late_subscriber`), or only overheard broadcasts of nodes with which it had no overlay link, in an
   overlay where those are for neighbours (`overheard`); else it refused what it should have handed over
   (`filtered`, a defect).
2. Frames with the event were in range of it, but were lost there, or not opened: the last of them counts.
3. It was down: at publication, or for all the time in which a memorized event mattered.
4. No journey from the holders: within its lifetime for a memorized event, within the deadline of the
   scenario's `[limit]` for a real-time one (`no_path`). Every other reason is where a journey broke.
5. The first hop h → m: frames of h lost at m; else h sent, but m or the link had failed by then; else what
   h dropped; else why h did not send (crashed, run ended, its strategy chose not to).

A memorized event matters until its lifetime or the run ends; a late subscriber's hop is looked for from
the instant of its subscription on.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.event import EventId
from roamcast.lab.run.expected import RecordedInterests
from roamcast.lab.run.graph import ContactGraph, Hop, Journeys, UpTimes, links_up, nodes_up
from roamcast.lab.run.limit import LimitRules
from roamcast.lab.run.tables import Expected, RunInfo, records
from roamcast.lab.why.answer import DeliveryPath, Explanation, LossReason, clock
from roamcast.lab.why.story import Story, frames_of, served
from roamcast.strategy import STRATEGIES
from roamcast.trace import (
    Delivered,
    Dropped,
    DropReason,
    FaultHappened,
    LinkChanged,
    OverlayChanged,
    Published,
    Subscribed,
)
from roamcast.units import SECOND, Micros, NodeId, seconds

SETTLING_TIME_MIN: Micros = SECOND
"""The least time-out for forwarding a received real-time event (jitter, backoff, queue); chosen by us. If
some node of the trace took longer, that is the time-out. A node that crashed, or was up when the run ended,
later than this after its copy arrived had decided not to forward it."""


def explain(
    tables: Mapping[str, pa.Table],
    run: RunInfo,
    event: EventId | None = None,
    node: NodeId | None = None,
) -> list[Explanation]:
    """Every expected pair that was not delivered, by publication time, then by node.

    As in the metrics, events published before the warm-up ended are left out, unless asked for.
    """
    publications = _publications(tables)
    missing = [
        pair
        for pair in _missing(tables)
        if (node is None or pair.node == node)
        and (
            event == (pair.publisher, pair.sequence)
            if event is not None
            else publications[EventId(pair.publisher, pair.sequence)].t >= run.warmup
        )
    ]
    wanted = {EventId(pair.publisher, pair.sequence) for pair in missing}
    inquest = _Inquest(tables, run, {key: publications[key] for key in sorted(wanted)})
    return inquest.explained(missing)


class Examined(NamedTuple):
    """All that there is to know of all events of a run, those of the warm-up too."""

    explanations: list[Explanation]  # by publication time, then by node
    stories: dict[EventId, Story]


def examine(tables: Mapping[str, pa.Table], run: RunInfo) -> Examined:
    """Every missing pair explained, and what happened to every event."""
    publications = _publications(tables)
    inquest = _Inquest(tables, run, publications)
    return Examined(inquest.explained(_missing(tables)), inquest.stories)


def _publications(tables: Mapping[str, pa.Table]) -> dict[EventId, Published]:
    return {EventId(p.publisher, p.sequence): p for p in records(tables, Published)}


def _missing(tables: Mapping[str, pa.Table]) -> list[Expected]:
    done = served(tables)
    return [
        pair for pair in records(tables, Expected) if (pair.publisher, pair.sequence, pair.node) not in done
    ]


def ways(tables: Mapping[str, pa.Table], event: EventId) -> list[DeliveryPath]:
    """For each node that got the event, the path of its copy, by time of delivery."""
    story = Story(_publications(tables)[event], frames_of(tables, {event}).get(event, []))
    first: dict[NodeId, Micros] = {}
    for delivery in records(tables, Delivered):
        if (delivery.publisher, delivery.sequence) == event and delivery.matched:
            first[delivery.node] = min(delivery.t, first.get(delivery.node, delivery.t))
    return [
        DeliveryPath(node, t, story.path_to(node))
        for t, node in sorted((t, node) for node, t in first.items())
    ]


class _Finding(NamedTuple):
    reason: LossReason
    holder: NodeId
    missed: NodeId
    t: Micros
    detail: str


class _Inquest:
    """Explains missing pairs."""

    def __init__(
        self, tables: Mapping[str, pa.Table], run: RunInfo, events: Mapping[EventId, Published]
    ) -> None:
        links, faults = records(tables, LinkChanged), records(tables, FaultHappened)
        self._run = run
        self._rules = LimitRules.of(run)
        self._journeys = Journeys(links, faults)
        self._graph = ContactGraph(links, faults)
        self._links = links_up(links)
        self._nodes = nodes_up(faults)
        self._overlay = UpTimes(  # as each node recorded its own links
            (
                ((change.node, change.peer), change.t, change.change == "link_up")
                for change in records(tables, OverlayChanged)
                if change.change in ("link_up", "link_down") and change.peer is not None
            ),
            before=-1,
        )
        self._interests = RecordedInterests(records(tables, Subscribed))
        drops = records(tables, Dropped)
        frames = frames_of(tables, set(events), drops)
        self.stories = {key: Story(event, frames.get(key, [])) for key, event in events.items()}
        self._settling_time = max(
            [
                SETTLING_TIME_MIN,
                *(story.held_longest() for story in self.stories.values() if not story.memorized),
            ]
        )
        self._drops: dict[EventId, list[Dropped]] = {}
        for drop in drops:
            if drop.reason is DropReason.FALSE_POSITIVE:
                continue  # a copy that nobody wanted there: no delivery is missing because of it
            if drop.publisher is not None and drop.sequence is not None:
                self._drops.setdefault(EventId(drop.publisher, drop.sequence), []).append(drop)
        self._wire_drops = [drop for drop in drops if drop.reason is DropReason.WIRE]
        self._parents: dict[EventId, tuple[int, dict[NodeId, NodeId]]] = {}
        self._reached: dict[tuple[EventId, Micros], dict[NodeId, Hop]] = {}

    def explained(self, missing: Iterable[Expected]) -> list[Explanation]:
        """By publication time, then by node; to be called once."""
        # The contact graph is replayed forwards, so the pairs are taken by the time they look at.
        in_time = sorted(missing, key=lambda pair: (pair.since, pair.publisher, pair.sequence, pair.node))
        found = [self._explain(pair) for pair in in_time]
        return sorted(found, key=lambda e: (self.stories[e.event].publication.t, e.event, e.node))

    def _explain(self, pair: Expected) -> Explanation:
        event = EventId(pair.publisher, pair.sequence)
        story = self.stories[event]
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
        crash = self._nodes.first_down(node, held, wanted)
        if crash is not None:
            return found(LossReason.SUBSCRIBER_CRASHED, crash, f"node {node} lost its copy by a crash")
        ended = self._interests.ended(story.publication, node, wanted)
        if ended is not None:
            return found(LossReason.UNSUBSCRIBED, ended, f"node {node} unsubscribed before it arrived")
        crash = self._nodes.first_down(node, story.publication.t, held)
        if crash is not None and not story.memorized:
            detail = f"node {node} has restarted since the event was published"
            return found(LossReason.SUBSCRIBER_CRASHED, crash, detail)
        for drop in self._drops_of(story, node):
            # A drop as a relay is no reason for this pair; a drop from its store is considered later on.
            if drop.reason in (DropReason.EXPIRED, DropReason.STALE) or (
                drop.reason in (DropReason.STORE_FULL, DropReason.SUPERSEDED) and held <= drop.t <= pair.since
            ):
                return found(_REASON_OF_DROP[drop.reason], drop.t, _of_drop(drop))
        if held < pair.since:
            detail = f"node {node} had seen it at {clock(held)}, before it subscribed, and was not served"
            return found(LossReason.LATE_SUBSCRIBER, pair.since, detail)
        for drop in self._wire_drops:
            if drop.node == node and drop.t == held:
                return found(LossReason.WIRE, drop.t, _of_drop(drop))
        name = self._run.strategy  # of a plug-in perhaps, that is not loaded here
        in_order = name in STRATEGIES and STRATEGIES.declared(name).keeps_order
        earlier = self._earlier_missing(story.publication, node) if in_order else None
        if earlier is not None:
            detail = f"node {node} had it, and waited for event {earlier} of node {pair.publisher}"
            return found(LossReason.IN_ORDER, held, detail)
        if held + self._settling_time > self._run.duration:
            return found(LossReason.RUN_ENDED, self._run.duration, "the run ended while it arrived")
        if self._overlay and not any(
            frame.to is not None or self._overlay.down_since((node, frame.sender), frame.end) is None
            for frame in story.frames
            if node in frame.received
        ):
            detail = f"node {node} heard it in frames for other nodes, and none for it arrived"
            return found(LossReason.OVERHEARD, held, detail)
        return found(LossReason.FILTERED, held, f"node {node} received it and handed it to nobody")

    def _earlier_missing(self, publication: Published, node: NodeId) -> int | None:
        """The last event of the same producer before this one that never came to the node."""
        missing = (
            key.sequence
            for key, story in self.stories.items()
            if key.publisher == publication.publisher
            and key.sequence < publication.sequence
            and node not in story.held_since
        )
        return max(missing, default=None)

    def _down(self, story: Story, pair: Expected) -> _Finding | None:
        crash = self._nodes.down_since(pair.node, pair.since)
        if crash is None:
            return None
        if story.memorized and self._nodes.up_in(pair.node, pair.since, self._deadline(story)):
            return None
        detail = f"node {pair.node} was down when the event was published"
        return _Finding(LossReason.SUBSCRIBER_CRASHED, pair.publisher, pair.node, crash, detail)

    def _lost(self, story: Story, pair: Expected, node: NodeId, sender: NodeId | None) -> _Finding | None:
        """Frames that were in range of `node`, but were not received by it."""
        frames = story.lost_at(node, sender)
        if not frames:
            return None
        last = frames[-1]
        for who in (last.sender, node):  # a radio may report a frame that a crash cut short as collided
            crash = self._nodes.first_down(who, last.t, last.end)
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
        broke = self._links.first_down((last.sender, node), last.t, last.end)
        if broke is not None:
            detail = f"node {node} left the range of node {last.sender} during the frame"
            return _Finding(LossReason.LINK_BROKE, last.sender, node, broke, detail)
        return _Finding(LossReason.FADING, last.sender, node, last.t, detail)

    def _on_the_way(self, story: Story, pair: Expected) -> _Finding:
        hop = self._first_hop(story, pair)
        if hop is None and self._run.runtime == "live" and not self._links:
            detail = "no node's underlay told its neighbours, and no record says what became of it"
            return _Finding(LossReason.UNKNOWN, pair.publisher, pair.node, pair.since, detail)
        if hop is None:
            within = self._rules.until(story.publication) - story.publication.t
            detail = f"no journey led there within the {seconds(within):g} s in which it counted"
            return _Finding(LossReason.NO_PATH, pair.publisher, pair.node, pair.since, detail)
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
        """The holder sent while the hop existed, or should have existed, but `missed` was not in range.

        The trace does not say how long after its end a frame arrives (the disk model has a delay), so
        failures shortly afterwards count too.
        """
        frames = [f for f in story.sent_by(holder) if f.t >= since and f.to in (None, missed)]
        if not frames:
            return None
        frame = frames[-1]
        latest = frame.end + self._settling_time
        crash = self._nodes.first_down(missed, frame.t, latest)
        broke = self._links.first_down((holder, missed), frame.t, latest)
        if crash is not None and (broke is None or crash <= broke):
            crash = self._nodes.down_since(missed, crash)
            assert crash is not None
            return self._crashed(story, pair, missed, holder, missed, crash)
        crash = self._nodes.first_down(holder, frame.t, frame.end)
        if crash is not None:
            return self._crashed(story, pair, holder, holder, missed, crash)
        if broke is not None:
            down_since = self._links.down_since((holder, missed), broke)
            assert down_since is not None
            detail = f"node {missed} was out of range when node {holder} sent at {clock(frame.t)}"
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
        crash = self._nodes.first_down(holder, held, begin + self._settling_time)
        if crash is not None:
            return self._crashed(story, pair, holder, holder, missed, crash)
        if any(frame.t >= since and frame.to in (None, missed) for frame in sent):
            detail = (
                f"node {holder} sent it over a link that stood, and the trace does not say what became of it"
            )
            return _Finding(LossReason.UNKNOWN, holder, missed, begin, detail)
        if begin + self._settling_time > self._run.duration:
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
            detail = f"node {holder} sent it at {clock(last.t)}, before the link came up, and not again"
        return _Finding(LossReason.NOT_SENT, holder, missed, max(last.t, since), detail)

    # Questions.

    def _first_hop(self, story: Story, pair: Expected) -> tuple[NodeId, NodeId, Micros] | None:
        """The holder, the next node on the path to the subscriber, and since when that path existed."""
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
        for since in dict.fromkeys((pair.since, story.publication.t)):
            hops = self._hops(story, event, since)
            if node in hops:
                while not story.holders >> hops[node].giver & 1:
                    node = hops[node].giver
                return hops[node].giver, node, hops[node].sent
        return None

    def _hops(self, story: Story, event: EventId, since: Micros) -> dict[NodeId, Hop]:
        """The journeys from the holders, from an instant on until the event's deadline."""
        if (event, since) not in self._reached:
            held = {node: max(t, since) for node, t in story.held_since.items()}
            until, airtime = self._rules.until(story.publication), self._rules.airtime(story.publication)
            self._reached[event, since] = self._journeys.earliest(held, until, airtime)
        return self._reached[event, since]

    def _deadline(self, story: Story) -> Micros:
        """Until when the event matters to its subscribers."""
        publication = story.publication
        if story.memorized:
            return min(publication.t + publication.lifetime, self._run.duration)
        last = max((frame.end for frame in story.frames), default=publication.t)
        return min(max(last, publication.t), self._run.duration)

    def _drops_of(self, story: Story, node: NodeId, to: NodeId | None = None) -> list[Dropped]:
        """The drops of the event at `node`, for everyone or for `to`, by time."""
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


def _of_drop(drop: Dropped) -> str:
    return f"node {drop.node} dropped it ({drop.message}{', ' if drop.detail else ''}{drop.detail})"
