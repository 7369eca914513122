"""What a strategy may ask about the network around its node.

OLSR, a kernel routing table, beacons or the simulator's own knowledge answer the same questions, so a
strategy runs over any of them. Listeners hear of changes at the instant the underlay learns them. The two
that send nothing are here too: `NoUnderlay` and `IdealUnderlay`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from roamcast.errors import InputError
from roamcast.host import Frame, Host, Layer
from roamcast.underlay.addresses import Address, Addresses, RoutingTable
from roamcast.units import NodeId


class UnderlayListener(Protocol):
    """A strategy that wants to hear of neighbours and routes."""

    def on_neighbour_up(self, neighbour: NodeId) -> None: ...

    def on_neighbour_down(self, neighbour: NodeId) -> None: ...

    def on_routes_changed(self) -> None: ...


class Oracle(Protocol):
    """Knowledge of the whole world, which only a simulator has."""

    def neighbours(self, node: NodeId) -> list[NodeId]: ...

    def connected(self, node: NodeId) -> list[NodeId]: ...

    def next_hop(self, node: NodeId, to: NodeId) -> NodeId | None: ...

    def distance(self, node: NodeId, to: NodeId) -> int | None: ...


class IpRoute(NamedTuple):
    """A route for the host's own table: what it forwards for others, not only for nodes of ours."""

    network: Address
    prefix: int
    gateway: Address | None  # None: the host itself is on the link
    interface: Address  # our own, by its address
    hops: int


class OpenAir(Protocol):
    """The interfaces of an underlay that speaks with foreign daemons. Its packets are sent as they are,
    without our frames and seals, and anybody can have sent what comes in."""

    interfaces: tuple[Address, ...]  # by their addresses, the main one first

    def send(self, interface: Address, frame: Frame) -> None:
        """Broadcast one packet on one interface."""
        ...

    def write_routes(self, routes: Sequence[IpRoute]) -> None:
        """All routes that the host is to have from this underlay; earlier ones that are not among them are
        removed."""
        ...


@runtime_checkable
class OpenOptions(Protocol):
    """Options of an underlay that may run open. A runtime that can provides `UnderlayContext.open_air`."""

    open: bool
    interfaces: tuple[str, ...]  # beside the node's own
    kernel_routes: bool
    networks_accepted: tuple[str, ...]  # beside those of the interfaces


@runtime_checkable
class OpenUnderlay(Protocol):
    """An underlay that is running open."""

    def on_packet(self, interface: Address, source: Address, payload: bytes) -> None:
        """A packet of anybody came in on one of our interfaces."""
        ...


class UnderlayContext(NamedTuple):
    """What an underlay is built from."""

    host: Host
    oracle: Oracle | None = None  # None outside simulation
    addresses: Addresses | None = None  # None: nodes are numbered through 10.0.0.0/8
    routing_table: RoutingTable | None = None  # the host's own, where a runtime can read it
    open_air: OpenAir | None = None  # where the underlay's options ask for it and a runtime has it


class Underlay(Layer):
    """The base: no neighbours, no routes. Real underlays override the questions."""

    _listener: UnderlayListener | None = None
    _on_rider: Callable[[NodeId, bytes], object] | None = None
    _passenger: Callable[[], bytes] | None = None

    def listen(self, listener: UnderlayListener) -> None:
        self._listener = listener

    def on_link_failure(self, neighbour: NodeId) -> None:
        """A strategy's unicast to a neighbour failed. An underlay may take the link for lost; most rely on
        their own link sensing."""

    def ride(self, key: str, payload: bytes) -> bool:
        """Take octets of the strategy along with the next message that goes to all neighbours anyway: no
        frame of its own, no promise that it arrives. What waits under the same key is replaced. False: the
        underlay has no such message, or no room in it."""
        return False

    def take_along(self, passenger: Callable[[], bytes]) -> bool:
        """Let a function of the strategy add octets to every message for all neighbours. It is called when
        the message is sent, so the octets are up to date. False: the underlay has no such message."""
        return False

    def hear_riders(self, on_rider: Callable[[NodeId, bytes], object]) -> None:
        """Whom to call with what neighbours let ride."""
        self._on_rider = on_rider

    def neighbours(self) -> list[NodeId]:
        """One-hop neighbours with a link in both directions, in increasing order."""
        return []

    def neighbours_of(self, neighbour: NodeId) -> list[NodeId]:
        """The nodes that a neighbour hears, by its latest message; empty if the underlay does not know."""
        return []

    def is_overdue(self, neighbour: NodeId) -> bool:
        """Whether a neighbour should have been heard from by now, and was not."""
        return False

    def next_hop(self, to: NodeId) -> NodeId | None:
        """The first hop of the route to `to`; None where no route is known."""
        return None

    def distance(self, to: NodeId) -> int | None:
        """Hops to `to`; None where no route is known."""
        return None

    def known_nodes(self) -> list[NodeId]:
        """Every other node that a route leads to, neighbours included, in increasing order."""
        return self.neighbours()

    def relays(self) -> list[NodeId]:
        """The nodes known to relay for others (OLSR's multipoint relays), maybe this one, in order.

        Empty where the underlay has no such notion.
        """
        return []

    def is_relay(self, node: NodeId) -> bool:
        """Whether a node shall pass on what is for all: it is a relay, or nobody is known to be one."""
        relays = self.relays()
        return not relays or node in relays

    def _report_up(self, neighbour: NodeId) -> None:
        if self._listener is not None:
            self._listener.on_neighbour_up(neighbour)

    def _report_down(self, neighbour: NodeId) -> None:
        if self._listener is not None:
            self._listener.on_neighbour_down(neighbour)

    def _report_ridden(self, neighbour: NodeId, payload: bytes) -> None:
        if self._on_rider is not None:
            self._on_rider(neighbour, payload)

    def _report_routes(self) -> None:
        if self._listener is not None:
            self._listener.on_routes_changed()


class NoOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a part without parameters."""


class NoUnderlay(Underlay):
    """For strategies that only broadcast: no traffic, no knowledge."""

    def __init__(self, context: UnderlayContext | None = None, options: NoOptions | None = None) -> None:
        """Nothing to keep."""


class IdealOptions(NoOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to choose."""


class IdealUnderlay(Underlay):
    """Neighbours and shortest paths as they are at this instant, without any traffic.

    For studies that leave routing out, as the opportunistic-overlay simulations do (section 4.1), and as the
    best case that a real underlay is measured against. It exists only in a simulation; a live node that names
    it is refused. It reports changes of the node's own neighbours; changes further away show only in its
    answers.
    """

    def __init__(self, context: UnderlayContext, options: IdealOptions) -> None:
        if context.oracle is None:
            raise InputError("underlay", "is 'ideal'; allowed here: underlays that need no simulated world")
        self._node = context.host.node
        self._oracle = context.oracle

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._report_up(neighbour)
        self._report_routes()

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._report_down(neighbour)
        self._report_routes()

    def neighbours(self) -> list[NodeId]:
        return self._oracle.neighbours(self._node)

    def next_hop(self, to: NodeId) -> NodeId | None:
        return self._oracle.next_hop(self._node, to)

    def known_nodes(self) -> list[NodeId]:
        return [node for node in self._oracle.connected(self._node) if node != self._node]

    def distance(self, to: NodeId) -> int | None:
        return self._oracle.distance(to, self._node)  # the same both ways: one search for all questions here
