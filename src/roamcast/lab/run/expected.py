"""Ground truth: who should get which event, how far away it was, and who received it without wanting it.

Derived after the run from what applications did and from the contact graph alone, so no strategy can
influence it: filters are tried one by one, without any index.

Two rules for events of the same instant: link changes and faults come before publications (`graph.py`),
and a subscription made at `t` stands for an event published at `t`, one ended at `t` does not.

Not covered: filters that look into the payload. The trace holds an event's attributes, topic and type,
not its payload.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from roamcast.event import Event, EventClass
from roamcast.filter import Filter
from roamcast.lab.run.graph import ContactGraph
from roamcast.lab.run.tables import Expected, ReachedNodes
from roamcast.runtime.sim.simulation import path_instants
from roamcast.trace import (
    FaultHappened,
    LinkChanged,
    NodeSet,
    PathsSampled,
    Published,
    Subscribed,
    Trace,
    Transmitted,
)
from roamcast.units import Micros, NodeId


def expected(trace: Trace) -> list[Expected]:
    """The pairs of one run, by publication and then by node."""
    interests = RecordedInterests(trace.of(Subscribed))
    graph = ContactGraph(trace.of(LinkChanged), trace.of(FaultHappened))
    rows = []
    known: dict[NodeId, dict[NodeId, int]] = {}  # distances, until the graph changes
    known_epoch = graph.epoch
    for publication in sorted(trace.of(Published), key=_time):
        graph.advance(publication.t)
        if graph.epoch != known_epoch:
            known_epoch = graph.epoch
            known.clear()
        if publication.publisher not in known:
            known[publication.publisher] = graph.distances(publication.publisher)
        for node, since in sorted(interests.in_event(publication).items()):
            hops = known[publication.publisher].get(node)
            rows.append(
                Expected(publication.publisher, publication.sequence, node, since, hops is not None, hops)
            )
    return rows


class StandingInterest(NamedTuple):
    """A subscription and the time in which it was active: [since, until)."""

    node: NodeId
    since: Micros
    until: Micros | None  # None: to the end of the run
    filter: str


class RecordedInterests:
    """All subscriptions of a run; results are cached, because workloads repeat their events."""

    def __init__(
        self,
        subscriptions: Iterable[Subscribed],
        parse: Callable[[str], Filter] = Filter.parse,
    ) -> None:
        self._by_filter: dict[str, list[StandingInterest]] = {}
        for interest in standing(subscriptions):
            self._by_filter.setdefault(interest.filter, []).append(interest)
        self._filters = {text: parse(text) for text in self._by_filter}
        self._matching: dict[tuple[str, str, str], list[StandingInterest]] = {}

    def in_event(self, event: Published) -> dict[NodeId, Micros]:
        """Who should get the event, and since when; never its publisher."""
        nodes = dict.fromkeys(event.destinations, event.t)
        if event.multimode or not event.destinations:
            last = event.t
            if event.event_class == EventClass.MEMORIZED.value:
                last += event.lifetime
            for interest in self.matching(event):
                if interest.since <= last and (interest.until is None or interest.until > event.t):
                    since = max(event.t, interest.since)
                    nodes[interest.node] = min(since, nodes.get(interest.node, since))
        nodes.pop(event.publisher, None)
        return nodes

    def ended(self, event: Published, node: NodeId, by: Micros) -> Micros | None:
        """When the last matching subscription of `node` ended, if none stands at `by`."""
        if node in event.destinations:
            return None
        ends = [i.until for i in self.matching(event) if i.node == node and i.since <= by]
        past = [until for until in ends if until is not None and until <= by]
        return max(past) if past and len(past) == len(ends) else None

    def matching(self, event: Published) -> list[StandingInterest]:
        """Every subscription, of whatever time, whose filter matches."""
        key = (event.topic, event.type, event.attributes)
        if key not in self._matching:
            trial = Event(
                event.publisher,
                event.sequence,
                msgspec.json.decode(event.attributes, type=dict[str, bool | int | float | str | None]),
                topic=event.topic,
                type=event.type,
            )
            self._matching[key] = [
                interest
                for text, interests in self._by_filter.items()
                if self._filters[text].matches(trial)
                for interest in interests
            ]
        return self._matching[key]


def standing(subscriptions: Iterable[Subscribed]) -> list[StandingInterest]:
    """When each subscription stood. Subscribing again under the same number replaces it."""
    interests = []
    opened: dict[tuple[NodeId, int], Subscribed] = {}
    for record in sorted(subscriptions, key=_time):
        key = (record.node, record.subscription)
        earlier = opened.pop(key, None)
        if earlier is not None:
            interests.append(StandingInterest(record.node, earlier.t, record.t, earlier.filter))
        if record.stands:
            opened[key] = record
    interests.extend(StandingInterest(r.node, r.t, None, r.filter) for r in opened.values())
    return interests


def sample_paths(
    links: Iterable[LinkChanged],
    faults: Iterable[FaultHappened],
    brokers: Sequence[NodeId],
    nodes: int,
    warmup: Micros,
    duration: Micros,
) -> list[PathsSampled]:
    """Shortest physical paths between brokers, over ordered pairs that have one.

    Sampled at the evenly spaced instants of [warmup, duration) that `path_instants` names. With one-way links
    the two directions of a pair count apart; without, the mean is that of unordered pairs.
    """
    graph = ContactGraph(links, faults)
    samples = []
    known_epoch, lengths = -1, (0, 0)
    for instant in path_instants(warmup, duration, nodes):
        graph.advance(instant)
        if graph.epoch != known_epoch:
            known_epoch, lengths = graph.epoch, graph.path_lengths(brokers, nodes)
        pairs, hops = lengths
        samples.append(PathsSampled(instant, "network", pairs, hops))
    return samples


def reached(transmissions: Iterable[Transmitted], expected: Iterable[Expected]) -> list[ReachedNodes]:
    """Noise: one row per event that was received by somebody, by publisher and sequence.

    A broadcast is heard by every neighbour of its sender, so relays and nodes that only overhear both count
    as noise: both received and decoded something that no application on their node asked for. Relays are
    also counted apart.
    """
    heard: dict[tuple[NodeId, int], NodeSet] = {}
    sent: dict[tuple[NodeId, int], NodeSet] = {}
    for frame in transmissions:
        if frame.publisher is not None and frame.sequence is not None:
            event = (frame.publisher, frame.sequence)
            heard[event] = heard.get(event, 0) | frame.received
            sent[event] = sent.get(event, 0) | 1 << frame.node
    wanted: dict[tuple[NodeId, int], NodeSet] = {}
    for pair in expected:
        event = (pair.publisher, pair.sequence)
        wanted[event] = wanted.get(event, 0) | 1 << pair.node
    rows = []
    for (publisher, sequence), nodes in sorted(heard.items()):
        others = nodes & ~(1 << publisher)
        unwanted = others & ~wanted.get((publisher, sequence), 0)
        if others:
            relays = unwanted & sent[publisher, sequence]
            counts = (others.bit_count(), unwanted.bit_count(), relays.bit_count())
            rows.append(ReachedNodes(publisher, sequence, *counts))
    return rows


def _time(record: Published | Subscribed) -> Micros:
    return record.t
