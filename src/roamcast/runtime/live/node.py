"""One running node: the layers of `roamcast.node`, on a live host, with sessions for applications.

    node = await LiveNode.start(settings)
    session = node.applications.open(receiver)
    …
    await node.stop()

Everything happens in the loop that started it. Gateways use `applications`, `when_durable` and `counters`.
"""

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from roamcast import __version__
from roamcast.applications import Applications
from roamcast.broker.core import Delivery
from roamcast.broker.judgement import is_right
from roamcast.broker.store import EventStore, StoreFullError
from roamcast.errors import InputError
from roamcast.event import EventId
from roamcast.exchange import Exchanges
from roamcast.host import Channel, Frame, Host, Layer, Position, SendFailure
from roamcast.node import Node, NodeConfig
from roamcast.runtime.live.air.air import UsedInterface
from roamcast.runtime.live.air.peers import Peer
from roamcast.runtime.live.air.radio import LiveRadio
from roamcast.runtime.live.inputs import Clock, Inputs, NodeTimers
from roamcast.runtime.live.linux import this_machine
from roamcast.runtime.live.open_air import LiveOpenAir
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.journal import NeighbourJournal, NodeJournal
from roamcast.runtime.live.report.misfits import NodeProfile, options_text
from roamcast.runtime.live.report.segments import SegmentSource, TraceSegments
from roamcast.runtime.live.report.status import status_of, view_of
from roamcast.runtime.live.routes import (
    HeardAddresses,
    KernelRoutes,
    NumberedAddresses,
    numbers_of_hosts,
)
from roamcast.runtime.live.settings import KeySettings, LiveSettings, PartSettings
from roamcast.runtime.live.storage.database import (
    CLOCK_SET,
    LAZY,
    DurableEventStore,
    NodeStorage,
    UnwritableError,
)
from roamcast.runtime.live.world import NodeWorld
from roamcast.runtime.meter import LiveMeter
from roamcast.sealing import Sealer, reserve_epoch
from roamcast.sealing.frame import FIRST_BITS
from roamcast.sealing.statement import NAME_BYTES_MAX
from roamcast.strategy import LIVE_DEFAULT, STRATEGIES, default_underlay
from roamcast.strategy.base import LimitsModulators
from roamcast.trace import Delivered
from roamcast.underlay import UNDERLAYS
from roamcast.underlay.addresses import Address, Addresses
from roamcast.underlay.base import OpenOptions, OpenUnderlay
from roamcast.units import SECOND, Micros, NodeId, micros, seconds
from roamcast.wire.status import EventWay, NodeStatus, NodeView

logger = logging.getLogger("roamcast.node")

# Chosen by us. The first is far more than a node can publish.
SEQUENCES_PER_SECOND = 100_000
FAREWELL_SECONDS = 1.0  # for the layers to send their last frames
FAREWELL_LOOK_SECONDS = 0.005
# A radio that nobody has described: broadcasts of 802.11b at 2 Mbit/s, with its preamble, contention and
# headers.
BROADCAST_BITRATE = 2_000_000
ACCESS: Micros = 800


