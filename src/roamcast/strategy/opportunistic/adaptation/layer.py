"""The adaptation layer of one node (section 3), over its real parts: what the monitor reads, whom the
directory asks, and on a broker the adaptors.

Loads are read every `monitor_period`; all else, and what is said again now and then, at every tenth second.
"""

from collections.abc import Callable, Iterator
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
)
from roamcast.strategy.opportunistic.adaptation.events import BrokerDiscovered
from roamcast.strategy.opportunistic.adaptation.managers import OverlayView
from roamcast.strategy.opportunistic.adaptation.monitor import Pings, ResourceMonitor, Values
from roamcast.strategy.opportunistic.adaptation.services import Services
from roamcast.strategy.opportunistic.client import ClientSide
from roamcast.strategy.opportunistic.homes import Traffic
from roamcast.strategy.opportunistic.messages import (
    Answer,
    Ask,
    BecomeBroker,
    Here,
    Latencies,
    Letter,
    Measure,
    Ping,
    Pong,
    Reading,
    Report,
    Unwatch,
    Volunteer,
    Watch,
)
from roamcast.strategy.opportunistic.modulators import WINDOW
from roamcast.strategy.opportunistic.shared import Part, Shared
from roamcast.strategy.opportunistic.stream import RoundTrips
from roamcast.trace import LoadSampled
from roamcast.units import SECOND, Micros, NodeId, micros

if TYPE_CHECKING:
    from roamcast.strategy.opportunistic.broker import Brokerage

CHANGE_TOLD = 0.05  # of a load, to a central directory
LOAD_TOLD = 10  # hundredths, to everyone
TELL_EVERY: Micros = 2 * SECOND


class Adaptation(Part):
    def __init__(self, shared: Shared, client: ClientSide, on_period: Callable[[], None]) -> None:
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
        self._pings = Pings(host, self._post.write)
        self.monitor = ResourceMonitor(host, self._channel, self._post.write)
        for kind, read in (
            ("memory", self._read_memory),
            ("distance", self._read_distance),
            ("load", self._read_load),
            ("modulator", self._read_modulators),
            ("latency", self._read_latencies),
            ("bandwidth", self._read_bandwidths),
        ):
            self.monitor.add(kind, read)
        self._broker: Brokerage | None = None
        self._volunteers: ExpiringDict[NodeId, Micros] = ExpiringDict(RECORDS_MAX, unreported, int)
        is_server = self._options.directory == host.node
        self._server = CentralDirectory(host, self._post.write) if is_server else None
        self._central: CentralClient | None = None
        self._reported: float | None = None
        self._told_load, self._told_at = 0, 0

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

    def on_letter(self, sender: NodeId, message: Letter) -> bool:
        """Whether this node shall become a broker."""
        match message:
            case Watch() | Unwatch() | Reading():
                self.monitor.on_letter(sender, message)
                self._wait()
            case Volunteer() if self._server is None:
                self._volunteers[sender] = self._host.now() + LIFETIME
            case Report() | Volunteer() | Ask():
                if self._server is not None:
                    self._server.on_letter(sender, message)
            case Answer():
                if self._central is not None:
                    self._central.on_answer(sender, message)
            case Ping() | Pong() | Measure() | Latencies():
                self._pings.on_letter(sender, message)
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
            self.monitor.sample("load")
            self._tell_load(broker, is_slow)
            self._pings.give_up()
            if self._central is not None:
                self._central.give_up()
        if is_slow:
            self.monitor.renew()
            self.monitor.sample("memory", "distance", "modulator", "latency", "bandwidth")
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
                self._central.report(share)
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
            self._client.need_home()  # even if it has nothing to say or to hear: somebody must know of it
        elif to != node:
            self._post.write(to, Volunteer())
        elif self._server is not None:
            self._server.on_letter(node, Volunteer())

    def _create(self, node: NodeId) -> None:
        self._volunteers.pop(node, None)  # others may be asked next
        self._post.write(node, BecomeBroker())

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

    def _read_memory(self) -> Iterator[Values]:
        left, machine = self._options.memory - self._post.octets(), self._shared.context.machine
        there = None if machine is None else machine.read().memory
        yield {"now": self._host.now(), "octets": left if there is None else min(left, there)}

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
        """To neighbouring brokers that letters went to."""
        for near in [] if self._broker is None else self._overlay.neighbours():
            round_trips = self._post.round_trips(near.broker)
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
