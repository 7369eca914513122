"""The overlay manager as a component for other systems (chapter 5), in its two forms.

Both are thin interfaces to the same protocol code. The *proactive* one (5.2) does everything itself: it
listens for neighbours by beacons, keeps the tree, and carries its owner's objects to every node of the
partition. The *reactive* one (5.3) only keeps the tree: its owner has links and identifiers of its own,
says when one of its links broke, and opens the ones it is asked to.

    manager = ProactiveManager(hosts, TreeOptions(), listener)   # hosts: one Host per Channel
    manager.start()
    manager.send_object(b"to everybody")                         # listener.process_object on all others
    manager.stop()                                               # prunes its links, and is silent

    manager = ReactiveManager(host, TreeOptions(), connector)    # connector: id, neighbours, url, open_link
    manager.start()
    manager.signal_lost_neighbour(7)                             # later: connector.open_link("tcp://…")

`runtime/live/layers.py` has hosts for both on real interfaces. `examples/keep_connected.py` keeps TCP peers
connected with the second.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from roamcast.broker.seen import SeenEvents, event_key
from roamcast.errors import InputError, WireError
from roamcast.event import Count, EventId
from roamcast.host import Channel, Host, Kind, Layer, TimerName
from roamcast.kit.numbers import StableCounter
from roamcast.kit.protocol import Messenger, Timer, WireMessage
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.overlay.messages import HOPS_MAX, Hops
from roamcast.strategy.tree.overlay.multicast_table import LinkState, OverlayListener
from roamcast.strategy.tree.parameters import OverlayParameters, TreeOptions
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.beacons import Beacons
from roamcast.units import Micros, NodeId
from roamcast.wire import Codec

OBJECT_BYTES_MAX = 60_000  # as an event's payload: with all headers it fits a datagram
NUMBERS = "manager.number"  # key in stable storage: of the objects that this node sent
NUMBERS_BLOCK = 1_000  # numbers that one stable write reserves; chosen by us


class SpreadObject(WireMessage, frozen=True):
    """An object on its way. Its origin and number name it, so that a frame that comes twice (a repeat whose
    acknowledgement was lost, a replay) is processed and passed on once."""

    name = "object"
    kind = Kind.DATA

    origin: Count
    number: Count
    hops: Hops  # radio hops before this one
    data: bytes


OBJECTS: Codec[SpreadObject] = Codec("object", 1, SpreadObject)


class ObjectTree(OverlayListener):
    """Objects to every other node of the partition, once each as long as no link breaks meanwhile."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        options: TreeOptions,
        on_object: Callable[[bytes, int], None],
        event_in: Callable[[bytes], EventId | None] = lambda data: None,
    ) -> None:
        """`on_object`: another node's object is here, with the hops that it took. `event_in`: the event that
        an object carries, for the trace."""
        self._host = host
        self._messenger = Messenger(host, OBJECTS)
        self._on_object = on_object
        self._event_in = event_in
        self.overlay = Overlay(host, underlay, options, self)
        self._numbers = StableCounter(host.stable, NUMBERS, NUMBERS_BLOCK)
        self._seen = SeenEvents()

    def send(self, data: bytes) -> None:
        node, number = self._host.node, self._numbers.take()
        self._seen.observe(event_key(node, number), self._host.now())
        self._spread(SpreadObject(node, number, 0, data), None)

    # The overlay's listener. Objects go over one link at a time, and over those there are when they are sent.

    def on_data(self, neighbour: NodeId, payload: bytes) -> None:
        found = self._messenger.decode(payload)
        if found is None or not self._seen.observe(event_key(found.origin, found.number), self._host.now()):
            return
        found = msgspec.structs.replace(found, hops=min(found.hops + 1, HOPS_MAX))
        self._spread(found, neighbour)
        self._on_object(found.data, found.hops)

    def event_in(self, payload: bytes) -> EventId | None:
        try:
            return self._event_in(OBJECTS.decode(payload).data)
        except WireError:
            return None

    def _spread(self, found: SpreadObject, but: NodeId | None) -> None:
        frame = self._messenger.frame(found, own=but is None)
        labelled = msgspec.structs.replace(frame, event=self._event_in(found.data))
        for neighbour in self.overlay.neighbours():
            if neighbour != but:
                self.overlay.send(neighbour, labelled)


class DataListener(Protocol):
    """The owner of a proactive manager (section 5.2.1)."""

    def process_object(self, data: bytes) -> None:
        """Another node of the partition sent an object."""


