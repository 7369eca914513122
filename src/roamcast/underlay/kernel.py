"""The underlay `kernel`: neighbours and routes that a routing daemon keeps on this host already.

Where a fleet runs its own routing (olsrd, babeld, BATMAN with addresses), a second protocol on the air
would only add traffic. This underlay reads the host's routing table instead, through a
`RoutingTable` that the runtime provides, once per `interval`.

What a routing table can say: a host reached without a gateway, or by itself as gateway (olsrd and babeld
write it so), is a neighbour; a route's metric is its number of hops where the daemon writes it so, and
otherwise the distance is 1 or more. It does not say who relays for whom. A strategy that needs relays gets
them from announcements of our own (`Covering`). They are sent from the first time that it asks; until then
this underlay sends nothing.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from roamcast.errors import InputError
from roamcast.event import Count
from roamcast.kit.protocol import MessageLayer, Timer, WireMessage
from roamcast.underlay.addresses import Addresses, HostRoute, RoutingTable, Subnet
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.olsr.mpr import RelayCandidate, select_relays
from roamcast.units import Micros, NodeId, micros
from roamcast.wire import Codec
from roamcast.wire.olsr import WILL_DEFAULT

ROUTES_MAX = 65_536  # routes used of the host's table; chosen by us
NEIGHBOURS_MAX = 1_000  # named in one announcement, and remembered; chosen by us, as for beacons
HOLD_INTERVALS = 3  # as NEIGHB_HOLD_TIME of RFC 3626
JITTER = 0.25  # of the announcement interval: neighbours that started together must not collide for ever


class KernelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0  # seconds between readings of the table
    # Seconds between announcements, if the strategy asks for relays; OLSR's HELLO interval.
    announcement_interval: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 2.0


class KernelRoute(msgspec.Struct, frozen=True):
    next_hop: NodeId
    distance: int


class Announcement(WireMessage, frozen=True, tag=1):
    name = "covering"
    neighbours: Annotated[tuple[Count, ...], msgspec.Meta(max_length=NEIGHBOURS_MAX)]
    relays: Annotated[tuple[Count, ...], msgspec.Meta(max_length=NEIGHBOURS_MAX)]


CODEC: Codec[Announcement] = Codec("covering", 1, Announcement)


class Kernel(MessageLayer, Underlay):
    def __init__(self, context: UnderlayContext, options: KernelOptions) -> None:
        super().__init__(context.host, CODEC)
        if context.routing_table is None:
            raise InputError(
                "underlay", "is 'kernel'; allowed here: underlays that need no host routing table"
            )
        self._table: RoutingTable = context.routing_table
        self._addresses: Addresses = context.addresses or Subnet()
        self._interval = micros(options.interval)
        self._ways: dict[NodeId, KernelRoute] = {}
        self._announcement_interval = micros(options.announcement_interval)
        self._covering = Covering(context.host.node, self._announcement_interval)
        self._is_asked = False  # for relays
        self._look_timer = Timer(self.host, self._look)
        self._announce_timer = Timer(self.host, self._announce)
        self.handlers = {Announcement: self._on_announcement}

    def on_start(self) -> None:
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

    def relays(self) -> list[NodeId]:
        """Of the nodes around: those that this node or one of its neighbours chose, this one too."""
        if not self._is_asked:
            self._is_asked = True
            self._announce_timer.within(self._announcement_interval)
        return self._covering.relays(self.neighbours(), self.host.now())

    def _on_announcement(self, sender: NodeId, announcement: Announcement) -> None:
        if self._covering.on_announcement(sender, announcement, self.host.now()) and self._is_asked:
            self._report_routes()

    def _announce(self) -> None:
        now = self.host.now()
        self.messenger.send(self._covering.announcement(self.neighbours(), now))
        early = int(self.host.random.random() * JITTER * self._announcement_interval)
        self._announce_timer.after(self._announcement_interval - early)
        if self._covering.forget_silent(now):
            self._report_routes()

    def _look(self) -> None:
        self._look_timer.after(self._interval)
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
        for route in ranked[:ROUTES_MAX]:
            node = self._addresses.node(route.destination)
            if node is not None and node != self.host.node and node not in ways:
                way = self._way(node, route)
                if way is not None:
                    ways[node] = way
        return ways

    def _way(self, node: NodeId, route: HostRoute) -> KernelRoute | None:
        next_hop = node if route.gateway is None else self._addresses.node(route.gateway)
        if next_hop is None or next_hop == self.host.node:
            return None  # the next hop is a router that runs no node of ours
        return KernelRoute(next_hop, 1 if next_hop == node else max(2, route.metric))


class Covering:
    """Relays for a routing protocol that names none, computed from announcements of our own.

    Each node says who its neighbours are and whom of them it chose as relays. From what its neighbours say it
    chooses, by OLSR's heuristic, relays that cover everybody two hops away. So a node knows the relays within
    two hops, which is what a strategy asks about: whether it is one itself, and which of its neighbours are.
    Announcements travel sealed, one hop, like every frame of ours.
    """

    def __init__(self, node: NodeId, interval: Micros) -> None:
        self._node = node
        self._hold = HOLD_INTERVALS * interval
        self._heard: dict[NodeId, tuple[Announcement, Micros]] = {}  # the latest of each, and its deadline

    def on_announcement(self, sender: NodeId, announcement: Announcement, now: Micros) -> bool:
        """Keep it. True if it differs from the last one of this sender."""
        before = self._heard.get(sender)
        if before is None and len(self._heard) >= NEIGHBOURS_MAX:
            return False
        self._heard[sender] = announcement, now + self._hold
        return before is None or before[0] != announcement

    def announcement(self, neighbours: Iterable[NodeId], now: Micros) -> Announcement:
        listed = sorted(neighbours)[:NEIGHBOURS_MAX]
        return Announcement(tuple(listed), tuple(sorted(self._chosen(listed, now))))

    def relays(self, neighbours: Iterable[NodeId], now: Micros) -> list[NodeId]:
        """Chosen by this node or by a neighbour, in order."""
        listed = list(neighbours)
        said = (self._said(node, now) for node in listed)
        return sorted(self._chosen(listed, now).union(*(one.relays for one in said if one is not None)))

    def forget_silent(self, now: Micros) -> bool:
        """Whether any was."""
        silent = [node for node, (_, until) in self._heard.items() if until <= now]
        for node in silent:
            del self._heard[node]
        return bool(silent)

    def _chosen(self, neighbours: Iterable[NodeId], now: Micros) -> frozenset[NodeId]:
        """Only nodes that announce themselves can relay: a host on the link may be a router of others."""
        candidates: dict[NodeId, RelayCandidate] = {}
        for node in sorted(neighbours):
            said = self._said(node, now)
            if said is not None and self._node in said.neighbours:
                candidates[node] = WILL_DEFAULT, frozenset(said.neighbours)
        return select_relays(self._node, candidates)

    def _said(self, node: NodeId, now: Micros) -> Announcement | None:
        heard = self._heard.get(node)
        return heard[0] if heard is not None and now < heard[1] else None
