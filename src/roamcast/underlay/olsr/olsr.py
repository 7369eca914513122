"""The underlay `olsr`: the tables of RFC 3626 put together, its timers, and the flooding of messages.

What arrives goes through one function, `on_receive`, in the order of section 3.4. Tables that follow from
others (our relays, the routes) are only marked when something changes, and computed when a
HELLO names the relays or a strategy asks for a route.
"""

from collections.abc import Callable, Iterable
from typing import Any

from roamcast.errors import InputError, WireError
from roamcast.kit.protocol import Timer, random_below, trace_drop, trace_overflow
from roamcast.kit.rates import Prompt
from roamcast.trace import DropReason, OverlayChanged
from roamcast.underlay.addresses import Addresses, Subnet
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.olsr.flooding import DefaultForwarding, name_of
from roamcast.underlay.olsr.neighbourhood import (
    ADDRESS_OCTETS,
    NEVER,
    Neighbourhood,
    PurgeTimer,
    TableChanges,
    parts_of,
)
from roamcast.underlay.olsr.options import OlsrOptions
from roamcast.underlay.olsr.routing import OlsrRoute, host_routes, network_routes, shortest_routes
from roamcast.underlay.olsr.topology import Associations, Gateway, NodeNumbers, TopologySet
from roamcast.units import MILLISECOND, Micros, NodeId, micros
from roamcast.wire.olsr import (
    WILL_NEVER,
    Address,
    LinkType,
    MessageType,
    NodeNotice,
    OlsrMessage,
    decode_hna,
    decode_mid,
    decode_node,
    decode_packet,
    decode_tc,
    dotted,
    encode_hna,
    encode_mid,
    encode_node,
    encode_tc,
    is_host_address,
)

HELLO, TC = int(MessageType.HELLO), int(MessageType.TC)  # compared with every message that arrives
TTL_MAX = 255
RIDER_MAX = 128  # octets of one; chosen by us, so that a HELLO stays a small frame
TC_OCTETS = 4 + 12 + 4  # of a packet: its header, the message's, the TC's own
# Open: routes are written into the host's table so long after a change; changes come in bursts. Chosen by us.
ROUTES_DELAY: Micros = 100 * MILLISECOND


