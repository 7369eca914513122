"""The overlay manager as a component for other systems (chapter 5), in its two forms.

Both are thin interfaces to the same protocol code. The *proactive* one (5.2) does everything itself: it
listens for neighbours by beacons, keeps the tree, and carries its owner's objects to every node of the
partition. The *reactive* one (5.3) only keeps the tree: its owner has links and identifiers of its own,
says when one of its links broke, and opens the ones it is asked to.

    manager = ProactiveManager(hosts, TreeOptions(), listener)   # hosts: one Host per Channel
    manager.start()
    manager.send_object(b"to everybody")                         # listener.process_object on all others

    manager = ReactiveManager(host, TreeOptions(), connector)    # connector: id, neighbours, url, open_link
    manager.on_start()
    manager.signal_lost_neighbour(7)                             # later: connector.open_link("tcp://…")

`examples/keep_connected.py` keeps TCP peers connected with the second.
"""

from collections.abc import Callable
from typing import Protocol

from roamcast.host import Channel, Host, Kind, Layer, TimerName
from roamcast.strategy.tree.overlay.layer import Overlay, make_protocol, receive
from roamcast.strategy.tree.overlay.links import LinkState
from roamcast.strategy.tree.overlay.parameters import OverlayParameters, TreeOptions
from roamcast.underlay.base import UnderlayContext
from roamcast.underlay.beacons import Beacons
from roamcast.units import Micros, NodeId


class DataListener(Protocol):
    """The owner of a proactive manager (section 5.2.1)."""

    def process_object(self, data: bytes) -> None:
        """Another node of the partition sent an object."""
        ...


class ProactiveManager(Layer):
    """Keeps itself connected to every node in reach and carries objects among all of them."""

    def __init__(
        self, hosts: Callable[[Channel], Host], options: TreeOptions, listener: DataListener
    ) -> None:
        host = hosts(Channel.STRATEGY)
        self._listener = listener
        self._beacons = Beacons(UnderlayContext(hosts(Channel.UNDERLAY)), options.beacons())
        self._overlay = Overlay(host, self._beacons, options, _Spread(self))
        self._beacons.listen(self)
        self.identifier: NodeId = host.node

    # For the owner.

    def start(self) -> None:
        for layer in self.layers.values():
            layer.on_start()

    def send_object(self, data: bytes) -> None:
        """To every other node of the partition, once each as long as no link breaks meanwhile."""
        self._spread(data, None)

    def neighbours(self) -> list[NodeId]:
        return self._overlay.neighbours()

    # For the runtime.

    @property
    def layers(self) -> dict[Channel, Layer]:
        """Who handles the frames and timers of each channel."""
        return {Channel.UNDERLAY: self._beacons, Channel.STRATEGY: self}

    def on_start(self) -> None:
        self._overlay.on_start()

    def on_timer(self, name: TimerName) -> None:
        self._overlay.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        self._overlay.on_receive(sender, payload)

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._overlay.on_neighbour_up(neighbour)

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._overlay.on_neighbour_down(neighbour)

    def on_routes_changed(self) -> None:
        """Beacons know no routes."""

    def on_object(self, neighbour: NodeId, data: bytes) -> None:
        self._listener.process_object(data)
        self._spread(data, neighbour)

    def _spread(self, data: bytes, but: NodeId | None) -> None:
        # No duplicate detection: on a tree there are no duplicates.
        for neighbour in self._overlay.neighbours():
            if neighbour != but:
                self._overlay.send(
                    neighbour, data, kind=Kind.DATA, message="object", event=None, own=but is None
                )


class _Spread:
    """Adapter from the overlay to the proactive manager, whose own `on_receive` takes frames."""

    def __init__(self, manager: ProactiveManager) -> None:
        self._manager = manager

    def on_link_up(self, neighbour: NodeId) -> None:
        """Nothing to do: objects go over the links there are when they are sent."""

    def on_link_down(self, neighbour: NodeId) -> None:
        """Nothing to do, likewise."""

    def on_receive(self, neighbour: NodeId, payload: bytes) -> None:
        self._manager.on_object(neighbour, payload)

    def event_in(self, payload: bytes) -> None:
        """Objects are no events."""


class Connector(Protocol):
    """What the owner of a reactive manager provides (table 5.3, SysConnector).

    Called from inside the manager's inputs: start the work and return, never call back in.
    """

    def id(self) -> NodeId:
        """This node, the same before and after a reboot."""
        ...

    def neighbours(self) -> list[NodeId]:
        """The nodes that the owner has an open link to."""
        ...

    def url(self) -> str:
        """All that another node needs to open a link to this one."""
        ...

    def open_link(self, url: str) -> None:
        """Open a link. If that fails, say so by `signal_lost_neighbour`."""
        ...

    def close_link(self, neighbour: NodeId) -> None:
        """The link to this neighbour is no part of the tree any more. The work has no such call and
        waits for the transport to fail; without it, a link that only one end gave up could close a cycle
        of the owner's links."""
        ...


AUDIT = "audit"


class ReactiveManager(Layer):
    """Keeps its owner's links a tree; carries control messages only, on `host`."""

    def __init__(self, host: Host, options: TreeOptions, connector: Connector) -> None:
        assert host.node == connector.id(), "the owner's identifiers are the manager's (section 5.3)"
        self._host = host
        self._connector = connector
        self._protocol = make_protocol(host, options, self, None, connector.url())
        self._audit_interval: Micros = OverlayParameters.of(options).hello_interval
        self._missing: list[NodeId] = []

    # For the owner.

    def signal_lost_neighbour(self, neighbour: NodeId) -> None:
        """A link of the owner broke, or could not be opened; the work's `signalLostNeighbor`."""
        self._protocol.on_neighbour_down(neighbour)

    def tree_neighbours(self) -> list[NodeId]:
        """Whom the owner should have links to."""
        return self._protocol.neighbours()

    @property
    def is_leader(self) -> bool:
        return self._protocol.is_leader

    # For the runtime.

    def on_start(self) -> None:
        self._protocol.on_start()
        self._host.set_timer((AUDIT,), self._host.now() + self._audit_interval)

    def on_timer(self, name: TimerName) -> None:
        if name == (AUDIT,):
            self._audit()
        else:
            self._protocol.on_timer(name)

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        receive(self._host, self._protocol, sender, payload)

    # The protocol's listener.

    def on_link_up(self, neighbour: NodeId) -> None:
        link = self._protocol.links[neighbour]
        if link.opened_here:
            self._connector.open_link(link.url)

    def on_link_down(self, neighbour: NodeId) -> None:
        self._connector.close_link(neighbour)

    def event_in(self, payload: bytes) -> None:
        """Data goes over the owner's own links."""

    def _audit(self) -> None:
        """A tree link that the owner has had no link for, twice in a row, is lost."""
        have = set(self._connector.neighbours())
        links = self._protocol.links
        missing = [peer for peer in self._protocol.neighbours() if peer not in have]
        for peer in missing:
            if peer in self._missing and peer in links and links[peer].state is LinkState.OPEN:
                self._protocol.on_neighbour_down(peer)
        self._missing = missing
        self._host.set_timer((AUDIT,), self._host.now() + self._audit_interval)
