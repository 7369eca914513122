"""The underlay `kernel`: neighbours and routes that a routing daemon keeps on this host already.

Where a fleet runs its own routing (olsrd, babeld, BATMAN with addresses), a second protocol on the air
would only add traffic. This underlay reads the host's routing table instead, through a
`RoutingTable` that the runtime provides, once per `interval`. It sends nothing.

What a routing table can say: a host reached without a gateway, or by itself as gateway (olsrd and babeld
write it so), is a neighbour; a route's metric is its number of hops where the daemon writes it so, and
otherwise the distance is 1 or more. It does not say who relays for whom.
"""

from typing import Annotated

import msgspec

from roamcast.errors import InputError
from roamcast.host import TimerName
from roamcast.underlay.addresses import Addresses, Subnet
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.routing_table import HostRoute, RoutingTable
from roamcast.units import NodeId, micros


class KernelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0  # seconds between readings of the table
    routes_max: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 65_536  # routes used


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

    def on_start(self) -> None:
        self._look()

    def on_timer(self, name: TimerName) -> None:
        self._look()

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