class Olsr(Underlay):
    def __init__(self, context: UnderlayContext, options: OlsrOptions) -> None:
        self._host = context.host
        self._options = options
        if options.open and context.open_air is None:
            raise InputError("underlay.options.open", "is true; allowed: false, but for `roamcast node`")
        self._air = context.open_air
        self._addresses: Addresses = context.addresses or Subnet()
        self._interfaces: tuple[Address, ...] = (
            (self._addresses.address(context.host.node),) if self._air is None else self._air.interfaces
        )
        self._own: Address = self._interfaces[0]
        self._has_several_interfaces = len(self._interfaces) > 1
        self._node_numbers: NodeNumbers | None = None
        if self._air is not None:
            self._node_numbers = NodeNumbers(
                context.host.node, self._own, self._addresses, options.associations_max
            )
            self._addresses = self._node_numbers
        is_router = self._air is None or options.kernel_routes
        self._willingness = options.willingness if is_router else WILL_NEVER
        redundancy = options.tc_redundancy
        if redundancy is None:
            redundancy = 0 if self._air is None else 2
        # Section 15.1: who never relays advertises nothing more, or traffic would be led to it.
        self._tc_redundancy = redundancy if self._willingness != WILL_NEVER else 0
        self._hello_interval = micros(options.hello_interval)
        self._tc_interval = micros(options.tc_interval)
        self._neighbour_hold = micros(options.hello_interval * options.hold_intervals)
        self._topology_hold = micros(options.tc_interval * options.hold_intervals)
        self._jitter = micros(options.hello_interval * options.jitter)
        self._validity_max = micros(options.validity_max)

        self._changes = TableChanges()
        self._deadlines = PurgeTimer(self._host, self._purge)
        self._topology = TopologySet(options.topology_max)
        self._associations = Associations(options.associations_max, self._interfaces)
        self._neighbourhood = Neighbourhood(
            self._interfaces,
            options,
            self._willingness,
            self._associations,
            self._changes,
            self._deadlines,
            self._overflow,
            self._role_changed,
        )
        # Looked into for every message that arrives.
        self._links = self._neighbourhood.links
        self._neighbours = self._neighbourhood.neighbours
        self._selectors = self._neighbourhood.selectors
        relay_jitter = self._jitter if options.relay_jitter is None else micros(options.relay_jitter)
        self._flooding = DefaultForwarding(self._host, self._air, self._interfaces, options, relay_jitter)
        self._duplicates = self._flooding.duplicates

        self._ansn = self._host.random.randrange(65_536)
        self._advertised: tuple[Address, ...] = ()
        self._advertise_until: Micros = 0  # an empty set is advertised for a while (section 9.3)
        self._hello_timer = self._regular(self._send_hello, self._hello_interval)
        self._tc_timer = self._regular(self._send_tc, self._tc_interval)
        self._identity_timer = self._regular(self._send_identity, self._tc_interval)
        self._routes_timer = Timer(self._host, self._write_routes)
        self._prompt_hello = Prompt(self._host, self._send_hello, self._hello_interval)
        self._prompt_tc = Prompt(self._host, self._send_tc, self._tc_interval)
        self._said: dict[
            tuple[Address, Address], int
        ] = {}  # link codes of the last HELLO, without lost links
        self._routes: dict[Address, OlsrRoute] = {}
        self._riders: dict[str, bytes] = {}  # the strategy's octets for the next HELLO
        self._ridden: list[tuple[Address, bytes]] = []  # those of neighbours, to be reported

    # Inputs.

    def on_start(self) -> None:
        self._hello_timer.within(self._hello_interval)
        self._tc_timer.within(self._tc_interval)
        if self._air is not None:
            self._identity_timer.within(self._tc_interval)

    def on_stop(self) -> None:
        """RFC 3626 has no word for it; but a host must not go on forwarding by routes that nobody keeps."""
        if self._air is not None:
            self._air.write_routes(())

    def on_timer(self, name: Any) -> None:
        name.due()

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        self._on_packet(self._own, self._addresses.address(sender), payload)

    def on_packet(self, interface: Address, source: Address, payload: bytes) -> None:
        """Open: anybody's packet, on one of our interfaces."""
        if source in self._links or not is_host_address(source):
            self._refuse("olsr", WireError("source", 0, f"is {dotted(source)}, no address of another"))
        else:
            self._on_packet(interface, source, payload)

    def _on_packet(self, interface: Address, source: Address, payload: bytes) -> None:
        """Section 3.4."""
        now = self._host.now()
        try:
            packet = decode_packet(payload)
        except WireError as error:
            self._refuse("olsr", error)
            return
        if self._options.hysteresis:
            self._neighbourhood.weigh(interface, source, packet.sequence, now)
        known_until = self._duplicates.get
        for message in packet.messages:
            if known_until(message.key, 0) > now:
                if self._has_several_interfaces and message.ttl:
                    self._on_copy(interface, source, message, now)
                continue
            if message.originator == self._own or not message.ttl:
                continue
            try:
                if message.type == HELLO:
                    self._neighbourhood.on_hello(interface, source, message, now, packet.sequence)
                else:
                    self._on_flooded(interface, source, message, now)
            except WireError as error:
                self._refuse(name_of(message), error)
        changes = self._changes
        if changes.to_say:
            self._speak_up(now)
        if changes.to_report:
            self._report()
        if self._ridden:
            ridden, self._ridden = self._ridden, []
            for address, rider in ridden:
                neighbour = self._addresses.node(address)
                if neighbour is not None:
                    self._report_ridden(neighbour, rider)

    def on_acquainted(self, neighbour: NodeId) -> None:
        """`prompt`: the two did not accept each other's HELLOs until now, so send one soon."""
        if self._options.prompt:
            self._ask_hello()

    def on_link_failure(self, neighbour: NodeId) -> None:
        """Section 13. Ignored unless `link_layer_notification` is set."""
        if not self._options.link_layer_notification:
            return
        now = self._host.now()
        if self._neighbourhood.on_failure(self._addresses.address(neighbour), now):
            self._speak_up(now)
            self._report()

    def ride(self, key: str, payload: bytes) -> bool:
        """On the next HELLO."""
        is_small = len(payload) <= RIDER_MAX
        if is_small:
            self._riders[key] = payload
        return is_small

    # Questions.

    def neighbours(self) -> list[NodeId]:
        return self._numbers(self._neighbours.table)

    def neighbours_of(self, neighbour: NodeId) -> list[NodeId]:
        known = self._neighbours.table.get(self._addresses.address(neighbour))
        if known is None or known.hello is None:
            return []
        return self._numbers(self._associations.mains(known.hello.symmetric))

    def is_overdue(self, neighbour: NodeId) -> bool:
        return self._neighbourhood.is_overdue(self._addresses.address(neighbour), self._host.now())

    def next_hop(self, to: NodeId) -> NodeId | None:
        route = self.routes().get(self._addresses.address(to))
        return None if route is None else self._addresses.node(route.next_hop)

    def distance(self, to: NodeId) -> int | None:
        route = self.routes().get(self._addresses.address(to))
        return None if route is None else route.distance

    def known_nodes(self) -> list[NodeId]:
        return self._numbers(self.routes())

    def relays(self) -> list[NodeId]:
        own = (self._own,) if self._selectors else ()
        # Open, others advertise more than their selectors; nodes of ours say themselves whether they relay.
        known = self._topology.relays() if self._node_numbers is None else self._node_numbers.relays()
        return self._numbers({*own, *self.own_relays(), *known})

    def is_relay(self, node: NodeId) -> bool:
        # Asked for each flooded frame; the selectors tell most of the answers for this node itself.
        if node != self._host.node:
            return super().is_relay(node)
        return len(self._selectors) > 0 or (not self.own_relays() and not self.relays())

    def routes(self) -> dict[Address, OlsrRoute]:
        """By main address and, where a node has several, by its other interface addresses."""
        if self._changes.routes_are_stale:
            self._changes.routes_are_stale = False
            self._routes = self._compute_routes(self._host.now())
        return self._routes

    def own_relays(self) -> frozenset[Address]:
        """The MPR set."""
        return self._neighbourhood.own_relays(self._host.now())

    def selectors(self) -> list[Address]:
        """The MPR selector set."""
        return sorted(self._selectors)

    def two_hop_neighbours(self) -> list[Address]:
        """Strict: neither this node nor its neighbours."""
        return self._neighbourhood.two_hop_neighbours(self._host.now())

    def links(self) -> dict[Address, LinkType]:
        """The links, by the neighbours' interface addresses."""
        return self._neighbourhood.statuses(self._host.now())

    def gateways(self) -> list[Gateway]:
        """Other networks, as HNA messages offer them."""
        return self._associations.gateways()

    def network_routes(self) -> dict[tuple[Address, Address], OlsrRoute]:
        """Section 12.6.1: routes to networks and netmasks, by the nearest gateway; of equally near ones that
        of the lowest address."""
        own = self._options.announced_networks()
        return network_routes(self.routes(), self._associations.gateways(), own)

    def _role_changed(self, change: str, now: Micros) -> None:
        self._host.trace(OverlayChanged(now, self._host.node, change, role="mpr"))
        if self._air is not None:
            self._identity_timer.within(self._jitter)  # tell others soon

    def _send_hello(self) -> None:
        now = self._host.now()
        for interface, body in self._neighbourhood.hellos(now):
            self._flooding.put(MessageType.HELLO, self._neighbour_hold, 1, body, [interface])
        riders, self._riders = self._riders, {}
        for rider in riders.values():  # after the HELLO, which may be the one that makes the link symmetric
            self._flooding.put(MessageType.RIDER, self._neighbour_hold, 1, rider)
        self._flooding.flush()
        if self._options.prompt:
            self._said = self._neighbourhood.standing(now)
            self._prompt_hello.cancel()
            if self._neighbourhood.lost_relay and self._advertised:
                # Our last TC may have gone only to that relay; the relays just named forward this one.
                self._ask_tc()
            self._neighbourhood.lost_relay = False

    # Flooded messages: TC, MID, HNA and what we do not know (sections 3.4, 5.4, 9.5, 12.5).

    def _on_flooded(self, interface: Address, source: Address, message: OlsrMessage, now: Micros) -> None:
        link = self._links[interface].table.get(source)
        if link is None or not link.lost_until <= now < link.symmetric_until:
            return  # not noted as seen: a copy over a good link still counts
        if message.type == MessageType.RIDER:
            if link.main == message.originator:
                self._ridden.append((link.main, message.body))
        else:
            self._learn(message, now)
        if not self._flooding.note(message, interface, now):
            self._overflow("duplicates", name_of(message))
        if message.ttl > 1 and link.main in self._selectors:
            self._flooding.relay(message, now)

    def _on_copy(self, interface: Address, source: Address, message: OlsrMessage, now: Micros) -> None:
        """With several interfaces: a known message is relayed for whoever sent this copy and chose us."""
        link = self._links[interface].table.get(source)
        if message.type == HELLO or link is None or not link.is_symmetric(now):
            return
        is_open = self._flooding.consider_copy(message, interface, now)
        if is_open and message.ttl > 1 and link.main in self._selectors:
            self._flooding.relay(message, now)

    def _learn(self, message: OlsrMessage, now: Micros) -> None:
        until = now + (message.validity if message.validity < self._validity_max else self._validity_max)
        changed: bool | None
        match message.type:
            case _ if message.type == TC:
                if message.originator not in self._topology.table:
                    self._associations.disown(message.originator)
                    if self._options.prompt and self._advertised:
                        # Two networks have met: an originator whose first TC comes here lacks our TC too.
                        self._ask_tc()
                changed = self._topology.on_tc(message.originator, decode_tc(message.body), until)
            case MessageType.MID:
                # Whoever speaks for itself is nobody's second interface, whatever others say.
                speakers = (self._interfaces, self._neighbours.table, self._topology.table)
                taken = {message.originator}.union(*speakers)
                mid = decode_mid(message.body)
                changed = self._associations.on_mid(message.originator, mid, until, taken)
                if changed:
                    self._changes.mark_neighbourhood()
            case MessageType.HNA:
                changed = self._associations.on_hna(message.originator, decode_hna(message.body), until)
            case MessageType.NODE if self._node_numbers is not None:
                changed = self._node_numbers.on_node(message.originator, decode_node(message.body), until)
            case _:
                return
        if changed is None:
            self._overflow("topology" if message.type == MessageType.TC else "associations", name_of(message))
        elif changed:
            self._changes.mark_routes()
        if until < self._deadlines.at:
            self._deadlines.by(until)

    def _send_tc(self) -> None:
        """Section 9.3: while there is something to advertise, and for the hold time after, so that
        others forget it at once."""
        now, advertised = self._host.now(), self._to_advertise()
        if advertised != self._advertised:
            self._advertised = advertised
            self._ansn = (self._ansn + 1) % 65_536
            self._advertise_until = NEVER if advertised else now + self._topology_hold
        if now < self._advertise_until:
            most = (self._options.packet_max - TC_OCTETS) // ADDRESS_OCTETS
            for part in parts_of(advertised, most):
                self._flooding.send(MessageType.TC, self._topology_hold, TTL_MAX, encode_tc(self._ansn, part))

    def _send_identity(self) -> None:
        """Open: who we are, as often as TCs: our node number, our other interfaces (section 5.2), and the
        networks that we lead to (section 12.2)."""
        others, networks = self._interfaces[1:], self._options.announced_networks()
        self._flooding.send(
            MessageType.NODE,
            self._topology_hold,
            TTL_MAX,
            encode_node(NodeNotice(self._host.node, bool(self._selectors))),
        )
        if others:
            self._flooding.send(MessageType.MID, self._topology_hold, TTL_MAX, encode_mid(others))
        if networks:
            self._flooding.send(MessageType.HNA, self._topology_hold, TTL_MAX, encode_hna(networks))

    def _to_advertise(self) -> tuple[Address, ...]:
        match self._tc_redundancy:
            case 0:
                return tuple(sorted(self._selectors))
            case 1:
                return tuple(sorted({*self._selectors, *self.own_relays()}))
            case _:
                return tuple(sorted(self._neighbours.table))

    # Messages ahead of time (`prompt`).

    def _speak_up(self, now: Micros) -> None:
        """`prompt`: send a HELLO or TC soon if it would differ from the last one."""
        self._changes.to_say = False
        if self._options.prompt:
            if not self._prompt_hello.is_due and self._neighbourhood.standing(now) != self._said:
                self._ask_hello()
            if not self._prompt_tc.is_due and self._to_advertise() != self._advertised:
                self._ask_tc()

    def _ask_hello(self) -> None:
        self._prompt_hello.ask(1 + max(len(links.table) for links in self._links.values()))

    def _ask_tc(self) -> None:
        """Each of the relays around repeats the TC of each originator."""
        originators = self._topology.relays()
        around = sum(1 for originator in originators if originator in self._neighbours.table)
        self._prompt_tc.ask((1 + len(originators)) * (1 + around))

    def _regular(self, send: Callable[[], object], interval: Micros) -> Timer:
        """Sends again and again, each time a little early: nodes that began together shall not collide for
        ever."""

        def due() -> None:
            send()
            timer.after(interval - random_below(self._host, self._jitter))

        timer = Timer(self._host, due)
        return timer

    def _purge(self) -> None:
        now = self._host.now()
        deadlines = self._neighbourhood.purge(now)
        lost_topology, deadline = self._topology.purge(now)
        deadlines.append(deadline)
        lost_associations, deadline = self._associations.purge(now)
        deadlines.append(deadline)
        if self._node_numbers is not None:
            lost_numbers, deadline = self._node_numbers.purge(now)
            deadlines.append(deadline)
            lost_topology = lost_topology or lost_numbers
        if lost_associations:
            self._changes.mark_neighbourhood()
        if lost_topology:
            self._changes.mark_routes()
        for deadline in deadlines:
            if deadline is not None:
                self._deadlines.by(deadline)
        self._speak_up(now)
        self._report()

    # What follows from the tables.

    def _compute_routes(self, now: Micros) -> dict[Address, OlsrRoute]:
        topology = {address: known.destinations for address, known in self._topology.table.items()}
        reached = self._neighbourhood.reached(now)
        routes = shortest_routes(self._own, self._neighbours.table, reached, topology)
        for interface, main in self._associations.interfaces():
            if main in routes:
                routes.setdefault(interface, routes[main])
        for interface in self._interfaces:
            routes.pop(interface, None)  # whoever advertises our own
        return routes

    def _report(self) -> None:
        """Report to the listener, once per input, after all tables are consistent again."""
        neighbours, self._changes.neighbours = self._changes.neighbours, []
        has_changes, self._changes.to_report = self._changes.to_report, False
        for is_up, address in neighbours:
            node = self._addresses.node(address)
            if node is not None:
                (self._report_up if is_up else self._report_down)(node)
        if has_changes:
            if self._air is not None and self._options.kernel_routes:
                self._routes_timer.after(ROUTES_DELAY)
            self._report_routes()

    def _write_routes(self) -> None:
        """Open: give the host all routes, to nodes and to networks, so that it forwards as others expect."""
        assert self._air is not None
        ways = dict(self._neighbourhood.ways(self._host.now()))
        self._air.write_routes(host_routes(self.routes(), self.network_routes(), ways))

    def _numbers(self, addresses: Iterable[Address]) -> list[NodeId]:
        node = self._addresses.node
        numbers = [number for address in addresses if (number := node(address)) is not None]
        numbers.sort()
        return numbers

    # Losses.

    def _refuse(self, name: str, error: WireError) -> None:
        trace_drop(self._host, DropReason.WIRE, name, detail=str(error))

    def _overflow(self, table: str, name: str) -> None:
        trace_overflow(self._host, name, f"{table}_max")
