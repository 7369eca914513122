"""Adaptors (section 3.5): small classes that subscribe to system events and react to them.

A new one is a subclass of `Adaptor` that is added to `ADAPTORS` before the node starts; the option `adaptors`
then names it. Nothing else has to change. `docs/protocols/adaptors.md` shows one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roamcast.errors import ScenarioError
from roamcast.filter import Filter
from roamcast.filter.expression import Compare, Operator
from roamcast.strategy.opportunistic.adaptation.events import (
    BrokerDiscovered,
    Measured,
    NeighboursFound,
    Overloaded,
    TimeCame,
)
from roamcast.strategy.opportunistic.adaptation.services import Alternative, LatencyService, Services
from roamcast.units import Micros, NodeId

GAIN = 0.1  # of the time: two measurements of one way differ too, and a client must not go to and fro


def load_above(limit: float) -> Filter:
    """Not as SQL: a device would load the parser, 8 MB of it, for one condition."""
    return Filter(Compare("load_load", Operator.GREATER, limit))


class Adaptor:
    def __init__(self, services: Services) -> None:
        self.brokers = services.brokers
        self.clients = services.clients
        self.relocation = services.relocation
        self.directory = services.directory
        self.channel = services.channel
        self.limits = services.limits
        self.monitor = services.monitor
        self.latencies = services.latencies

    def subscribe(self) -> None:
        """Register with `self.channel` for the events that matter."""
        raise NotImplementedError

    def process(self, event: Any) -> None:
        """React. Called for each such event, with the clock standing still."""
        raise NotImplementedError


# Which broker is a client's home (channels, 3.1; overlays, 2.4).


class SimpleHomeBroker(Adaptor):
    """Always the nearest broker, however loaded and wherever the producers are."""

    def subscribe(self) -> None:
        self.channel.subscribe(BrokerDiscovered, self.process)

    def process(self, found: BrokerDiscovered) -> None:
        """Step 1 of the channels: whom the broker information server names, if there is one."""
        self.directory.alternative(found.candidate, lambda other: self.consider(_by(found, other)))

    def consider(self, found: BrokerDiscovered) -> None:
        if found.candidate != self.brokers.own:
            self.relocation.migrate(found.client, found.candidate)


class ComplexHomeBroker(SimpleHomeBroker):
    """The five steps of the overlays' section 2.4: loads first, then the average path from all producers.

    The other broker's load counts as it would be with the client. Otherwise the client itself could overload
    that broker, and would be sent back. The other broker may still refuse, because it may have taken other
    clients meanwhile."""

    def consider(self, found: BrokerDiscovered) -> None:
        own, other = self.brokers.own, found.candidate
        if other == own:
            return
        work = self.clients.work(found.client)
        # Overload says nothing about a client that takes no time of a processor, as most producers.
        has_limit = self.limits.overload_control and work > 0
        limit = self.limits.overload if has_limit else float("inf")
        load, other_load = self.brokers.load(own), found.load + work
        below = max(limit, load) if has_limit else None
        if load > limit and other_load > limit:
            self._move_if(other_load < load, found, below)
        elif load > limit or other_load > limit:
            self._move_if(load > limit, found, below)
        else:
            self._compare(found, below)

    def _compare(self, found: BrokerDiscovered, below: float | None) -> None:
        own, sources = self.brokers.own, self.clients.source_brokers(found.client)

        def compared(is_shorter: bool | None) -> None:
            if is_shorter is None:
                is_shorter = is_fewer_hops(found, own, sources, self.brokers.path)
            self._move_if(is_shorter, found, below)

        if self.limits.by_latency and self.latencies is not None:
            compare_in_time(self.latencies, found, own, sources, compared)
        else:
            compared(None)

    def _move_if(self, moves: bool, found: BrokerDiscovered, below: float | None) -> None:
        if moves:
            self.relocation.migrate(found.client, found.candidate, below)


def _by(found: BrokerDiscovered, other: Alternative | None) -> BrokerDiscovered:
    """None: the client's own finding stands."""
    if other is None:
        return found
    return found._replace(candidate=other.broker, load=other.load, distance=found.distance + other.hops)


def is_fewer_hops(
    found: BrokerDiscovered,
    own: NodeId,
    sources: Sequence[NodeId],
    path: Callable[[NodeId, NodeId], float | None],
) -> bool:
    """By the sum over all producers, so that equal paths are equal to the last digit. A producer without a
    path to one of the two is left out. Before any producer is known, only the way from the broker to the
    client counts."""
    gain, last, compared = 0.0, found.home_distance - found.distance, 0
    for source in sources:
        here, there = path(source, own), path(source, found.candidate)
        if here is not None and there is not None:
            gain += here + last - there
            compared += 1
    return gain > 0 if compared else last > 0


