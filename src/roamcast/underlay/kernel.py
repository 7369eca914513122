"""The underlay `kernel`: neighbours and routes that a routing daemon keeps on this host already.

Where a fleet runs its own routing (olsrd, babeld, BATMAN with addresses), a second protocol on the air
would only add traffic. This underlay reads the host's routing table instead, through a
`RoutingTable` that the runtime provides, once per `interval`.

What a routing table can say: a host reached without a gateway, or by itself as gateway (olsrd and babeld
write it so), is a neighbour; a route's metric is its number of hops where the daemon writes it so, and
otherwise the distance is 1 or more. It does not say who relays for whom. A strategy that needs relays gets
them from announcements of our own (`covering.py`). They are sent from the first time that it asks; until then
this underlay sends nothing.
"""

from typing import Annotated

import msgspec

from roamcast.errors import InputError, WireError
from roamcast.host import Frame, Kind, TimerName
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.addresses import Addresses, Subnet
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.covering import CODEC, Covering
from roamcast.underlay.routing_table import HostRoute, RoutingTable
from roamcast.units import NodeId, micros

JITTER = 0.25  # of the announcement interval: neighbours that started together must not collide for ever


class KernelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0  # seconds between readings of the table
    routes_max: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 65_536  # routes used
    # Seconds between announcements, if the strategy asks for relays; OLSR's HELLO interval.
    announcement_interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 2.0


class KernelRoute(msgspec.Struct, frozen=True):
    next_hop: NodeId
    distance: int


class Kernel(Underlay):
    def __init__(self, context: UnderlayContext, options: KernelOptions) -> None:
        super().__init__()
        if context.routing_table is None:
            raise InputError(
                "underlay", "is 'kernel'; allowed here: underlays that need no host routing table"
            )
        self._host = context.host
        self._table: RoutingTable = context.routing_table
        self._addresses: Addresses = context.addresses or Subnet()
        self._interval = micros(options.interval)
        self._routes_max = options.routes_max
        self._ways: dict[NodeId, KernelRoute] = {}
        self._announcement_interval = micros(options.announcement_interval)
        self._covering = Covering(context.host.node, self._announcement_interval)
        self._is_asked = False  # for relays

    def on_start(self) -> None:
        self._look()

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "look":
                self._look()
            case "announce":
                self._announce()

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        now, node = self._host.now(), self._host.node
        try:
            announcement = CODEC.decode(payload)
        except WireError as error:
            self._host.trace(Dropped(now, node, DropReason.WIRE, "covering", detail=str(error)))
            return
        if self._covering.on_announcement(sender, announcement, now) and self._is_asked:
            self._report_routes()

    def on_link_failure(self, neighbour: NodeId) -> None:
        """The daemon may know already: read the table now, not at the next interval."""
        self._look()

    def neighbours(self) -> list[NodeId]:
        return sorted(node for node, way in self._ways.items() if way.next_hop == node)

    def next_hop(self, to: NodeId) -> NodeId | None:
        way = self._ways.get(to)
        return None if way is None else way.next_hop

    def distance(self, to: NodeId) -> int | None:
        way = self._ways.get(to)
        return None if way is None else way.distance

    def known_nodes(self) -> list[NodeId]:
        return sorted(self._ways)

    def relays(self) -> list[NodeId]:
        """Of the nodes around: those that this node or one of its neighbours chose, this one too."""
        if not self._is_asked:
            self._is_asked = True
            first = int(self._host.random.random() * self._announcement_interval)
            self._host.set_timer("announce", self._host.now() + first)
        return self._covering.relays(self.neighbours(), self._host.now())

    def _announce(self) -> None:
        now = self._host.now()
        announcement = self._covering.announcement(self.neighbours(), now)
        self._host.broadcast(Frame(CODEC.encode(announcement), Kind.CONTROL, "covering"))
        early = int(self._host.random.random() * JITTER * self._announcement_interval)
        self._host.set_timer("announce", now + self._announcement_interval - early)
        if self._covering.forget_silent(now):
            self._report_routes()

    def _look(self) -> None:
        self._host.set_timer("look", self._host.now() + self._interval)
        before, self._ways = self._ways, self._read()
        if before == self._ways:
            return
        neighbours_before = {node for node, way in before.items() if way.next_hop == node}
        neighbours_now = set(self.neighbours())
        for node in sorted(neighbours_before - neighbours_now):
            self._report_down(node)
        for node in sorted(neighbours_now - neighbours_before):
            self._report_up(node)
        self._report_routes()

    def _read(self) -> dict[NodeId, KernelRoute]:
        """The best route per node; of equal ones the first by gateway. Foreign addresses are left out."""
        ways: dict[NodeId, KernelRoute] = {}
        ranked = sorted(self._table.routes(), key=lambda route: (route.metric, route.gateway or 0))
        for route in ranked[: self._routes_max]:
            node = self._addresses.node(route.destination)
            if node is not None and node != self._host.node and node not in ways:
                way = self._way(node, route)
                if way is not None:
                    ways[node] = way
        return ways

    def _way(self, node: NodeId, route: HostRoute) -> KernelRoute | None:
        next_hop = node if route.gateway is None else self._addresses.node(route.gateway)
        if next_hop is None or next_hop == self._host.node:
            return None  # the next hop is a router that runs no node of ours
        return KernelRoute(next_hop, 1 if next_hop == node else max(2, route.metric))
