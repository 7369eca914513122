"""Who does what and when: roles, subscriptions, publications and faults, computed from the seed.

Every draw comes from a stream of its own (`roamcast.streams`), and only `Random.random()` is used:
of all methods it is the one whose values Python promises to keep. The same scenario and seed give the
same lists on every machine.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

from roamcast.errors import ScenarioError
from roamcast.event import EventClass, Publication
from roamcast.filter import Filter
from roamcast.filter.expression import And, Compare, Expression, OfType, OnTopic, Operator, Or
from roamcast.filter.xpath.translation import DocumentShape
from roamcast.modulator import ModulatorSpec, make
from roamcast.scenario.model import (
    ArrivalProcess,
    Chosen,
    FaultEntry,
    FaultKind,
    PublicationEntry,
    Scenario,
    SubscriptionEntry,
    Workload,
)
from roamcast.streams import stream
from roamcast.units import SECOND, Micros, NodeId, micros

KEYS = 10_000
"""Generated events have an attribute `key`, a number from 0 to KEYS - 1; see `arc_filter`. Chosen by us: it
is the resolution of the arcs."""


class Roles(NamedTuple):
    """Node numbers in increasing order."""

    brokers: list[NodeId]
    publishers: list[NodeId]
    subscribers: list[NodeId]


class SubscriptionPlan(NamedTuple):
    node: NodeId
    subscription: int  # unique in the run, hence on the node
    filter: Filter
    since: Micros
    until: Micros | None
    modulator: ModulatorSpec | None = None


class AdvertisementPlan(NamedTuple):
    node: NodeId
    type: str
    since: Micros
    until: Micros | None


class PublicationPlan(NamedTuple):
    time: Micros
    node: NodeId
    publication: Publication


def roles(scenario: Scenario) -> Roles:
    """Who has which role. Subscriptions and publications listed in the file determine their roles."""
    subscriptions, publications = scenario.workload.subscriptions, scenario.workload.publications
    return Roles(
        _chosen(scenario, "brokers", scenario.roles.brokers),
        _chosen(scenario, "publishers", scenario.roles.publishers)
        if publications is None
        else sorted({entry.node for entry in publications}),
        _chosen(scenario, "subscribers", scenario.roles.subscribers)
        if subscriptions is None
        else sorted({entry.node for entry in subscriptions}),
    )


def subscriptions(scenario: Scenario) -> list[SubscriptionPlan]:
    """By time, then node, then subscription number."""
    entries = scenario.workload.subscriptions
    if entries is None:
        plans = _generated_subscriptions(scenario)
    else:
        plans = _written_subscriptions(entries, schema_of(scenario))
    return sorted(plans, key=lambda plan: (plan.since, plan.node, plan.subscription))


def advertisements(scenario: Scenario) -> list[AdvertisementPlan]:
    """By time, then node, then type."""
    plans = [
        AdvertisementPlan(
            entry.node,
            entry.type,
            micros(entry.since),
            None if entry.until is None else micros(entry.until),
        )
        for entry in scenario.workload.advertisements or ()
    ]
    return sorted(plans, key=lambda plan: (plan.since, plan.node, plan.type))


def publications(scenario: Scenario) -> list[PublicationPlan]:
    """By time, then node; those of one node at one instant in their own order."""
    entries = scenario.workload.publications
    if entries is None:
        plans = [plan for node in roles(scenario).publishers for plan in _published_by(scenario, node)]
    else:
        plans = [
            PublicationPlan(micros(entry.t), entry.node, publication_of(entry, scenario.workload))
            for entry in entries
        ]
    return sorted(plans, key=lambda plan: (plan.time, plan.node))


def filter_of(entry: SubscriptionEntry, schema: DocumentShape | None = None) -> Filter:
    """All the conditions of one entry together; a `FilterError` if one is outside its language."""
    terms: list[Expression] = []
    if entry.filter is not None:
        terms.append(Filter.sql(entry.filter).expression)
    if entry.xpath is not None:
        terms.append(Filter.xpath(entry.xpath, schema).expression)
    if entry.topic is not None:
        terms.append(OnTopic(entry.topic))
    if entry.type is not None:
        terms.append(OfType(entry.type))
    return Filter(terms[0] if len(terms) == 1 else And(tuple(terms)))


def modulator_of(entry: SubscriptionEntry) -> ModulatorSpec | None:
    """The modulator of one entry; an `InputError` if no broker could run it."""
    if entry.modulator is None:
        return None
    parameters = {key: value for key, value in entry.modulator.items() if key != "name"}
    spec = ModulatorSpec.of(str(entry.modulator.get("name", "")), parameters)
    make(spec)
    return spec


def publication_of(entry: PublicationEntry, workload: Workload) -> Publication:
    """What one entry publishes; an `EventError` if it is no valid event."""
    event_class = entry.event_class or workload.event_class
    lifetime = workload.lifetime if entry.lifetime is None else entry.lifetime
    return Publication(
        dict(entry.attributes),
        _payload(workload.size if entry.size is None else entry.size),
        entry.topic,
        entry.type,
        micros(lifetime) if event_class is EventClass.MEMORIZED else 0,
        tuple(sorted(entry.to)),
        entry.multimode,
    )


@lru_cache(maxsize=16)
def _payload(size: int) -> bytes:
    """One object for all events of that size."""
    return bytes(size)


def schema_of(scenario: Scenario) -> DocumentShape | None:
    """The schema that the file names; an `InputError` if it cannot be read."""
    if scenario.workload.schema is None:
        return None
    from roamcast.xml import Schema  # few scenarios have one, and lxml takes its time to load

    return Schema.load(scenario.base / scenario.workload.schema)


def count_of(chosen: Chosen, nodes: int) -> int:
    """How many nodes a role has."""
    if isinstance(chosen, int):
        return chosen
    return nodes if chosen == "all" else len(chosen)


def _chosen(scenario: Scenario, role: str, chosen: Chosen) -> list[NodeId]:
    if chosen == "all":
        return list(range(scenario.nodes))
    if isinstance(chosen, tuple):
        return sorted(chosen)
    # The first nodes of one shuffled order: a node that is among 10 publishers is also among 20.
    random = stream(scenario.seed, "roles", role)
    order = sorted(range(scenario.nodes), key=lambda node: (random.random(), node))
    return sorted(order[:chosen])


def _generated_subscriptions(scenario: Scenario) -> list[SubscriptionPlan]:
    subscribers = roles(scenario).subscribers
    return [
        SubscriptionPlan(node, index, arc_filter(index, len(subscribers), scenario.workload.match), 0, None)
        for index, node in enumerate(subscribers)
    ]


def arc_filter(index: int, subscribers: int, match: float) -> Filter:
    """What subscriber `index` wants, so that each event matches the share `match` of all of them.

    The subscribers are placed evenly on a circle of `KEYS` keys. Each wants the arc that begins at its place
    and covers the share `match` of the circle. So every key lies on the share `match` of the arcs, up to
    rounding to whole subscribers.
    """
    length = round(match * KEYS)
    first = index * KEYS // subscribers
    end = first + length
    if length == KEYS:
        return Filter.everything()  # also matches publications of the file that have no `key`
    if length == 0:
        return Filter(Compare("key", Operator.LESS, 0))
    from_first = Compare("key", Operator.GREATER_OR_EQUAL, first)
    if end <= KEYS:
        return Filter(And((from_first, Compare("key", Operator.LESS, end))))
    return Filter(Or((from_first, Compare("key", Operator.LESS, end - KEYS))))


def _written_subscriptions(
    entries: tuple[SubscriptionEntry, ...], schema: DocumentShape | None
) -> list[SubscriptionPlan]:
    return [
        SubscriptionPlan(
            entry.node,
            index,
            filter_of(entry, schema),
            micros(entry.since),
            None if entry.until is None else micros(entry.until),
            modulator_of(entry),
        )
        for index, entry in enumerate(entries)
    ]


def _published_by(scenario: Scenario, node: NodeId) -> Iterator[PublicationPlan]:
    workload = scenario.workload
    lifetime = micros(workload.lifetime) if workload.event_class is EventClass.MEMORIZED else 0
    payload = _payload(workload.size)
    keys = stream(scenario.seed, "keys", node)
    for time in _times(scenario, stream(scenario.seed, "publications", node)):
        key = int(keys.random() * KEYS)
        yield PublicationPlan(time, node, Publication({"key": key}, payload, lifetime=lifetime))


def _times(scenario: Scenario, random: Random) -> Iterator[Micros]:
    """When one publisher publishes: from `start`, before `stop`."""
    rate, start, stop = scenario.workload.rate, micros(scenario.workload.start), scenario.stop
    if rate == 0:
        return
    gap = SECOND / rate
    periodic = scenario.workload.arrival is ArrivalProcess.PERIODIC
    elapsed = _periodic(random, gap) if periodic else _poisson(random, gap)
    times = (start + int(since_start) for since_start in elapsed)
    yield from itertools.takewhile(lambda time: time < stop, times)


def _periodic(random: Random, gap: float) -> Iterator[float]:
    phase = random.random()
    return (gap * (phase + count) for count in itertools.count())


def _poisson(random: Random, gap: float) -> Iterator[float]:
    # 1 - random() is never 0.
    waits = (-math.log(1.0 - random.random()) * gap for _ in itertools.count())
    return itertools.accumulate(waits)


class FaultPlan(NamedTuple):
    """One change. `peer` is None for a node's fault; a link has node < peer, and both directions change."""

    time: Micros
    kind: FaultKind
    node: NodeId
    peer: NodeId | None = None