class LiveNode:
    """One running node on real interfaces. Made by `start`."""

    def __init__(self, settings: LiveSettings, base: Path, world: NodeWorld) -> None:
        self.world = world
        self._loop = loop = world.loop
        self.settings = settings
        self.counters = Counters()
        identity = settings.identity()
        self.number: NodeId = identity.node
        self.name: str = settings.node.name or f"node-{identity.node}"
        self.public_key = identity.public_key
        self.clock = Clock(world.clock)
        self.started_at = self.clock.now
        self.inputs = Inputs(self.clock, self.counters, self._after)
        self._timers = NodeTimers(self.inputs, loop)
        self._commit: asyncio.Handle | None = None
        self._later_commit: asyncio.Handle | None = None  # of what may wait
        self._is_stopping = False
        interfaces = settings.air.wanted(world.network)
        ring = settings.keys.ring()
        state = settings.node.state
        self.storage: NodeStorage | None = None if state is None else _storage(world, base / state)
        self._trace: TraceSegments | None = None
        self._traced: tuple[NodeId, int, Micros] | None = None  # the last delivery
        try:
            stable = _without_storage(world) if self.storage is None else self.storage.stable
            epoch = reserve_epoch(stable, world.wall() / SECOND, world.random.randrange)
            if self.storage is not None and self.storage.trouble:
                # It takes nothing: the numbers of this boot follow from the clock, as without storage.
                stable = {**stable, **_without_storage(world)}
            self._trace = self._open_trace(base, epoch)
            first = world.random.getrandbits(FIRST_BITS)
            sealer = Sealer(identity, ring, epoch, settings.keys.encrypt, first)
            self.journal = NodeJournal(self.number, self.clock, self.counters, self._trace)
            self.config = _config(settings)
            self.underlay_name = self.config.underlay or default_underlay(self.config.strategy)
            self._options = options_text(self.config.strategy_options, self.config.underlay_options)
            self.radio = LiveRadio(
                world, settings.air, interfaces, sealer, stable, self.inputs, self.journal, self
            )
            self.applications = Applications(
                self, self.radio.pressure, loop.call_later, loop.time, self.journal.given_up
            )
            self.exchanges = Exchanges(self, self.applications, world.random, self.counters)
            self.open_air = self._open_air()
            self.node = self._build(stable)
        except BaseException:
            self._close_files()
            raise
        self.applications.bind(self.node)
        self._count_what_stands()

    @classmethod
    async def start(
        cls, settings: LiveSettings, base: Path = Path(), world: NodeWorld | None = None
    ) -> "LiveNode":
        """A running node, or `InputError`. File names in the settings are relative to `base`. Without another
        `world` it runs on this machine."""
        node = cls(settings, base, this_machine() if world is None else world)
        try:
            await node.radio.open()
            if node.open_air is not None:
                node.open_air.open()
        except BaseException:
            await node.radio.close()
            node._close_files()
            raise
        node.inputs.handle(node.node.start)
        if settings.node.name is not None:
            node.radio.state("named", settings.node.name.encode()[:NAME_BYTES_MAX].decode(errors="ignore"))
        if settings.keys.invitation:
            node.radio.state("joined", settings.keys.invitation)
        on = [
            f"{used.name} ({sockets.address}, own port {sockets.port})"
            for used in node.radio.air.used
            for sockets in used.working[:1]
        ]
        logger.info(
            "%s is node %d on %s, air port %d",
            node.name,
            node.number,
            ", ".join(on) or "no interface",
            settings.air.port,
        )
        return node

    async def stop(self) -> None:
        """The layers say goodbye, links are closed, everything is made durable. Again: does nothing."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self.exchanges.close()
        self.applications.chunks.close()
        self.inputs.handle(self.node.stop)
        until = self._loop.time() + FAREWELL_SECONDS
        while self.node.is_leaving and self._loop.time() < until:
            await asyncio.sleep(FAREWELL_LOOK_SECONDS)
        self.inputs.close()
        self._timers.close()
        while self.radio.is_busy and self._loop.time() < until:  # the last frames may need repeats
            await asyncio.sleep(FAREWELL_LOOK_SECONDS)
        await self.radio.close()
        if self.open_air is not None:
            self.open_air.close()
        for handle in (self._commit, self._later_commit):
            if handle is not None:
                handle.cancel()
        self._close_files()
        logger.info("%s has stopped", self.name)

    def replace_group_keys(self, keys: KeySettings) -> None:
        """Change the group keys without a restart: the first one seals, frames of all are accepted."""
        self.radio.replace_keys(keys.ring())

    # For gateways.

    def when_durable(
        self, callback: Callable[[], None], on_failure: Callable[[StoreFullError], object] | None = None
    ) -> None:
        """Call back after the next commit: what was written so far survives a crash. At once without storage.

        If something of this turn could not be kept, `on_failure` is called instead.
        """
        if self.storage is None:
            callback()
            return

        def durable(failure: StoreFullError | None) -> None:
            if failure is None:
                callback()
            elif on_failure is not None:
                on_failure(failure)

        self.storage.on_durable(durable)
        self._commit_soon()

    def status(self) -> NodeStatus:
        """What this node is, and how it is."""
        self.clock.enter()
        return status_of(self)

    def way_of(self, event: EventId) -> EventWay:
        """Which way an event went, as far as this node knows."""
        self.clock.enter()
        return self.journal.ways.of(*event, event in self.node.broker.store, self.journal.names)

    def revoke(self, device: NodeId, *, undo: bool = False) -> None:
        """Exclude a lost device, here and on every member that hears of it; or accept it again."""
        self.radio.state("pardon" if undo else "revoke", str(device))

    def forget(self, device: NodeId) -> None:
        """Another device has this number from now on."""
        self.radio.forget(device)

    def view(self) -> NodeView:
        """What the node's page shows."""
        self.clock.enter()
        return view_of(self)

    # For its exchanges.

    def later(self, delay: Micros, action: Callable[[], None]) -> Callable[[], None]:
        return self._loop.call_later(seconds(delay), self._on_later, action).cancel

    def heard(self) -> int:
        return self.radio.peers.up

    # For its radio.

    def profile(self) -> NodeProfile:
        now = self.world.wall()
        clock = now // SECOND if now >= CLOCK_SET else 0
        parts = (__version__[:32], self.config.strategy[:32], self.underlay_name[:32])
        return NodeProfile(*parts, self._options, clock)

    def on_acquainted(self, node: NodeId) -> None:
        self.node.underlay.on_acquainted(node)

    # The gate of `Applications`.

    def enter(self) -> None:
        self.clock.enter()
        if self.storage is not None:
            self._commit_soon()

    def now(self) -> Micros:
        return self.clock.now

    # The application that the broker core knows.

    def on_event(self, delivery: Delivery) -> None:
        journal = self.journal
        journal.ways.delivered(delivery.event, len(delivery.subscriptions))
        if journal.is_traced:
            # As in a simulation: no metric counts own events, and what several applications get in one turn
            # is one delivery to this node.
            key = (delivery.event.publisher, delivery.event.sequence, self.clock.now)
            if delivery.event.publisher != self.number and key != self._traced:
                self._traced = key
                self._trace_delivery(delivery)
        self.applications.on_event(delivery)

    # Private.

    def _open_trace(self, base: Path, boot: int) -> TraceSegments | None:
        settings = self.settings.trace
        if settings.folder is None:
            return None
        source = SegmentSource(
            node=self.number,
            name=self.name,
            # Two groups that are collected in one folder stay apart.
            run=settings.run or f"group-{self.settings.keys.ring().sending.id:04x}",
            strategy=self.settings.strategy.name or LIVE_DEFAULT,
            boot=boot,
            epoch=self.clock.now if settings.epoch is None else settings.epoch,
            clock=self.world.computer.clock_identity(),
        )
        try:
            return TraceSegments(
                base / settings.folder,
                source,
                self.world,
                self.counters,
                bytes_max=settings.bytes_max,
                segment_bytes=settings.segment_bytes,
                segment_seconds=settings.segment_seconds,
            )
        except UnwritableError as error:
            logger.error("nothing is traced: %s", error)
            return None

    def _open_air(self) -> LiveOpenAir | None:
        """The interfaces of an underlay that speaks with foreign daemons, if its options say that it does."""
        options = self.config.underlay_options
        if not isinstance(options, OpenOptions) or not options.open:
            return None
        main = self.radio.air.ipv4
        if main is None:
            raise InputError("underlay.options.open", "needs an interface with an IPv4 address at the start")
        return LiveOpenAir(self.world, options, main, self.inputs, self.journal, self._on_open_packet)

    def _on_open_packet(self, interface: Address, source: Address, payload: bytes) -> None:
        underlay = self.node.underlay
        if isinstance(underlay, OpenUnderlay):
            underlay.on_packet(interface, source, payload)

    def _build(self, stable: MutableMapping[str, bytes]) -> Node:
        hosts: dict[Channel, LiveHost] = {}

        def host(channel: Channel) -> Host:
            if channel not in hosts:
                random = Random(self.world.random.getrandbits(256))
                hosts[channel] = LiveHost(
                    self.number, channel, self.clock, self._timers, self.radio, self.journal, random, stable
                )
            return hosts[channel]

        air, peers = self.radio.air, self.radio.peers
        addresses: Addresses = NumberedAddresses()
        if UNDERLAYS.declared(self.underlay_name).reads_host_routes:
            addresses = numbers_of_hosts(self.number, air, peers)
        elif self.open_air is not None:
            addresses = HeardAddresses(self.number, air, peers)
        node = Node(
            self.config,
            host,
            self,
            store=self._store(),
            addresses=addresses,
            routing_table=KernelRoutes(),
            open_air=self.open_air,
            content=self.settings.keys.content_keys(),
            is_traced=self.journal.is_traced,
            meter=_meter(self.config),
            machine=self.world.computer,
            on_arrival=self.journal.ways.arrived,
        )
        for channel, layer in node.layers.items():
            host(channel)
            hosts[channel].attach(layer)
        node.broker.store.loses = not node.declared.survives_full
        if self.journal.is_traced:
            node.underlay.listen(NeighbourJournal(node.strategy, host(Channel.UNDERLAY)))
        return node

    def _store(self) -> EventStore:
        entries_max, settled = self.settings.node.events_max, self.applications.settled
        if self.storage is None:
            return EventStore(entries_max=entries_max, settled=settled)
        return DurableEventStore(
            self.storage, self.clock.now, self.world.wall, entries_max=entries_max, settled=settled
        )

    def _on_later(self, action: Callable[[], None]) -> None:
        self.enter()
        action()

    def _after(self) -> None:
        self.applications.drain()
        if self.storage is not None:
            self._commit_soon()

    def _commit_soon(self) -> None:
        if self._commit is None and not self._is_stopping:
            self._commit = self._loop.call_soon(self._on_commit)

    def _on_commit(self) -> None:
        self._commit = None
        assert self.storage is not None
        self.storage.end_turn(self.clock.now)
        if self.storage.is_pending and self._later_commit is None:
            self._later_commit = self._loop.call_later(seconds(LAZY), self._on_later_commit)

    def _on_later_commit(self) -> None:
        self._later_commit = None
        assert self.storage is not None
        self.storage.commit()

    def _close_files(self) -> None:
        if self._trace is not None:
            self._trace.close()
        if self.storage is not None:
            self.storage.close()

    def _trace_delivery(self, delivery: Delivery) -> None:
        event = delivery.event
        standing = {one.number: one for one in self.node.broker.subscriptions()}
        matched = is_right(delivery, self.number, standing)
        self.journal.add(
            Delivered(self.clock.now, self.number, event.publisher, event.sequence, delivery.hops, matched)
        )

    def _count_what_stands(self) -> None:
        radio, applications = self.radio, self.applications
        gauges: dict[str, Callable[[], float]] = {
            "neighbours": lambda: len(self.node.underlay.neighbours()),
            "events_published_total": lambda: applications.published,
            "events_delivered_total": lambda: applications.delivered,
            "uptime_seconds": lambda: round(seconds(self.clock.read() - self.started_at)),
            "links": lambda: len(radio.links),
            "frames_queued": lambda: radio.links.queued,
            "datagrams_dropped_by_kernel": radio.air.dropped_by_kernel,
            "timers": lambda: len(self._timers),
            "subscriptions": lambda: len(self.node.broker.subscriptions()),
            "events_stored": lambda: len(self.node.broker.store),
            "events_held_back": lambda: len(self.node.broker.held_back),
            "events_let_pass_total": lambda: self.node.broker.held_back.let_pass,
            "broker_load": lambda: self.journal.load or 0,
            "large_payloads_coming": lambda: applications.assembler.unfinished,
        }
        for name, read in gauges.items():
            self.counters.gauge(name, read)
        parts = {"version": __version__, "strategy": self.config.strategy, "underlay": self.underlay_name}
        self.counters.gauge("build_info", lambda: 1, **parts)
        by_peer: dict[str, Callable[[Peer], float]] = {
            "peer_up": lambda peer: peer.hearing.is_up,
            "peer_quality": lambda peer: round(peer.hearing.slots.quality(self.clock.now) or 0, 2),
            "peer_received_bytes_total": lambda peer: peer.hearing.bytes_received,
            "peer_sent_bytes_total": lambda peer: peer.hearing.bytes_sent,
        }
        for name, value in by_peer.items():
            self.counters.family(name, "peer", partial(radio.peers.metered, value))
        by_interface: dict[str, Callable[[UsedInterface], float]] = {
            "interface_up": lambda used: used.is_up,
            "interface_peers": lambda used: radio.peers.reached_by(used.name),
        }
        for name, value_of in by_interface.items():
            self.counters.family(name, "interface", partial(radio.air.metered, value_of))


