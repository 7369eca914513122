"""The adaptation layer of one node (section 3), over its real parts: what the monitor reads, whom the
directory asks, and on a broker the adaptors.

Loads are read every `monitor_period`; all else, and what is said again now and then, at every tenth second.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from roamcast.host import Host
from roamcast.strategy.base import Machine
from roamcast.strategy.opportunistic.adaptation import start
from roamcast.strategy.opportunistic.adaptation.directory import (
    LIFETIME,
    RECORDS_MAX,
    CentralClient,
    CentralDirectory,
    OwnTable,
)
from roamcast.strategy.opportunistic.adaptation.events import BrokerDiscovered, SystemChannel
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
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.stream import Post
from roamcast.trace import LoadSampled
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, Micros, NodeId, micros

if TYPE_CHECKING:
    from roamcast.strategy.opportunistic.broker import Brokerage

AdaptationLetter = (
    Watch
    | Unwatch
    | Reading
    | Report
    | Volunteer
    | Ask
    | Answer
    | BecomeBroker
    | Ping
    | Pong
    | Measure
    | Latencies
)
CHANGE_TOLD = 0.05  # of a load, to a central directory
LOAD_TOLD = 10  # hundredths, to everyone
TELL_EVERY: Micros = 2 * SECOND


class Adaptation:
    """The timer is `"adaptation"`."""

    def __init__(
        self,
        host: Host,
        options: OpportunisticOptions,
        underlay: Underlay,
        post: Post,
        channel: SystemChannel,
        client: ClientSide,
        machine: Machine | None = None,
    ) -> None:
        self._host = host
        self._options = options
        self._underlay = underlay
        self._post = post
        self._client = client
        self._machine = machine
        self._period = micros(options.monitor_period)
        self._slow = max(round(WINDOW / self._period), 1)  # beats
        self._beats = 0
        self._is_beating = False
        self.channel = channel
        self.monitor = ResourceMonitor(host, self.channel, self._send)
        self.monitor.add("memory", self._read_memory)
        self.monitor.add("distance", self._read_distance)
        self._pings = Pings(host, self._send)
        self._broker: Brokerage | None = None
        self._volunteers: dict[NodeId, Micros] = {}  # when they last said so
        self._server = CentralDirectory(host, self._send) if options.directory == host.node else None
        self._central: CentralClient | None = None
        self._reported: float | None = None
        self._told_load, self._told_at = 0, 0

    # Inputs.

    def on_start(self) -> None:
        if self._options.is_willing(self._host.node):
            self._beat_soon()

    def on_broker_start(self, broker: "Brokerage") -> None:
        """The adaptors of a broker begin."""
        self._broker = broker
        self._told_load, self._told_at = 0, self._host.now()
        host = self._host
        brokers = OverlayView(
            host,
            broker.overlay,
            self._underlay.distance,
            self._options.is_willing,
            self._create,
            broker.retirement.begin,
        )
        if self._options.directory == "own":
            directory: OwnTable | CentralClient = OwnTable(
                brokers, broker.overlay.topology.reachable, self._willing, self._underlay.distance
            )
        else:
            self._central = directory = CentralClient(
                host, self._options.directory, self._send, lambda: self._distances(broker)
            )
        for kind, read in (
            ("load", self._read_load),
            ("modulator", self._read_modulators),
            ("latency", self._read_latencies),
            ("bandwidth", self._read_bandwidths),
        ):
            self.monitor.add(kind, read)
        limits = self._options.limits()
        services = Services(
            brokers,
            broker.clients,
            broker.clients,
            directory,
            self.channel,
            limits,
            self.monitor,
            self._pings,
        )
        start(self._options.active_adaptors(), services)
        self._beat_soon()

    def on_broker_end(self) -> None:
        self._broker = self._central = None
        self.channel.clear()
        for kind in ("load", "modulator", "latency", "bandwidth"):
            self.monitor.remove(kind)
        self._volunteers.clear()

    def on_timer(self) -> None:
        self._beats += 1
        is_slow = self._beats % self._slow == 0
        self._is_beating = False
        if self._broker is not None or self._options.is_willing(self._host.node) or self.monitor.is_watched:
            self._beat_soon()
        if self._broker is not None:
            self._broker.processor.sample()
            self.monitor.sample("load")
            self._report(is_slow)
            self._tell_load(self._broker)
            self._pings.on_timer()
            if self._central is not None:
                self._central.on_timer()
        if is_slow:
            self._on_slow_beat()

    def on_letter(self, sender: NodeId, message: AdaptationLetter) -> bool:
        """Whether this node shall become a broker."""
        match message:
            case Watch() | Unwatch() | Reading():
                self.monitor.on_letter(sender, message)
                self._beat_soon()
            case Volunteer() if self._server is None:
                if sender in self._volunteers or len(self._volunteers) < RECORDS_MAX:
                    self._volunteers[sender] = self._host.now()
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

    # Private.

    def _send(self, to: NodeId, letter: Letter) -> None:
        self._post.write(to, letter)

    def _beat_soon(self) -> None:
        """Every node at a moment of its own within the period."""
        if self._is_beating:
            return
        self._is_beating = True
        now = self._host.now()
        share = self._host.node * 0x9E3779B1 % (1 << 32) / (1 << 32)  # of the period, spread over the nodes
        offset = int(share * self._period)
        self._host.set_timer("adaptation", now + self._period - (now - offset) % self._period)

    def _on_slow_beat(self) -> None:
        broker, now, node = self._broker, self._host.now(), self._host.node
        self.monitor.renew()
        for kind in ("memory", "distance", "modulator", "latency", "bandwidth"):
            self.monitor.sample(kind)
        if broker is not None:
            processor = broker.homes.processor
            modulated = sum(row.has_modulators for row in broker.clients.rows())
            load = processor.load() / 100 + broker.clients.taken()
            self._host.trace(LoadSampled(now, node, load, modulated, processor.waiting(), WINDOW))
        elif self._options.is_willing(node):
            directory = self._options.directory
            to = self._client.home if directory == "own" else directory
            if to is None:
                self._client.need_home()  # even if it has nothing to say or to hear: somebody must know of it
            elif to != node:
                self._send(to, Volunteer())
            elif self._server is not None:
                self._server.on_letter(node, Volunteer())

    def on_discovery(self, client: NodeId, message: Here) -> None:
        """A client has found another broker that is near (2.4, step 1)."""
        assert self._broker is not None and message.nearer is not None
        row = self._broker.homes.clients[client]
        if row.nearest != message.nearer:
            row.nearest = message.nearer
            self.monitor.measured("handoff", {"client": client, "broker": message.nearer})
        load = message.nearer_load / 100
        self.channel.publish(
            BrokerDiscovered(client, message.nearer, message.nearer_distance, message.distance, load)
        )

    def _tell_load(self, broker: "Brokerage") -> None:
        """All, when it has changed much since they were told."""
        load, now = broker.load(), self._host.now()
        if abs(load - self._told_load) >= LOAD_TOLD and now - self._told_at >= TELL_EVERY:
            self._told_load, self._told_at = load, now
            broker.overlay.tell_load()

    def _create(self, node: NodeId) -> None:
        self._volunteers.pop(node, None)  # others may be asked next
        self._send(node, BecomeBroker())

    def _willing(self) -> list[NodeId]:
        since = self._host.now() - LIFETIME
        for node in [node for node, at in self._volunteers.items() if at < since]:
            del self._volunteers[node]
        return list(self._volunteers)

    def _report(self, is_due: bool) -> None:
        """A central directory hears of a load that changed, and of every broker now and then."""
        if self._central is None or self._broker is None:
            return
        load = self._broker.load() / 100
        if is_due or self._reported is None or abs(load - self._reported) >= CHANGE_TOLD:
            self._reported = load
            self._central.report(load)

    def _distances(self, broker: "Brokerage") -> list[tuple[NodeId, int]]:
        topology = broker.overlay.topology
        lengths = ((other, topology.length(self._host.node, other)) for other in topology.reachable())
        return [(other, length) for other, length in lengths if length is not None]

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
        left = self._options.memory - self._post.octets()
        there = None if self._machine is None else self._machine.read().memory
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

    def _read_latencies(self) -> Iterator[Values]:
        for near in [] if self._broker is None else self._broker.overlay.neighbours():
            round_trips = self._post.round_trips(near.broker)
            shortest = None if round_trips is None else round_trips.shortest()
            if shortest is not None:
                yield {"peer": near.broker, "micros": shortest // 2}

    def _read_bandwidths(self) -> Iterator[Values]:
        for near in [] if self._broker is None else self._broker.overlay.neighbours():
            round_trips = self._post.round_trips(near.broker)
            octets = None if round_trips is None else round_trips.bandwidth()
            if octets is not None:
                yield {"peer": near.broker, "octets": octets}