def faults(scenario: Scenario) -> list[FaultPlan]:
    """The changes in the order in which they happen; those of one instant in the order of the file.

    Only real changes are listed: cutting a link that is cut already changes nothing. A fault of which no
    part changes anything (a restart of a node that runs) is an error of the file.
    """
    entries = sorted(enumerate(scenario.fault), key=lambda numbered: numbered[1].at)
    down: set[NodeId] = set()
    cut: set[tuple[NodeId, NodeId]] = set()
    plans: list[FaultPlan] = []
    for index, entry in entries:
        at = f"fault[{index}]"
        time = micros(entry.at)
        if entry.kind in (FaultKind.CRASH, FaultKind.RESTART):
            plans.extend(FaultPlan(time, entry.kind, node) for node in _nodes_changed(entry, down, at))
        else:
            links = _links_changed(entry, cut, scenario.nodes, at)
            plans.extend(FaultPlan(time, entry.kind, a, b) for a, b in links)
    return plans


def _nodes_changed(entry: FaultEntry, down: set[NodeId], at: str) -> list[NodeId]:
    crash = entry.kind is FaultKind.CRASH
    for node in entry.nodes:
        if (node in down) == crash:
            state = "down already" if crash else "not down"
            raise ScenarioError(f"{at}.nodes", f"names node {node}, which is {state} at {entry.at} s")
        down.symmetric_difference_update([node])
    return list(entry.nodes)


def _links_changed(
    entry: FaultEntry, cut: set[tuple[NodeId, NodeId]], nodes: int, at: str
) -> list[tuple[NodeId, NodeId]]:
    wanted = (
        {(min(a, b), max(a, b)) for a, b in entry.links} if entry.links else set(_around(entry.nodes, nodes))
    )
    changed = wanted - cut if entry.kind is FaultKind.CUT else wanted & cut
    if not changed:
        state = "cut already" if entry.kind is FaultKind.CUT else "not cut"
        raise ScenarioError(at, f"changes nothing: every link it names is {state} at {entry.at} s")
    cut.symmetric_difference_update(changed)
    return sorted(changed)


def _around(group: Iterable[NodeId], nodes: int) -> Iterable[tuple[NodeId, NodeId]]:
    """The links between a group and the rest; those inside the group stay as they are."""
    inside = set(group)
    return ((min(a, b), max(a, b)) for a in sorted(inside) for b in range(nodes) if b not in inside)
