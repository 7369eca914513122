"""Whole Chapar networks over an ideal radio, and an underlay that knows the relays at once, or OLSR."""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from roamcast.broker.core import Broker, Delivery, Subscription
from roamcast.broker.store import EventStore
from roamcast.event import Event, EventId, Publication
from roamcast.filter import Filter
from roamcast.host import Channel
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.host import SimHost
from roamcast.runtime.sim.links import RadioLinks
from roamcast.runtime.sim.medium import IdealMedium, Job
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.chapar import Chapar, ChaparOptions
from roamcast.strategy.chapar.brokers import Role
from roamcast.strategy.chapar.messages import CODEC, AnyMessage
from roamcast.streams import stream
from roamcast.trace import Dropped, DropReason, Trace
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.olsr import Olsr, OlsrOptions
from roamcast.units import Micros, NodeId, micros

Pair = tuple[NodeId, NodeId]
INTERVAL = 5.0
OPTIONS = ChaparOptions(
    consistency_interval=INTERVAL, dismissal_transient_time=8.0, role_interval=0.1, jitter=0.01
)

OLSR = OlsrOptions(**ChaparOptions().underlay_options())


class Relays(Underlay):
    """Knows the links of this instant, and computes the multipoint relays from them."""

    def __init__(self, node: NodeId, links: RadioLinks) -> None:
        super().__init__()
        self._node = node
        self._links = links

    def neighbours(self) -> list[NodeId]:
        return self._links.neighbours(self._node)

    def next_hop(self, to: NodeId) -> NodeId | None:
        return self._links.next_hop(self._node, to)

    def distance(self, to: NodeId) -> int | None:
        return self._links.distance(self._node, to)

    def known_nodes(self) -> list[NodeId]:
        return [node for node in self._links.connected(self._node) if node != self._node]

    def relays(self) -> list[NodeId]:
        here = self._links.connected(self._node)
        return sorted(set().union(*(relays_of(self._links, node) for node in here)))

    def report(self, before: list[NodeId]) -> None:
        now = self.neighbours()
        for gone in sorted(set(before) - set(now)):
            self._report_down(gone)
        for come in sorted(set(now) - set(before)):
            self._report_up(come)
        self._report_routes()


def relays_of(links: RadioLinks, node: NodeId) -> set[NodeId]:
    """A greedy cover of the strict 2-hop neighbours, lowest number first."""
    neighbours = links.neighbours(node)
    covers = {n: set(links.neighbours(n)) - {node, *neighbours} for n in neighbours}
    uncovered = set().union(*covers.values())
    chosen: set[NodeId] = set()
    while uncovered:
        best = max(neighbours, key=lambda n: (len(covers[n] & uncovered), -n))
        chosen.add(best)
        uncovered -= covers[best]
    return chosen


class Medium(IdealMedium):
    """Remembers every message, decoded."""

    def __init__(self, engine: Engine, links: RadioLinks, trace: Trace, random: Random, loss: float) -> None:
        super().__init__(engine, links, trace, random, loss)
        self.sent: list[tuple[NodeId, NodeId | None, AnyMessage]] = []

    def send(self, job: Job) -> None:
        if job.channel is Channel.STRATEGY:
            self.sent.append((job.sender, job.to, CODEC.decode(job.frame.payload)))
        super().send(job)


class Place:
    """One node of the network, as long as it does not crash."""

    def __init__(self, network: "Network", number: NodeId, boots: int) -> None:
        self.host = self._host(network, number, Channel.STRATEGY, stream(network.seed, "node", number, boots))
        store = network.stores[number] if network.stores else None  # a disk that outlives the node
        self.broker = Broker(self.host, network.application(number), store=store)
        self._olsr_host: SimHost | None = None
        self.underlay: Underlay = Relays(number, network.links)
        if network.has_olsr:
            host = self._host(network, number, Channel.UNDERLAY, stream(network.seed, "olsr", number, boots))
            self.underlay = Olsr(UnderlayContext(host), OLSR)
            host.attach(self.underlay)
            network.medium.receivers[Channel.UNDERLAY][number] = self.underlay.on_receive
            self._olsr_host = host
        self.chapar = Chapar(StrategyContext(self.host, self.broker, self.underlay, True), network.options)
        self.broker.watch(self.chapar)
        self.underlay.listen(self.chapar)
        self.host.attach(self.chapar)
        network.medium.receivers[Channel.STRATEGY][number] = self.chapar.on_receive

    def _host(self, network: "Network", number: NodeId, channel: Channel, random: Random) -> SimHost:
        stable = network.stable[number]
        engine, medium, trace = network.engine, network.medium, network.trace
        return SimHost(number, channel, engine, medium, trace, random, stable, None)

    def start(self) -> None:
        self.underlay.on_start()
        self.chapar.on_start()

    def die(self) -> None:
        self.host.die()
        if self._olsr_host is not None:
            self._olsr_host.die()