class ProactiveManager:
    """Keeps itself connected to every node in reach and carries objects among all of them."""

    def __init__(
        self, hosts: Callable[[Channel], Host], options: TreeOptions, listener: DataListener
    ) -> None:
        host = hosts(Channel.STRATEGY)
        self._beacons = Beacons(UnderlayContext(hosts(Channel.UNDERLAY)), options.beacons())
        self._tree = ObjectTree(host, self._beacons, options, lambda data, _: listener.process_object(data))
        self._overlay = self._tree.overlay
        self._beacons.listen(self)
        self.runs = False
        self.identifier: NodeId = host.node

    # For the owner.

    def start(self) -> None:
        self.runs = True
        for layer in self.layers.values():
            layer.on_start()

    def stop(self) -> None:
        """Leave the tree, and tell the neighbours (table 5.1). Inputs that still come are ignored, and
        nothing more is sent. A stopped manager stays stopped: to begin again, make another."""
        if self.runs:
            self._overlay.on_stop()
            self.runs = False

    def send_object(self, data: bytes) -> None:
        """To every other node of the partition, once each as long as no link breaks meanwhile. `InputError`
        for an object that is too large, or while the manager does not run."""
        if len(data) > OBJECT_BYTES_MAX:
            raise InputError("object", f"has {len(data)} octets; at most {OBJECT_BYTES_MAX} are allowed")
        if not self.runs:
            raise InputError("object", "cannot be sent: this manager does not run; allowed: after start")
        self._tree.send(data)

    def neighbours(self) -> list[NodeId]:
        return self._overlay.neighbours()

    # For the runtime.

    @property
    def layers(self) -> dict[Channel, Layer]:
        """Who handles the frames and timers of each channel."""
        return {
            Channel.UNDERLAY: _WhileRunning(self, self._beacons),
            Channel.STRATEGY: _WhileRunning(self, self._overlay),
        }

    # For the beacons, which are silent themselves once the manager has stopped.

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._overlay.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._overlay.on_neighbour_down(neighbour)

    def on_routes_changed(self) -> None:
        """Beacons know no routes."""


class _WhileRunning(Layer):
    """A layer of the manager that falls silent when the manager stops."""

    def __init__(self, manager: ProactiveManager, layer: Layer) -> None:
        self._manager = manager
        self._layer = layer

    def on_start(self) -> None:
        self._layer.on_start()

    def on_stop(self) -> None:
        self._manager.stop()

    def on_timer(self, name: TimerName) -> None:
        if self._manager.runs:
            self._layer.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        if self._manager.runs:
            self._layer.on_receive(sender, payload)

    def on_acquainted(self, neighbour: NodeId) -> None:
        if self._manager.runs:
            self._layer.on_acquainted(neighbour)


class Connector(Protocol):
    """What the owner of a reactive manager provides (table 5.3, SysConnector).

    Called from inside the manager's inputs: start the work and return, never call back in.
    """

    def id(self) -> NodeId:
        """This node, the same before and after a reboot."""

    def neighbours(self) -> list[NodeId]:
        """The nodes that the owner has an open link to."""

    def url(self) -> str:
        """All that another node needs to open a link to this one."""

    def open_link(self, url: str) -> None:
        """Open a link. If that fails, say so by `signal_lost_neighbour`."""

    def close_link(self, neighbour: NodeId) -> None:
        """The link to this neighbour is no part of the tree any more. The work has no such call and
        waits for the transport to fail; without it, a link that only one end gave up could close a cycle
        of the owner's links."""


class ReactiveManager(Layer, OverlayListener):
    """Keeps its owner's links a tree; carries control messages only, on `host`."""

    def __init__(self, host: Host, options: TreeOptions, connector: Connector) -> None:
        assert host.node == connector.id(), "the owner's identifiers are the manager's (section 5.3)"
        self._connector = connector
        self._overlay = Overlay(host, None, options, self, connector.url())
        self._table = self._overlay.table
        self._audit_interval: Micros = OverlayParameters.of(options).hello_interval
        self._audit_timer = Timer(host, self._audit)
        self._missing: list[NodeId] = []
        self._runs = False

    # For the owner.

    def start(self) -> None:
        self.on_start()

    def stop(self) -> None:
        """Leave the tree, tell the neighbours, and have the owner close its links. Inputs that still
        come are ignored. A stopped manager stays stopped: to begin again, make another."""
        if self._runs:
            self._overlay.on_stop()
            self._runs = False

    def signal_lost_neighbour(self, neighbour: NodeId) -> None:
        """A link of the owner broke, or could not be opened; the work's `signalLostNeighbor`."""
        if self._runs:
            self._overlay.on_neighbour_down(neighbour)

    def tree_neighbours(self) -> list[NodeId]:
        """Whom the owner should have links to."""
        return self._table.neighbours()

    @property
    def is_leader(self) -> bool:
        return self._table.is_leader

    # For the runtime.

    @property
    def layers(self) -> dict[Channel, Layer]:
        """Who handles the frames and timers of each channel."""
        return {Channel.STRATEGY: self}

    def on_start(self) -> None:
        self._runs = True
        self._overlay.on_start()
        self._audit_timer.after(self._audit_interval)

    def on_stop(self) -> None:
        self.stop()

    def on_timer(self, name: TimerName) -> None:
        if self._runs:
            self._overlay.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        if self._runs:
            self._overlay.on_receive(sender, payload)

    # The overlay's listener. Data goes over the owner's own links.

    def on_link_up(self, neighbour: NodeId) -> None:
        link = self._table.links[neighbour]
        if link.opened_here:
            self._connector.open_link(link.url)

    def on_link_down(self, neighbour: NodeId) -> None:
        self._connector.close_link(neighbour)

    def _audit(self) -> None:
        """A tree link that the owner has had no link for, twice in a row, is lost."""
        have = set(self._connector.neighbours())
        links = self._table.links
        missing = [peer for peer in self._table.neighbours() if peer not in have]
        for peer in missing:
            if peer in self._missing and peer in links and links[peer].state is LinkState.OPEN:
                self._overlay.on_neighbour_down(peer)
        self._missing = missing
        self._audit_timer.after(self._audit_interval)