def compare_in_time(
    latencies: LatencyService,
    found: BrokerDiscovered,
    own: NodeId,
    sources: Sequence[NodeId],
    on_compared: Callable[[bool | None], None],
) -> None:
    """`on_compared` gets None where the client answered one of the two brokers only: nobody can tell."""
    client, other = found.client, found.candidate
    peers = sorted({client, *sources})

    def compare(here: Mapping[NodeId, Micros], there: Mapping[NodeId, Micros]) -> None:
        if client not in here or client not in there:
            on_compared(None)
            return
        known = [source for source in sources if source in here and source in there]
        old = sum(here[source] for source in known) + max(len(known), 1) * here[client]
        new = sum(there[source] for source in known) + max(len(known), 1) * there[client]
        on_compared(new < (1 - GAIN) * old)

    latencies.ask(own, peers, lambda here: latencies.ask(other, peers, lambda there: compare(here, there)))


# The broker network (section 2.3), and how its work is spread.


class BrokerTopology(Adaptor):
    """Section 3.5: "Interesting events are a time event and a broker propagation event". The second needs
    no action here, because all nodes pass rows on, and routes are computed when they are asked for. The end
    of a search is an event too, because a search takes time here."""

    def subscribe(self) -> None:
        self.channel.subscribe(TimeCame, self.process, lambda event: event.name == "broker_update")
        self.channel.subscribe(NeighboursFound, self.process)

    def process(self, event: TimeCame | NeighboursFound) -> None:
        match event:
            case TimeCame():
                self.brokers.discover_neighbours()
            case NeighboursFound():
                self.brokers.propagate()


class LoadBalancing(Adaptor):
    """An overloaded broker gives half of its modulators to the nearest less loaded one (channels, 4.1).

    Half, as the paper has it: fewer relocations than one after the other. Where no broker has room for that,
    half of it, and so on to the smallest modulator alone: else one would stay overloaded although another has
    room. A broker that found nobody tries again when the topology changes (2.2): a new broker may have it."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._rests_until: Micros = 0
        self._found_nobody = False

    def subscribe(self) -> None:
        self.channel.subscribe(Measured, self.process, self._is_over)
        if self.monitor is not None and self.limits.overload_control:
            changed = self.monitor.condition("topology", load_above(self.limits.overload))
            self.channel.subscribe(Measured, self._on_change, changed)

    def _on_change(self, event: Measured) -> None:
        if self._found_nobody:
            self._rests_until = 0

    def process(self, event: Measured) -> None:
        now, load = int(event.values["now"]), float(event.values["load"])
        # This node's own client goes last: nowhere else is its way so short.
        own, work = self.brokers.own, self.clients.work
        lightest_first = sorted(self.clients.modulated(), key=lambda node: (node == own, work(node), node))
        if now >= self._rests_until and lightest_first:
            self._rests_until = now + self.limits.rest
            self._give(lightest_first[: max(len(lightest_first) // 2, 1)], load)

    def _is_over(self, event: Measured) -> bool:
        own = event.kind == "load" and event.node == self.brokers.own and self.limits.overload_control
        return own and float(event.values["load"]) > self.limits.overload

    def _give(self, part: list[NodeId], load: float) -> None:
        # Less loaded, and with room for what comes: else two brokers would hand it to and fro.
        room = self.limits.overload - sum(map(self.clients.work, part))
        self.directory.less_loaded(min(load, room), lambda broker: self._to(broker, part, load))

    def _to(self, broker: NodeId | None, part: list[NodeId], load: float) -> None:
        self._found_nobody = broker is None
        if broker is not None:
            for client in part:
                self.relocation.migrate(client, broker, self.limits.overload)
        elif len(part) > 1:
            self._give(part[: len(part) // 2], load)
        else:
            self.channel.publish(Overloaded(self.brokers.own, load))


# Brokers come and go at run time (channels, 1 and 4.2): one more where none has room, one less where idle.


class BrokerCreation(Adaptor):
    """Makes a broker of the nearest willing node. Load balancing finds it when it looks again."""

    def subscribe(self) -> None:
        self.channel.subscribe(Overloaded, self.process)

    def process(self, event: Overloaded) -> None:
        self.directory.willing(self._create)

    def _create(self, node: NodeId | None) -> None:
        if node is not None:
            self.brokers.create(node)


class BrokerRemoval(Adaptor):
    """Of a broker that was made at run time: idle for long enough, it gives its clients away and ends."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._idle_since: Micros | None = None

    def subscribe(self) -> None:
        own = self.brokers.own
        self.channel.subscribe(Measured, self.process, lambda e: e.kind == "load" and e.node == own)

    def process(self, event: Measured) -> None:
        now, load = int(event.values["now"]), float(event.values["load"])
        if not event.values["retiring"]:
            if load >= self.limits.idle or not event.values["was_made"]:
                self._idle_since = None
                return
            if self._idle_since is None:
                self._idle_since = now
            if now - self._idle_since < self.limits.idle_for:
                return
            self.brokers.retire()
        if self.clients.clients():  # whoever has room for them may have them
            self.directory.less_loaded(self.limits.overload - load, self._give_all)

    def _give_all(self, broker: NodeId | None) -> None:
        if broker is not None:
            for client in self.clients.clients():
                self.relocation.migrate(client, broker)