def _storage(world: NodeWorld, path: Path) -> NodeStorage | None:
    try:
        return NodeStorage(world.disk, path)
    except UnwritableError as error:
        logger.error("%s; the node goes on without storage, and keeps nothing over a restart", error)
        return None


def _without_storage(world: NodeWorld) -> MutableMapping[str, bytes]:
    """Without storage, sequence numbers begin at a value computed from the wall clock, so that a restart
    repeats none (up to `SEQUENCES_PER_SECOND` on average). If the clock is not set, they begin at random."""
    since = world.wall() - CLOCK_SET
    first = since * SEQUENCES_PER_SECOND // SECOND if since > 0 else world.random.getrandbits(48)
    return {"sequence": first.to_bytes(8, "big")}


def _config(settings: LiveSettings) -> NodeConfig:
    name = settings.strategy.name or LIVE_DEFAULT
    options = settings.strategy.options
    if settings.node.number is None:  # else it plays a scenario, with that scenario's options
        options = {**STRATEGIES.declared(name).live_options, **options}
    return NodeConfig(
        name,
        msgspec.convert(options, STRATEGIES.options_type(name)),
        settings.underlay.name,
        _options(settings.underlay),
        settings.node.broker,
    )


def _meter(config: NodeConfig) -> LiveMeter | None:
    """For strategies that run consumers' functions and have a limit on their time."""
    options = config.strategy_options
    return LiveMeter(micros(options.modulator_limit)) if isinstance(options, LimitsModulators) else None


