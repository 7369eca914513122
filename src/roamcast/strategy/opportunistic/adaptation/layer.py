"""The adaptation layer of one node (section 3), over its real parts: what the monitor reads, whom the
directory asks, and on a broker the adaptors.

Loads are read every `monitor_period`; all else, and what is said again now and then, at every tenth second.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from roamcast.kit.protocol import Timer
from roamcast.kit.tables import ExpiringDict, unreported
from roamcast.strategy.opportunistic.adaptation.adaptors import start
from roamcast.strategy.opportunistic.adaptation.directory import (
    LIFETIME,
    RECORDS_MAX,
    CentralClient,
    CentralDirectory,
    OwnTable,
    own_location,
)
from roamcast.strategy.opportunistic.adaptation.events import BrokerDiscovered
from roamcast.strategy.opportunistic.adaptation.monitor import Pings, ProcessorWatch, ResourceMonitor, Values
from roamcast.strategy.opportunistic.adaptation.services import Services
from roamcast.strategy.opportunistic.client import ClientSide
from roamcast.strategy.opportunistic.handoff import Handoffs
from roamcast.strategy.opportunistic.homes import HomeClient, Homes, Traffic
from roamcast.strategy.opportunistic.messages import (
    Ask,
    BecomeBroker,
    Here,
    Latencies,
    Measure,
    Ping,
    Pong,
    Reading,
    Report,
    ServerAnswer,
    StreamMessage,
    Unwatch,
    Volunteer,
    Watch,
)
from roamcast.strategy.opportunistic.modulators import WINDOW
from roamcast.strategy.opportunistic.shared import NodePart, SharedParts
from roamcast.strategy.opportunistic.stream import RoundTrips
from roamcast.trace import LoadSampled
from roamcast.units import SECOND, Micros, NodeId, micros

if TYPE_CHECKING:
    from roamcast.strategy.opportunistic.broker import Brokerage

CHANGE_TOLD = 0.05  # of a load, to a central directory
LOAD_TOLD = 10  # hundredths, to everyone
TELL_EVERY: Micros = 2 * SECOND

OnDone = Callable[[bool], None]


class Adaptation(NodePart):
    def __init__(self, shared: SharedParts, client: ClientSide, on_period: Callable[[], None]) -> None:
        """`on_period` is called after each period of the monitor."""
        super().__init__(shared)
        host = self._host
        self._shared = shared
        self._client = client
        self._on_period = on_period
        self._period = micros(self._options.monitor_period)
        self._timer = Timer(host, self._beat)
        self._slow = max(round(WINDOW / self._period), 1)  # periods
        self._periods = 0
        self._is_waiting = False
        self._pings = Pings(host, self._streams.write)
        self.monitor = ResourceMonitor(host, self._channel, self._streams.write)
        for kind, read in (
            ("memory", self._read_memory),
            ("distance", self._read_distance),
            ("location", self._read_location),
            ("topology", self._read_topology),
            ("load", self._read_load),
            ("modulator", self._read_modulators),
            ("latency", self._read_latencies),
            ("bandwidth", self._read_bandwidths),
        ):
            self.monitor.add(kind, read)
        self._broker: Brokerage | None = None
        self._volunteers: ExpiringDict[NodeId, Micros] = ExpiringDict(RECORDS_MAX, unreported, int)
        is_server = self._options.directory == host.node
        self._server = CentralDirectory(host, self._streams.write) if is_server else None
        self._central: CentralClient | None = None
        self._reported: float | None = None
        self._told_load, self._told_at = 0, 0
        self._changes_seen = 0  # of the topology

    # Inputs.

    def on_start(self) -> None:
        if self._options.is_willing(self._host.node):
            self._wait()

    def on_broker_start(self, broker: "Brokerage") -> None:
        """The adaptors of a broker begin."""
        self._broker = broker
        self._told_load, self._told_at = 0, self._host.now()
        brokers = OverlayView(self._shared, self._create, broker.retirement.begin)
        directory: OwnTable | CentralClient
        if self._options.directory == "own":
            directory = OwnTable(self._shared, brokers, self._willing)
        else:
            directory = self._central = CentralClient(self._shared, self._options.directory)
        clients, limits = broker.clients, self._options.limits()
        services = Services(
            brokers, clients, clients, directory, self._channel, limits, self.monitor, self._pings
        )
        start(self._options.active_adaptors(), services)
        self._wait()

    def on_broker_end(self) -> None:
        self._broker = self._central = None
        self._channel.clear()
        self._volunteers.clear()

    def on_message(self, sender: NodeId, message: StreamMessage) -> bool:
        """Whether this node shall become a broker."""
        match message:
            case Watch() | Unwatch() | Reading():
                self.monitor.on_message(sender, message)
                self._wait()
            case Volunteer() if self._server is None:
                self._volunteers[sender] = self._host.now() + LIFETIME
            case Report() | Volunteer() | Ask():
                if self._server is not None:
                    self._server.on_message(sender, message)
            case ServerAnswer():
                if self._central is not None:
                    self._central.on_answer(sender, message)
            case Ping() | Pong() | Measure() | Latencies():
                self._pings.on_message(sender, message)
            case BecomeBroker():
                if self._broker is not None:
                    self._broker.retirement.cancel()
                else:
                    return self._options.is_willing(self._host.node)
        return False

    def on_discovery(self, client: NodeId, message: Here) -> None:
        """A client has found another broker that is near (2.4, step 1)."""
        assert self._broker is not None and message.nearer is not None
        row = self._broker.homes.clients[client]
        if row.nearest != message.nearer:
            row.nearest = message.nearer
            self.monitor.measured("handoff", {"client": client, "broker": message.nearer})
        load = message.nearer_load / 100
        self._channel.publish(
            BrokerDiscovered(client, message.nearer, message.nearer_distance, message.distance, load)
        )

    # Every period.

    def _wait(self) -> None:
        """Every node at a moment of its own within the period."""
        if self._is_waiting:
            return
        self._is_waiting = True
        now = self._host.now()
        share = self._host.node * 0x9E3779B1 % (1 << 32) / (1 << 32)  # of the period, spread over the nodes
        offset = int(share * self._period)
        self._timer.at(now + self._period - (now - offset) % self._period)

    def _beat(self) -> None:
        self._periods += 1
        is_slow = self._periods % self._slow == 0
        self._is_waiting = False
        broker, is_willing = self._broker, self._options.is_willing(self._host.node)
        if broker is not None or is_willing or self.monitor.is_watched:
            self._wait()
        if broker is not None:
            broker.clients.processor.sample()
            self.monitor.sample("topology", "load")
            self._tell_load(broker, is_slow)
            self._pings.give_up()
            if self._central is not None:
                self._central.give_up()
        if is_slow:
            self.monitor.renew()
            self.monitor.sample("memory", "distance", "location", "modulator", "latency", "bandwidth")
            if broker is not None:
                self._trace_load(broker)
            elif is_willing:
                self._volunteer()
        self._on_period()

    def _tell_load(self, broker: "Brokerage", is_due: bool) -> None:
        """A central directory hears of a load that changed, and of every broker now and then. All brokers
        hear of one that has changed much since they were told."""
        load, now = broker.load(), self._host.now()
        if self._central is not None:
            share, before = load / 100, self._reported
            if is_due or before is None or abs(share - before) >= CHANGE_TOLD:
                self._reported = share
                self._central.report(share, self._memory_left())
        if abs(load - self._told_load) >= LOAD_TOLD and now - self._told_at >= TELL_EVERY:
            self._told_load, self._told_at = load, now
            self._overlay.tell_load()

    def _trace_load(self, broker: "Brokerage") -> None:
        processor, now = broker.homes.processor, self._host.now()
        modulated = sum(row.has_modulators for row in broker.clients.rows())
        load = processor.load() / 100 + broker.clients.taken()
        self._host.trace(LoadSampled(now, self._host.node, load, modulated, processor.waiting(), WINDOW))

    def _volunteer(self) -> None:
        node, directory = self._host.node, self._options.directory
        to = self._client.home if directory == "own" else directory
        if to is None:
            self._client.need_home()  # even if it has nothing to report: others must know that it is willing
        elif to != node:
            self._streams.write(to, Volunteer())
        elif self._server is not None:
            self._server.on_message(node, Volunteer())

    def _create(self, node: NodeId) -> None:
        self._volunteers.pop(node, None)  # others may be asked next
        self._streams.write(node, BecomeBroker())

    def _willing(self) -> list[NodeId]:
        self._volunteers.expire(self._host.now())
        return list(self._volunteers)

    # Readings (`monitor.py` says what they are).

    def _read_load(self) -> Iterator[Values]:
        broker = self._broker
        if broker is not None:
            yield {
                "now": self._host.now(),
                "load": broker.clients.load() / 100,
                "was_made": int(broker.was_made),
                "retiring": int(broker.retirement.is_begun),
            }

    def _memory_left(self) -> int:
        left, machine = self._options.memory - self._streams.octets(), self._shared.context.machine
        there = None if machine is None else machine.read().memory
        return left if there is None else min(left, there)

    def _read_memory(self) -> Iterator[Values]:
        yield {"now": self._host.now(), "octets": self._memory_left()}

    def _read_location(self) -> Iterator[Values]:
        here = own_location(self._host)
        if here is not None:
            yield {"now": self._host.now(), "x": here[0], "y": here[1]}

    def _read_topology(self) -> Iterator[Values]:
        topology = self._overlay.topology
        if self._broker is not None and topology.changes != self._changes_seen:
            self._changes_seen = topology.changes
            neighbours = len(self._overlay.neighbours())
            yield {"now": self._host.now(), "brokers": len(topology.brokers()), "neighbours": neighbours}

    def _read_distance(self) -> Iterator[Values]:
        home = self._client.home
        hops = 0 if home == self._host.node else None if home is None else self._underlay.distance(home)
        if home is not None and hops is not None:
            yield {"now": self._host.now(), "home": home, "hops": hops}

    def _read_modulators(self) -> Iterator[Values]:
        broker, now = self._broker, self._host.now()
        for row in [] if broker is None else broker.clients.rows():
            traffic = row.traffic
            if row.has_modulators and traffic.octets_of:
                yield {
                    "now": now,
                    "client": row.node,
                    "access": self._host.node if row.access is None else row.access,
                    "octets_in": sum(traffic.octets_of.values()),
                    "octets_out": traffic.octets_out,
                    "took": traffic.took,
                }
            row.traffic = Traffic()

    def _round_trips(self) -> Iterator[tuple[NodeId, RoundTrips]]:
        """To neighbouring brokers that messages went to."""
        for near in [] if self._broker is None else self._overlay.neighbours():
            round_trips = self._streams.round_trips(near.broker)
            if round_trips is not None:
                yield near.broker, round_trips

    def _read_latencies(self) -> Iterator[Values]:
        for peer, round_trips in self._round_trips():
            shortest = round_trips.shortest()
            if shortest is not None:
                yield {"peer": peer, "micros": shortest // 2}

    def _read_bandwidths(self) -> Iterator[Values]:
        for peer, round_trips in self._round_trips():
            octets = round_trips.bandwidth()
            if octets is not None:
                yield {"peer": peer, "octets": octets}


# What adaptors ask and order (sections 3.3 to 3.5), over the broker's tables and its handoffs.


def _nothing(moved: bool) -> None:
    """Nobody waits for the end of a relocation."""


class BrokerClients(NodePart):
    """The clients of this broker (CIT), and how to move them."""

    def __init__(self, shared: SharedParts, homes: Homes, handoffs: Handoffs) -> None:
        super().__init__(shared)
        self._homes = homes
        self._handoffs = handoffs
        self.processor = ProcessorWatch(self._host, shared.context.machine)

    def on_here(self, node: NodeId, message: Here) -> bool:
        """Section 2.4: step 1 comes in from a client; whether there is something to decide."""
        client = self._homes.clients.get(node)
        if client is None or message.nearer is None or client.generation != message.generation:
            return False
        if self._handoffs.source.is_moving(node):
            return False
        self._overlay.on_load_heard(message.nearer, message.nearer_load)
        if client.access is not None:
            # Its modulators were placed elsewhere on purpose: only where they deliver to has changed.
            between = self._overlay.topology.length(self._host.node, message.nearer)
            is_better = between is not None and between + message.nearer_distance <= message.distance
            client.access = message.nearer if is_better else None
            client.access_at = self._host.now()
            return False
        return True

    # Section 3.4.

    def relocate(
        self, client: NodeId, to: NodeId, on_done: OnDone = _nothing, below: int | None = None
    ) -> bool:
        """Horizontal relocation: the client and its modulators go to another broker. False if it is not at
        home here, or on the move already. `below`: only if the destination's load would stay below, in
        hundredths."""
        return self._handoffs.source.relocate(client, to, on_done, below)

    def upstream(self, client: NodeId, on_done: OnDone = _nothing) -> bool:
        """One broker nearer to the producers: the neighbour on the overlay with the shortest average path.
        What the modulators make still goes through the broker nearest to the client."""
        paths = []
        for near in self._overlay.neighbours():
            path = self._overlay.mean_path_from_producers(near.broker)
            if path is not None:
                paths.append((path, near.broker))
        here = self._overlay.mean_path_from_producers(self._host.node)
        if not paths or here is None or min(paths)[0] >= here:
            return False
        row = self._homes.clients.get(client)
        access = self._host.node if row is None or row.access is None else row.access
        return self._place(client, min(paths)[1], access, on_done)

    def downstream(self, client: NodeId, on_done: OnDone = _nothing) -> bool:
        """One broker nearer to the client: the next on the way to the broker nearest to it."""
        row = self._homes.clients.get(client)
        if row is None or row.access is None:
            return False  # they are there
        path = self._overlay.path(row.access)
        return len(path) > 1 and self._place(client, path[1], row.access, on_done)

    def _place(self, client: NodeId, to: NodeId, access: NodeId, on_done: OnDone) -> bool:
        row = self._homes.clients.get(client)
        if row is None:
            return False
        before = row.access

        def done(moved: bool) -> None:
            if not moved:
                row.access = before
            on_done(moved)

        row.access = None if access == to else access
        if self.relocate(client, to, done):
            return True
        row.access = before
        return False

    # For adaptors: orders.

    def migrate(self, client: NodeId, to: NodeId, below: float | None = None) -> None:
        self.relocate(client, to, below=None if below is None else max(round(100 * below), 0))

    def place(self, client: NodeId, to: NodeId, access: NodeId) -> None:
        self._place(client, to, access, _nothing)

    # For adaptors: questions.

    def clients(self) -> list[NodeId]:
        return sorted(self._homes.clients)

    def modulated(self) -> list[NodeId]:
        rows = self._homes.clients.values()
        return sorted(
            row.node for row in rows if row.has_modulators and not self._handoffs.source.is_moving(row.node)
        )

    def source_brokers(self, client: NodeId) -> Sequence[NodeId]:
        """By the producers that its modulators have read; before any, all that there are (BIT)."""
        row = self._homes.clients.get(client)
        read = () if row is None or row.reader is None else row.reader.cursors
        homes = [known.home for known in map(self._consumers.find, read) if known is not None]
        if homes:
            return homes
        brokers = [*self._overlay.topology.reachable(), self._host.node]
        return [broker for broker in brokers for _ in range(self._overlay.producers_of(broker))]

    def distance(self, client: NodeId) -> float:
        row = self._homes.clients.get(client)
        return 0.0 if row is None else float(row.distance)

    def octets_from(self, client: NodeId) -> Mapping[NodeId, float]:
        found: dict[NodeId, float] = {}
        for producer, octets in self.octets_of(client).items():
            known = self._consumers.find(producer)
            home = self._host.node if known is None else known.home
            found[home] = found.get(home, 0) + octets
        return found

    def octets_of(self, client: NodeId) -> Mapping[NodeId, float]:
        row = self._homes.clients.get(client)
        return {} if row is None else row.traffic.octets_of

    def work(self, client: NodeId) -> float:
        row = self._homes.clients.get(client)
        return 0.0 if row is None else self._share(row.work(self._host.now()))

    # Questions.

    def rows(self) -> list[HomeClient]:
        """CIT."""
        return [self._homes.clients[node] for node in sorted(self._homes.clients)]

    def load(self) -> int:
        """Of this broker, hundredths of its capacity, as it will be when those on the move have moved. So a
        decision counts at once, not when an average has followed it."""
        now = self._host.now()
        staying = sum(
            row.work(now)
            for row in self._homes.clients.values()
            if row.has_modulators and not self._handoffs.source.is_moving(row.node)
        )
        return round(100 * (self._share(staying + self._handoffs.destination.work_coming()) + self.taken()))

    def taken(self) -> float:
        """The share of this broker's capacity that something else than modulators takes."""
        if not self.processor.is_known:
            return 0.0  # always so in a simulation
        model = self._homes.processor
        return self.processor.taken(model.load() * model.capacity / 100) / model.capacity

    def _share(self, work: float) -> float:
        return work / SECOND / self._homes.processor.capacity


class OverlayView(NodePart):
    """The overlay as adaptors see it (`services.py: BrokerManager`)."""

    def __init__(
        self, shared: SharedParts, create: Callable[[NodeId], None], retire: Callable[[], None]
    ) -> None:
        super().__init__(shared)
        self.create = create
        self.retire = retire
        self.own = self._host.node
        self.discover_neighbours = self._overlay.discover_neighbours
        self.propagate = self._overlay.propagate

    def load(self, broker: NodeId) -> float:
        return (self._overlay.load_of(broker) or 0) / 100

    def path(self, start: NodeId, end: NodeId) -> float | None:
        # From the end, which is the same for many questions; links are the same both ways.
        return self._overlay.topology.length(end, start)

    def hops(self, node: NodeId) -> int | None:
        return 0 if node == self.own else self._underlay.distance(node)

    def could_be_broker(self, node: NodeId) -> bool:
        return self._options.is_willing(node) and not self._overlay.topology.is_broker(node)