# Where a modulator runs: near its source if it shrinks events, near its consumer if it grows them, when that
# saves traffic (overlays, section 6, future work); in the producer's or the consumer's own node, too, if that
# would be a broker (channels, 2.2: consumers, brokers and providers).


class Placement(Adaptor):
    """Traffic is octets times distance: what comes in, from each producers' broker to the modulator, and what
    goes out, from there to the client's own part of the network."""

    def subscribe(self) -> None:
        self.channel.subscribe(Measured, self.process, self._is_ours)

    def process(self, event: Measured) -> None:
        client, access = int(event.values["client"]), int(event.values["access"])
        octets_from, octets_out = self.clients.octets_from(client), float(event.values["octets_out"])
        own, limit = self.brokers.own, self.limits.overload
        here = self._traffic(own, octets_from, access, octets_out)
        if here is None:
            return
        best, least = own, here * (1 - self.limits.placement_gain)
        for broker in sorted({*octets_from, access} - {own}):
            there = self._traffic(broker, octets_from, access, octets_out)
            has_room = self.brokers.load(broker) + self.clients.work(client) <= limit
            if there is not None and there < least and has_room:
                best, least = broker, there
        if best != own:
            self.relocation.place(client, best, access)

    def _is_ours(self, event: Measured) -> bool:
        return event.kind == "modulator" and event.node == self.brokers.own

    def _traffic(
        self, at: NodeId, octets_from: Mapping[NodeId, float], access: NodeId, octets_out: float
    ) -> float | None:
        last = self.brokers.path(at, access)
        total = 0.0 if last is None else octets_out * last
        for source, octets in octets_from.items():
            path = self.brokers.path(source, at)
            if path is None or last is None:
                return None
            total += octets * path
        return total


class EndBrokers(Adaptor):
    """A willing producer or consumer of a modulator becomes a broker when the modulator is better off there.
    `placement` and the five steps then bring it there, and `broker_removal` ends the broker when it is idle.

    The ways from one end to the other are counted through this broker, which gives an upper bound."""

    def subscribe(self) -> None:
        own = self.brokers.own
        self.channel.subscribe(Measured, self.process, lambda e: e.kind == "modulator" and e.node == own)

    def process(self, event: Measured) -> None:
        client, octets_out = int(event.values["client"]), float(event.values["octets_out"])
        octets = self.clients.octets_of(client)
        away = {node: hops for node in (*octets, client) if (hops := self.brokers.hops(node)) is not None}
        if client not in away or not octets.keys() <= away.keys():
            return
        here = sum(octets[one] * away[one] for one in octets) + octets_out * away[client]
        costs = []
        for end in sorted(filter(self.brokers.could_be_broker, away)):
            coming = sum(octets[one] * (away[one] + away[end]) for one in octets if one != end)
            going = 0.0 if end == client else octets_out * (away[end] + away[client])
            costs.append((coming + going, end))
        if costs and min(costs)[0] < here * (1 - self.limits.placement_gain):
            self.brokers.create(min(costs)[1])


ADAPTORS: dict[str, type[Adaptor]] = {
    "simple": SimpleHomeBroker,
    "complex": ComplexHomeBroker,
    "topology": BrokerTopology,
    "load_balancing": LoadBalancing,
    "broker_creation": BrokerCreation,
    "broker_removal": BrokerRemoval,
    "placement": Placement,
    "ends": EndBrokers,
}
"""By name, as the option `adaptors` says them. An application adds its own before its node starts."""


def check(names: tuple[str, ...]) -> None:
    """ScenarioError for a name that no adaptor has, and for one that comes twice: it would act twice."""
    for place, name in enumerate(names):
        if name not in ADAPTORS:
            raise ScenarioError(
                "strategy.options.adaptors", f"has {name!r}; allowed: {', '.join(sorted(ADAPTORS))}"
            )
        if name in names[:place]:
            raise ScenarioError("strategy.options.adaptors", f"has {name!r} twice; allowed: once")


def start(names: tuple[str, ...], services: Services) -> list[Adaptor]:
    """The adaptors of one broker, listening."""
    check(names)
    adaptors = [ADAPTORS[name](services) for name in names]
    for adaptor in adaptors:
        adaptor.subscribe()
    return adaptors