class Network:
    def __init__(
        self,
        nodes: int,
        links: Iterable[Pair] = (),
        *,
        seed: int = 1,
        options: ChaparOptions = OPTIONS,
        loss: float = 0.0,
        durable: bool = False,
        has_olsr: bool = False,
    ) -> None:
        self.seed = seed
        self.has_olsr = has_olsr
        self.stores = [EventStore() for _ in range(nodes)] if durable else []
        self.options = options
        self.engine = Engine()
        self.links = RadioLinks(nodes)
        self.trace = Trace()
        self.medium = Medium(self.engine, self.links, self.trace, stream(seed, "radio"), loss)
        self.stable: list[dict[str, bytes]] = [{} for _ in range(nodes)]
        self.delivered: list[tuple[Micros, NodeId, EventId]] = []
        self.filters: dict[tuple[NodeId, int], Filter] = {}
        self._pairs: set[Pair] = set()
        self._boots = 0
        self.places: dict[NodeId, Place] = {n: Place(self, n, 0) for n in range(nodes)}
        for place in self.places.values():
            place.start()
        self.connect(links)

    def application(self, number: NodeId) -> Any:
        network = self

        class Application:
            def on_event(self, delivery: Delivery) -> None:
                network.delivered.append((network.engine.now, number, delivery.event.id))

        return Application()

    # The world.

    def connect(self, pairs: Iterable[Pair]) -> None:
        """From now on exactly these links stand."""
        wanted = {(min(pair), max(pair)) for pair in pairs}
        before = {n: self.links.neighbours(n) for n in self.places}
        for a, b in sorted(wanted ^ self._pairs):
            for sender, receiver in ((a, b), (b, a)):
                self.links.plan(sender, receiver, (a, b) in wanted)
        self._pairs = wanted
        self._report(before)

    def crash(self, number: NodeId) -> None:
        before = {n: self.links.neighbours(n) for n in self.places}
        self.places.pop(number).die()
        for channel in (Channel.STRATEGY, Channel.UNDERLAY):
            self.medium.receivers[channel][number] = None
        self.links.crash(number)
        self._report(before)

    def restart(self, number: NodeId) -> None:
        before = {n: self.links.neighbours(n) for n in self.places}
        self.links.restart(number)
        self._boots += 1
        self.places[number] = Place(self, number, self._boots)
        self.places[number].start()
        for (node, subscription), wanted in sorted(self.filters.items()):
            if node == number:
                self.places[number].broker.subscribe(Subscription(subscription, wanted))
        self._report(before)

    def _report(self, before: dict[NodeId, list[NodeId]]) -> None:
        for number, place in self.places.items():
            if isinstance(place.underlay, Relays):
                place.underlay.report(before.get(number, []))

    def run(self, seconds: float) -> None:
        self.engine.run(self.engine.now + micros(seconds))

    # Applications.

    def publish(self, node: NodeId, attributes: dict[str, Any] | None = None, **fields: Any) -> Event:
        place = self.places[node]
        if "lifetime" in fields:
            fields["lifetime"] = micros(fields["lifetime"])
        event = place.broker.create(Publication(attributes or {}, **fields))
        place.broker.deliver(event, 0)
        place.chapar.publish(event)
        return event

    def subscribe(self, node: NodeId, sql: str = "TRUE", number: int = 0) -> None:
        wanted = Filter.everything() if sql == "TRUE" else Filter.sql(sql)
        self.filters[node, number] = wanted
        if node in self.places:
            self.places[node].broker.subscribe(Subscription(number, wanted))

    def unsubscribe(self, node: NodeId, number: int = 0) -> None:
        del self.filters[node, number]
        if node in self.places:
            self.places[node].broker.unsubscribe(number)

    # Questions.

    def got(self, event: Event) -> Counter[NodeId]:
        """How often each node but the publisher got the event."""
        return Counter(n for _, n, key in self.delivered if key == event.id and n != event.publisher)

    def brokers(self) -> list[NodeId]:
        return [n for n, place in sorted(self.places.items()) if place.chapar.brokers.is_broker]

    def frames(self, kind: type[AnyMessage]) -> list[tuple[NodeId, NodeId | None, Any]]:
        return [sent for sent in self.medium.sent if isinstance(sent[2], kind)]

    def drops(self, reason: DropReason) -> list[Dropped]:
        return [drop for drop in self.trace.of(Dropped) if drop.reason is reason]


def roles(network: Network) -> dict[NodeId, Role]:
    return {number: place.chapar.brokers.role for number, place in network.places.items()}


def line(nodes: int) -> list[Pair]:
    return [(n, n + 1) for n in range(nodes - 1)]


def clique(nodes: Iterable[NodeId]) -> list[Pair]:
    members = sorted(nodes)
    return [(a, b) for a in members for b in members if a < b]


def scattered(random: Random, nodes: int, reach: float) -> list[Pair]:
    """Links of nodes thrown into the unit square."""
    places = [(random.random(), random.random()) for _ in range(nodes)]
    return [
        (a, b)
        for a, b in clique(range(nodes))
        if (places[a][0] - places[b][0]) ** 2 + (places[a][1] - places[b][1]) ** 2 <= reach**2
    ]
