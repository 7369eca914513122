"""How near a run came to what its contacts and its radio allow: the limit of any protocol.

For each event after the warm-up (of very many, evenly spread ones), from the contact plan and the faults
alone: whom it can reach by when, one frame's airtime for each hop (`Journeys`). For some events, one drawn
from each of so many equal parts of the run, also the fewest broadcasts that serve the nodes which the run
itself served (`fewest.py`). Which events those are does not depend on the strategy, so runs of one seed are
judged by the same ones.

A frame here holds the event in its wire form and nothing else. A real-time event has no lifetime, so `[limit]
deadline` says until when it counts; what is delivered later is not in time. It does not count for a node that
was down after the publication: its subscriptions from before the restart are gone, and brokers refuse such an
event (`Broker.deliver`).

Fewest broadcasts: in the graph of the instant of publication where that leads to all served nodes of a
real-time event; else over the time until the deadline, cut at most `INTERVALS_MAX` times. Where links change
more often, neighbouring intervals are united, which can only lower the limit; the solution known is then that
of the earliest journeys.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from roamcast.event import Event, EventClass, EventId
from roamcast.lab.run.fewest import fewest
from roamcast.lab.run.graph import Hop, Journeys, nodes_up
from roamcast.lab.run.tables import AttainablePair, Derived, EventLimit, Expected, RunInfo, records
from roamcast.scenario.model import LimitTable, model_type
from roamcast.trace import Delivered, FaultHappened, LinkChanged, Published, Trace
from roamcast.units import Micros, NodeId, micros
from roamcast.world.radio import Radio
from roamcast.world.reach import members

INTERVALS_MAX = 60  # chosen by us, as is the next: some ten milliseconds an event
JOURNEYS = 60  # events with journeys for each one with broadcasts; chosen by us: all of a run of the league
STATES_MAX = 1_000  # nodes times intervals: the cost grows with their square
NODES_MAX = 500  # of networks whose fewest broadcasts are computed


class LimitRules(NamedTuple):
    """What the limit depends on beside the contacts. A live run, without a scenario, has the defaults."""

    table: LimitTable
    radio: Radio
    duration: Micros

    @classmethod
    def of(cls, run: RunInfo) -> "LimitRules":
        radio = run.scenario.get("world", {}).get("radio", {"model": "ideal"})
        return cls(
            msgspec.convert(run.scenario.get("limit", {}), LimitTable),
            msgspec.convert(radio, model_type("radio", radio)),
            run.duration,
        )

    def until(self, event: Published) -> Micros:
        """The deadline of an event."""
        memorized = event.event_class == EventClass.MEMORIZED.value
        lasts = event.lifetime if memorized else micros(self.table.deadline)
        return min(event.t + lasts, self.duration)

    def airtime(self, event: Published) -> Micros:
        alone = Event(
            event.publisher,
            event.sequence,
            msgspec.json.decode(event.attributes),
            bytes(event.size),
            event.topic,
            event.type,
            EventClass(event.event_class),
            event.lifetime,
            event.destinations,
            event.multimode,
        )
        return self.radio.airtime(len(msgspec.msgpack.encode(alone)))


def limits(trace: Trace, truth: Iterable[Expected], run: RunInfo) -> list[Derived]:
    """The rows of one run: a limit for each event after the warm-up, and the pairs that were attainable."""
    rules = LimitRules.of(run)
    if not rules.table.events:
        return []
    faults = trace.of(FaultHappened)
    journeys, nodes = Journeys(trace.of(LinkChanged), faults), nodes_up(faults)
    pairs = _pairs(truth)
    delivered = _delivered(trace.of(Delivered))
    published = sorted(
        (event for event in trace.of(Published) if event.t >= run.warmup),
        key=lambda event: (event.t, event.publisher, event.sequence),
    )
    events = [published[at] for at in spread_evenly(len(published), JOURNEYS * rules.table.events)]
    chosen = set(drawn_evenly(len(events), rules.table.events if run.nodes <= NODES_MAX else 0))
    rows: list[Derived] = []
    for number, event in enumerate(events):
        key = EventId(event.publisher, event.sequence)
        until, airtime = rules.until(event), rules.airtime(event)
        arrivals = earliest_arrivals(journeys, event, pairs[key], until, airtime)
        for pair in pairs[key]:
            t = max(arrivals.get(pair.node, until + 1), pair.since)
            is_for_it = event.lifetime or nodes.first_down(pair.node, event.t, t) is None
            if t <= until and is_for_it:
                rows.append(AttainablePair(*key, pair.node, t))
        at_least = at_most = None
        if number in chosen:
            served = _served(pairs[key], delivered[key], until)
            at_least, at_most, _ = fewest_broadcasts(journeys, event, served, until, airtime)
        rows.append(EventLimit(*key, until, airtime, at_least, at_most))
    return rows


def best_trees(
    tables: Mapping[str, pa.Table], run: RunInfo, wanted: EventId | None = None
) -> dict[EventId, "BestTree"]:
    """Of the events whose fewest broadcasts are in the tables, and of the wanted one."""
    rules = LimitRules.of(run)
    chosen = {EventId(e.publisher, e.sequence) for e in records(tables, EventLimit) if e.fewest is not None}
    if not chosen:
        return {}
    chosen |= {wanted} if wanted is not None else set()
    journeys = Journeys(records(tables, LinkChanged), records(tables, FaultHappened))
    pairs, delivered = _pairs(records(tables, Expected)), _delivered(records(tables, Delivered))
    found = {}
    for event in records(tables, Published):
        key = EventId(event.publisher, event.sequence)
        if key in chosen:
            until, airtime = rules.until(event), rules.airtime(event)
            served = _served(pairs[key], delivered[key], until)
            found[key] = fewest_broadcasts(journeys, event, served, until, airtime)
    return found


def _pairs(truth: Iterable[Expected]) -> defaultdict[EventId, list[Expected]]:
    found: defaultdict[EventId, list[Expected]] = defaultdict(list)
    for pair in truth:
        found[EventId(pair.publisher, pair.sequence)].append(pair)
    return found


def _delivered(deliveries: Iterable[Delivered]) -> defaultdict[EventId, dict[NodeId, Micros]]:
    """For each event, when each node first had it."""
    found: defaultdict[EventId, dict[NodeId, Micros]] = defaultdict(dict)
    for record in deliveries:
        if record.matched:
            found[EventId(record.publisher, record.sequence)].setdefault(record.node, record.t)
    return found


def _served(pairs: Iterable[Expected], delivered: Mapping[NodeId, Micros], until: Micros) -> list[Expected]:
    return [pair for pair in pairs if delivered.get(pair.node, until + 1) <= until]


def spread_evenly(count: int, wanted: int) -> list[int]:
    """At most so many of `count` places, evenly spread."""
    taken = min(count, wanted)
    return [(2 * place + 1) * count // (2 * taken) for place in range(taken)]


def drawn_evenly(count: int, wanted: int) -> list[int]:
    """One place of each of so many equal parts. Publishers take turns: places at equal distances would be
    those of one publisher, which may be in a corner of its own."""
    taken = min(count, wanted)
    edges = [part * count // taken for part in range(taken + 1)] if taken else []
    draw = Random(count)  # the same for every strategy
    return [draw.randrange(begin, end) for begin, end in pairwise(edges)]


def earliest_arrivals(
    journeys: Journeys, event: Published, pairs: Sequence[Expected], until: Micros, airtime: Micros
) -> dict[NodeId, Micros]:
    """When the event can reach each node of the pairs to which a journey leads."""
    hops = [pair.hops for pair in pairs if pair.hops is not None]
    if len(hops) == len(pairs) and journeys.rests(event.t, event.t + max(hops, default=0) * airtime):
        return {p.node: event.t + p.hops * airtime for p in pairs if p.hops is not None}
    wanted = sum(1 << pair.node for pair in pairs)
    found = journeys.earliest({event.publisher: event.t}, until, airtime, wanted)
    return {node: hop.t for node, hop in found.items()}


class Broadcast(NamedTuple):
    sender: NodeId
    t: Micros  # at the earliest
    receivers: tuple[NodeId, ...]  # that have the event by it first


class BestTree(NamedTuple):
    """Bounds on the broadcasts that an event needs, and the best solution known."""

    at_least: int
    at_most: int
    broadcasts: list[Broadcast]


def fewest_broadcasts(
    journeys: Journeys, event: Published, served: Sequence[Expected], until: Micros, airtime: Micros
) -> BestTree:
    """The fewest broadcasts that serve the nodes of these pairs, all of which were served."""
    hops: dict[NodeId, Hop] = {}
    cuts, united = [event.t], False
    if event.event_class == EventClass.MEMORIZED.value or not all(pair.reachable for pair in served):
        hops = journeys.earliest({event.publisher: event.t}, until, airtime)
        cuts += journeys.instants(event.t, until)
        most = max(1, min(INTERVALS_MAX, STATES_MAX // (len(hops) + 1)))
        united = len(cuts) > most
        if united:
            cuts = [event.t, *(cuts[at] for at in spread_evenly(len(cuts), most)[1:])]
    else:
        until = event.t
    nodes = [event.publisher, *(hops or journeys.connected(event.publisher, event.t))]
    goals = {pair.node for pair in served}.intersection(nodes)
    ready = {event.publisher: event.t, **{node: hop.t for node, hop in hops.items()}}
    hearers = journeys.states(nodes, cuts, until, ready)
    last = len(nodes) * (len(cuts) - 1)
    bits = sum(1 << last + at for at, node in enumerate(nodes) if node in goals)
    found = fewest(hearers, 1, bits, len(nodes), exact=not hops)
    if united:
        broadcasts = _of_journeys(hops, goals)
        return BestTree(found.at_least, max(found.at_least, len(broadcasts)), broadcasts)
    return BestTree(found.at_least, found.at_most, _broadcasts(found.senders, hearers, nodes, cuts))


def _of_journeys(hops: Mapping[NodeId, Hop], goals: Iterable[NodeId]) -> list[Broadcast]:
    """The earliest journeys to all goals; frames that leave a node together are one broadcast."""
    receivers: defaultdict[tuple[Micros, NodeId], set[NodeId]] = defaultdict(set)
    for node in goals:
        while node in hops:
            hop = hops[node]
            receivers[hop.sent, hop.giver].add(node)
            node = hop.giver
    return [Broadcast(sender, t, tuple(sorted(to))) for (t, sender), to in sorted(receivers.items())]


def _broadcasts(
    senders: Sequence[int], hearers: Sequence[int], nodes: Sequence[NodeId], cuts: Sequence[Micros]
) -> list[Broadcast]:
    """States as nodes and times, in an order in which each sender has the event."""
    made: list[Broadcast] = []
    has, left = {0}, list(senders)  # places in `nodes`
    while left:
        state = next(state for state in left if state % len(nodes) in has)
        left.remove(state)
        interval, _ = divmod(state, len(nodes))
        heard = {hearer % len(nodes) for hearer in members(hearers[state])} - has
        has |= heard
        to = tuple(sorted(nodes[at] for at in heard))
        made.append(Broadcast(nodes[state % len(nodes)], cuts[interval], to))
    return made