def _options(part: PartSettings) -> msgspec.Struct | None:
    if part.name is None:
        return None
    return msgspec.convert(part.options, UNDERLAYS.options_type(part.name))


class LiveHost:
    """One layer of one running node."""

    def __init__(
        self,
        node: NodeId,
        channel: Channel,
        clock: Clock,
        timers: NodeTimers,
        radio: LiveRadio,
        journal: NodeJournal,
        random: Random,
        stable: MutableMapping[str, bytes],
    ) -> None:
        self.node = node
        self.random = random
        self.stable = stable
        self._channel = channel
        self._clock = clock
        self._timers = timers.layer()
        self._radio = radio
        # These are what the port says, without a step in between.
        self.set_timer = self._timers.set
        self.cancel_timer = self._timers.cancel
        self.broadcast = partial(radio.broadcast, channel)
        self.trace = journal.add

    def attach(self, layer: Layer) -> None:
        self._timers.attach(layer)
        self._radio.attach(self._channel, layer.on_receive)

    def now(self) -> Micros:
        return self._clock.now

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        assert to != self.node, "a node does not send to itself"
        self._radio.unicast(self._channel, to, frame, on_failure)

    def airtime(self, octets: int) -> Micros:
        return ACCESS + octets * 8 * SECOND // BROADCAST_BITRATE

    def position(self) -> Position | None:
        return None  # no source of positions is connected yet
