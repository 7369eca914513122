"""The underlay `olsr`: the tables of RFC 3626 put together, its timers, and the flooding of messages.

What arrives goes through one function, `on_receive`, in the order of section 3.4. Tables that follow from
others (our relays, the routes) are only marked when something changes, and computed when a
HELLO names the relays or a strategy asks for a route.
"""

from collections.abc import Container, Iterable, Iterator

from roamcast.errors import InputError, WireError
from roamcast.host import TimerName
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.underlay.addresses import Addresses, Subnet
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.olsr.associations import Associations, Gateway
from roamcast.underlay.olsr.deadlines import Deadlines
from roamcast.underlay.olsr.duplicates import Duplicates
from roamcast.underlay.olsr.links import LinkSet, LinkTuple
from roamcast.underlay.olsr.mpr import RelayCandidate, select_relays
from roamcast.underlay.olsr.neighbours import Neighbours
from roamcast.underlay.olsr.numbers import NodeNumbers
from roamcast.underlay.olsr.options import OlsrOptions, RelayTies
from roamcast.underlay.olsr.outbox import MessageOutbox, WaitingMessage
from roamcast.underlay.olsr.routing import OlsrRoute, host_routes, network_routes, shortest_routes
from roamcast.underlay.olsr.topology import TopologySet
from roamcast.underlay.pace import Prompt
from roamcast.units import MILLISECOND, Micros, NodeId, micros
from roamcast.wire.olsr import (
    WILL_NEVER,
    Address,
    LinkType,
    MessageType,
    NeighbourType,
    Node,
    OlsrMessage,
    OlsrPacket,
    decode_hello,
    decode_hna,
    decode_mid,
    decode_node,
    decode_packet,
    decode_tc,
    dotted,
    encode_hello,
    encode_hna,
    encode_message,
    encode_mid,
    encode_node,
    encode_tc,
    is_host_address,
    link_code,
)

HELLO = int(MessageType.HELLO)  # compared with every message that arrives
RELAY = int(NeighbourType.RELAY)  # and with every HELLO
TTL_MAX = 255
NEVER: Micros = 1 << 62
NAMES = {type: type.name.lower() for type in MessageType}
RELAYED = 255  # beside the numbers of interfaces, of which a node has at most 16
# Open: routes are written into the host's table so long after a change; changes come in bursts. Chosen by us.
ROUTES_DELAY: Micros = 100 * MILLISECOND


class Olsr(Underlay):
    def __init__(self, context: UnderlayContext, options: OlsrOptions) -> None:
        super().__init__()
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
        self._relay_jitter = self._jitter if options.relay_jitter is None else micros(options.relay_jitter)
        self._validity_max = micros(options.validity_max)
        self._two_hop_max = options.two_hop_max

        lost_hold = None if options.lost_hold is None else micros(options.lost_hold)
        self._links = {
            interface: LinkSet(
                interface,
                self._neighbour_hold,
                options.links_max,
                lost_hold,
                failure_silence=micros(options.failure_silence),
                hysteresis=options.hysteresis,
            )
            for interface in self._interfaces
        }
        self._neighbours = Neighbours(options.two_hop_max, lambda: self._overflow("two_hop", "hello"))
        self._selectors: Deadlines[Address] = Deadlines(options.links_max)
        self._duplicates = Duplicates(micros(options.duplicate_hold), options.duplicates_max)
        # With several interfaces: over which a message came, and whether it was relayed (section 3.4.1).
        self._considered = Duplicates(micros(options.duplicate_hold), options.duplicates_max)
        self._topology = TopologySet(options.topology_max)
        self._associations = Associations(options.associations_max, self._interfaces)
        self._outboxes = {
            interface: MessageOutbox(options.packet_max, options.forward_max)
            for interface in self._interfaces
        }

        # Random: with a fixed first number, the first messages after a restart would be taken for
        # duplicates of those before the crash.
        self._sequence = self._host.random.randrange(65_536)
        self._ansn = self._host.random.randrange(65_536)
        self._advertised: tuple[Address, ...] = ()
        self._advertise_until: Micros = 0  # an empty set is advertised for a while (section 9.3)
        self._purge_at: Micros = NEVER
        self._prompt_hello = Prompt(self._host, "prompt hello", self._hello_interval)
        self._prompt_tc = Prompt(self._host, "prompt tc", self._tc_interval)
        self._may_differ = False  # whether the next HELLO or TC may differ from the last one
        self._said: dict[
            tuple[Address, Address], int
        ] = {}  # link codes of the last HELLO, without lost links
        self._lost_relay = False  # since the last HELLO: a relay that should have forwarded our TCs

        self._relays: frozenset[Address] = frozenset()
        self._relays_are_stale = False
        self._routes: dict[Address, OlsrRoute] = {}
        self._routes_are_stale = False
        self._changes: list[tuple[bool, Address]] = []  # neighbours gained or lost, to be reported
        self._has_changes = False

    # Inputs.

    def on_start(self) -> None:
        now, chance = self._host.now(), self._host.random
        self._host.set_timer("hello", now + int(chance.random() * self._hello_interval))
        self._host.set_timer("tc", now + int(chance.random() * self._tc_interval))
        if self._air is not None:
            self._host.set_timer("identity", now + int(chance.random() * self._tc_interval))

    def on_stop(self) -> None:
        """RFC 3626 has no word for it; but a host must not go on forwarding by routes that nobody keeps."""
        if self._air is not None:
            self._air.write_routes(())

    def on_timer(self, name: TimerName) -> None:
        now = self._host.now()
        match name:
            case "hello":
                self._send_hello(now)
                self._host.set_timer("hello", now + self._hello_interval - self._draw_jitter())
            case "tc":
                self._send_tc(now)
                self._host.set_timer("tc", now + self._tc_interval - self._draw_jitter())
            case "identity":
                self._send_identity()
                self._host.set_timer("identity", now + self._tc_interval - self._draw_jitter())
            case "routes":
                self._write_routes()
            case "prompt hello":
                self._prompt_hello.on_timer()
                self._send_hello(now)
            case "prompt tc":
                self._prompt_tc.on_timer()
                self._send_tc(now)
            case "relay":
                self._flush()
            case "purge":
                self._purge(now)
                self._speak_up(now)
                self._report()

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        packet = self._decoded(payload)
        if packet is not None and (self._options.hysteresis or self._has_news(packet)):
            self._on_packet(self._own, self._addresses.address(sender), packet)

    def on_packet(self, interface: Address, source: Address, payload: bytes) -> None:
        """Open: anybody's packet, on one of our interfaces."""
        packet = self._decoded(payload)
        if packet is not None:
            if source in self._links or not is_host_address(source):
                self._refuse("olsr", WireError("source", 0, f"is {dotted(source)}, no address of another"))
            else:
                self._on_packet(interface, source, packet)

    def _has_news(self, packet: OlsrPacket) -> bool:
        """Half of all packets hold nothing but copies of known messages: those end here."""
        now, duplicates, own = self._host.now(), self._duplicates.until, self._own
        for message in packet.messages:
            if duplicates.get(message.key, 0) <= now and message.originator != own:
                return True
        return False

    def _on_packet(self, interface: Address, source: Address, packet: OlsrPacket) -> None:
        """Section 3.4."""
        now = self._host.now()
        if self._options.hysteresis:
            self._weigh(self._links[interface], source, packet.sequence, now)
        duplicates = self._duplicates.until
        for message in packet.messages:
            if duplicates.get(message.key, 0) > now:
                if self._has_several_interfaces and message.ttl:
                    self._relay_unless_considered(interface, source, message, now)
                continue
            if message.originator == self._own or not message.ttl:
                continue
            try:
                if message.type == HELLO:
                    self._on_hello(self._links[interface], source, message, now, packet.sequence)
                else:
                    self._on_flooded(interface, source, message, now)
            except WireError as error:
                self._refuse(_name(message), error)
        if self._may_differ:
            self._speak_up(now)
        if self._has_changes:
            self._report()

    def on_acquainted(self, neighbour: NodeId) -> None:
        """`prompt`: the two did not accept each other's HELLOs until now, so send one soon."""
        if self._options.prompt:
            self._ask_hello()

    def on_link_failure(self, neighbour: NodeId) -> None:
        """Section 13. Ignored unless `link_layer_notification` is set."""
        if not self._options.link_layer_notification:
            return
        now = self._host.now()
        main = self._addresses.address(neighbour)
        failed = [
            link
            for links in self._links.values()
            for source, link in list(links.table.items())
            if link.main == main and links.on_failure(source, now) is not None
        ]
        if failed:
            self._check_neighbour(main, now)
            self._purge_by(min(link.deadline(now) for link in failed))
            self._speak_up(now)
            self._report()

    # Questions.

    def neighbours(self) -> list[NodeId]:
        return self._numbers(self._neighbours.table)

    def next_hop(self, to: NodeId) -> NodeId | None:
        route = self.routes().get(self._addresses.address(to))
        return None if route is None else self._addresses.node(route.next_hop)

    def distance(self, to: NodeId) -> int | None:
        route = self.routes().get(self._addresses.address(to))
        return None if route is None else route.distance

    def known_nodes(self) -> list[NodeId]:
        return self._numbers(self.routes())

    def relays(self) -> list[NodeId]:
        own = {self._own} if self._selectors else set()
        # Open, others advertise more than their selectors; nodes of ours say themselves whether they relay.
        known = self._topology.relays() if self._node_numbers is None else self._node_numbers.relays()
        return self._numbers(own | self.own_relays() | set(known))

    def is_relay(self, node: NodeId) -> bool:
        # Asked for each flooded frame; the selectors tell most of the answers for this node itself.
        if node != self._host.node:
            return super().is_relay(node)
        return bool(self._selectors) or (not self.own_relays() and not self.relays())

    def routes(self) -> dict[Address, OlsrRoute]:
        """By main address and, where a node has several, by its other interface addresses."""
        if self._routes_are_stale:
            self._routes_are_stale = False
            self._routes = self._compute_routes(self._host.now())
        return self._routes

    def own_relays(self) -> frozenset[Address]:
        """The MPR set."""
        if self._relays_are_stale:
            self._relays_are_stale = False
            self._relays = self._select_relays(self._host.now())
        return self._relays

    def selectors(self) -> list[Address]:
        """The MPR selector set."""
        return sorted(self._selectors)

    def two_hop_neighbours(self) -> list[Address]:
        """Strict: neither this node nor its neighbours."""
        now = self._host.now()
        reached = {
            address
            for neighbour in self._neighbours.table.values()
            for address in self._associations.mains(neighbour.reached(now))
        }
        return sorted(reached - set(self._neighbours.table) - {self._own})

    def links(self) -> dict[Address, LinkType]:
        """By the neighbours' interface addresses."""
        now = self._host.now()
        listed = [found for links in self._links.values() for found in links.table.items()]
        return {address: link.status(now) for address, link in sorted(listed, key=lambda found: found[0])}

    def gateways(self) -> list[Gateway]:
        """Other networks, as HNA messages offer them."""
        return self._associations.gateways()

    def network_routes(self) -> dict[tuple[Address, Address], OlsrRoute]:
        """Section 12.6.1: routes to networks and netmasks, by the nearest gateway; of equally near ones that
        of the lowest address."""
        own = self._options.announced_networks()
        return network_routes(self.routes(), self._associations.gateways(), own)

    # HELLO: links, neighbours, selectors (sections 6 to 8).

    def _on_hello(
        self, links: LinkSet, source: Address, message: OlsrMessage, now: Micros, packet_sequence: int
    ) -> None:
        if message.hops:
            raise WireError("HELLO hop count", 9, f"is {message.hops}; a HELLO is never relayed")
        hello = decode_hello(message.body)
        main = message.originator
        until = now + (message.validity if message.validity < self._validity_max else self._validity_max)
        known = links.table.get(source)
        before, main_before = (None, main) if known is None else (known.status(now), known.main)
        link = links.on_hello(source, main, hello, until, now, packet_sequence)
        if link is None or len(hello.symmetric) > self._two_hop_max:
            self._overflow("links" if link is None else "two_hop", "hello")
            return
        if link.status(now) is not before:
            self._may_differ = True
        if main_before != main:
            self._check_neighbour(main_before, now)  # the interface has another owner
        if until < self._purge_at:
            self._purge_by(until)
        if self._options.hysteresis:
            self._purge_by(link.deadline(now))
        if not link.lost_until <= now < link.symmetric_until:
            self._check_neighbour(main, now)
            return
        neighbour = self._neighbours.table.get(main)
        if neighbour is not None and neighbour.hello is hello and now < neighbour.until:
            # Most HELLOs repeat the one before, and the decoder returns one object for equal bodies.
            neighbour.until = until
        else:
            if neighbour is None:
                self._changes.append((True, main))
                self._associations.disown(main)
            if self._neighbours.on_hello(main, hello, until, now) or neighbour is None:
                self._mark_neighbourhood()
        code = hello.links.get(self._own, 0)
        if code >> 2 == RELAY or (
            self._has_several_interfaces
            and any(hello.links.get(interface, 0) >> 2 == RELAY for interface in self._interfaces)
        ):
            self._add_selector(main, until, now)

    def _check_neighbour(self, main: Address, now: Micros) -> None:
        """A link is not symmetric (any more): is the neighbour lost with it (section 8.5)?"""
        if main in self._neighbours.table and not any(
            links.is_symmetric_to(main, now) for links in self._links.values()
        ):
            self._lost_relay = self._lost_relay or main in self._relays
            self._neighbours.lose(main)
            self._changes.append((False, main))
            self._mark_neighbourhood()
            if main in self._selectors:
                self._selectors.release(main)
                self._selectors_shrank(now)

    def _add_selector(self, main: Address, until: Micros, now: Micros) -> None:
        if main not in self._selectors:
            if not self._selectors:
                self._role_changed("role_on", now)
            self._has_changes = self._may_differ = True
        self._selectors.hold(main, until)  # always has room: its bound is that of the link set

    def _selectors_shrank(self, now: Micros) -> None:
        self._has_changes = self._may_differ = True
        if not self._selectors:
            self._role_changed("role_off", now)

    def _role_changed(self, change: str, now: Micros) -> None:
        self._host.trace(OverlayChanged(now, self._host.node, change, role="mpr"))
        if self._air is not None:
            self._host.set_timer("identity", now + self._draw_jitter())  # tell others soon

    def _send_hello(self, now: Micros) -> None:
        """Section 6.2. Relays are computed now, from the current tables."""
        relays, symmetric = self.own_relays(), self._neighbours.table
        for interface, links in self._links.items():
            by_code: dict[int, list[Address]] = {}
            for address, link in sorted(links.table.items()):
                if now < link.until and (link.quality is None or link.is_named(now)):
                    code = _code(link, now, relays, symmetric)
                    if code in by_code:
                        by_code[code].append(address)
                    else:
                        by_code[code] = [address]
            if self._has_several_interfaces:
                self._name_others(links, relays, by_code)
            body = encode_hello(self._hello_interval, self._willingness, sorted(by_code.items()))
            self._send(MessageType.HELLO, self._neighbour_hold, 1, body, [interface])
        if self._options.prompt:
            self._said = self._standing(now)
            self._prompt_hello.cancel()
            if self._lost_relay and self._advertised:
                # Our last TC may have gone only to that relay; the relays just named forward this one.
                self._ask_tc()
            self._lost_relay = False

    def _name_others(
        self, links: LinkSet, relays: frozenset[Address], by_code: dict[int, list[Address]]
    ) -> None:
        """Section 6.2, last step: neighbours over our other interfaces, by their main addresses."""
        here = {link.main for link in links.table.values()}
        for main in sorted(self._neighbours.table.keys() - here):
            neighbour = NeighbourType.RELAY if main in relays else NeighbourType.SYMMETRIC
            by_code.setdefault(link_code(LinkType.UNSPECIFIED, neighbour), []).append(main)

    def _weigh(self, links: LinkSet, source: Address, sequence: int, now: Micros) -> None:
        """Hysteresis: this packet speaks for its link, and may make it count, or no longer count."""
        known = links.table.get(source)
        before = known is not None and known.is_symmetric(now)
        link = links.on_packet(source, sequence, now)
        if link is not None and link.is_symmetric(now) is not before:
            self._may_differ = True
            self._check_neighbour(link.main, now)

    # Flooded messages: TC, MID, HNA and what we do not know (sections 3.4, 5.4, 9.5, 12.5).

    def _on_flooded(self, interface: Address, source: Address, message: OlsrMessage, now: Micros) -> None:
        link = self._links[interface].table.get(source)
        if link is None or not link.lost_until <= now < link.symmetric_until:
            return  # not noted as seen: a copy over a good link still counts
        self._learn(message, now)
        if not self._duplicates.add(message.key, now):
            self._overflow("duplicates", _name(message))
        if self._has_several_interfaces:
            self._considered.add(message.key << 8 | self._interfaces.index(interface), now)
        if message.ttl > 1 and link.main in self._selectors:
            self._relay(message, now)

    def _relay_unless_considered(
        self, interface: Address, source: Address, message: OlsrMessage, now: Micros
    ) -> None:
        """Section 3.4.1, with several interfaces: a known message that came over another interface is relayed
        if it was not relayed yet, and whoever sent this copy chose us."""
        link = self._links[interface].table.get(source)
        if message.type == HELLO or link is None or not link.is_symmetric(now):
            return
        until = self._considered.until
        copy = message.key << 8 | self._interfaces.index(interface)
        if until.get(message.key << 8 | RELAYED, 0) > now or until.get(copy, 0) > now:
            return
        self._considered.add(copy, now)
        if message.ttl > 1 and link.main in self._selectors:
            self._relay(message, now)

    def _learn(self, message: OlsrMessage, now: Micros) -> None:
        until = now + (message.validity if message.validity < self._validity_max else self._validity_max)
        changed: bool | None
        match message.type:
            case MessageType.TC:
                is_stranger = message.originator not in self._topology.table
                if is_stranger:
                    self._associations.disown(message.originator)
                if self._options.prompt and is_stranger and self._advertised:
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
                    self._mark_neighbourhood()
            case MessageType.HNA:
                changed = self._associations.on_hna(message.originator, decode_hna(message.body), until)
            case MessageType.NODE if self._node_numbers is not None:
                changed = self._node_numbers.on_node(message.originator, decode_node(message.body), until)
            case _:
                return
        if changed is None:
            self._overflow("topology" if message.type == MessageType.TC else "associations", _name(message))
        elif changed:
            self._mark_routes()
        if until < self._purge_at:
            self._purge_by(until)

    def _relay(self, message: OlsrMessage, now: Micros) -> None:
        """The default forwarding algorithm's last steps (section 3.4.1), after a random delay in which
        other messages may join the packet."""
        data = encode_message(
            message.type,
            message.validity,
            message.originator,
            message.ttl - 1,
            min(message.hops + 1, 255),
            message.sequence,
            message.body,
        )
        if not any(self._outboxes.values()):
            self._host.set_timer("relay", now + int(self._host.random.random() * self._relay_jitter))
        if self._has_several_interfaces:
            self._considered.add(message.key << 8 | RELAYED, now)
        for outbox in self._outboxes.values():
            if not outbox.add(WaitingMessage(data, _name(message), own=False)):
                self._host.trace(Dropped(now, self._host.node, DropReason.QUEUE_FULL, _name(message)))

    def _send_tc(self, now: Micros) -> None:
        """Section 9.3: while there is something to advertise, and for the hold time after, so that
        others forget it at once."""
        advertised = self._to_advertise()
        if advertised != self._advertised:
            self._advertised = advertised
            self._ansn = (self._ansn + 1) % 65_536
            self._advertise_until = NEVER if advertised else now + self._topology_hold
        if now < self._advertise_until:
            self._send(MessageType.TC, self._topology_hold, TTL_MAX, encode_tc(self._ansn, advertised))

    def _send_identity(self) -> None:
        """Open: who we are, as often as TCs: our node number, our other interfaces (section 5.2), and the
        networks that we lead to (section 12.2)."""
        others, networks = self._interfaces[1:], self._options.announced_networks()
        self._send(
            MessageType.NODE,
            self._topology_hold,
            TTL_MAX,
            encode_node(Node(self._host.node, bool(self._selectors))),
        )
        if others:
            self._send(MessageType.MID, self._topology_hold, TTL_MAX, encode_mid(others))
        if networks:
            self._send(MessageType.HNA, self._topology_hold, TTL_MAX, encode_hna(networks))

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
        self._may_differ = False
        if self._options.prompt:
            if not self._prompt_hello.is_due and self._standing(now) != self._said:
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

    def _standing(self, now: Micros) -> dict[tuple[Address, Address], int]:
        """The link codes of a HELLO sent now, without lost links, which need no second HELLO."""
        relays, symmetric = self.own_relays(), self._neighbours.table
        return {
            (interface, address): _code(link, now, relays, symmetric)
            for interface, links in self._links.items()
            for address, link in links.table.items()
            if link.status(now) is not LinkType.LOST
        }

    # Sending.

    def _send(
        self,
        type: MessageType,
        validity: Micros,
        ttl: int,
        body: bytes,
        interfaces: Iterable[Address] | None = None,
    ) -> None:
        """On some interfaces, or on all."""
        self._sequence = (self._sequence + 1) % 65_536
        data = encode_message(type, validity, self._own, ttl, 0, self._sequence, body)
        for interface in interfaces or self._interfaces:
            self._outboxes[interface].add(WaitingMessage(data, NAMES[type], own=True))
        self._flush()

    def _flush(self) -> None:
        self._host.cancel_timer("relay")
        for interface, outbox in self._outboxes.items():
            for frame in outbox.frames():
                if self._air is None:
                    self._host.broadcast(frame)
                else:
                    self._air.send(interface, frame)

    def _draw_jitter(self) -> Micros:
        return int(self._host.random.random() * self._jitter)

    # Deadlines. One timer is set for the earliest of all. A renewal moves a deadline but not the timer,
    # which then finds nothing to do and is set for the next.

    def _purge_by(self, deadline: Micros) -> None:
        if deadline < self._purge_at:
            self._purge_at = deadline
            self._host.set_timer("purge", deadline)

    def _purge(self, now: Micros) -> None:
        self._purge_at = NEVER
        deadlines: list[Micros | None] = []
        for links in self._links.values():
            if self._options.hysteresis:
                links.on_silence(now)
            for link in list(links.table.values()):
                if not link.lost_until <= now < link.symmetric_until:
                    self._check_neighbour(link.main, now)
            deadlines.append(links.purge(now))
        lost_two_hops, deadline = self._neighbours.purge(now)
        deadlines.append(deadline)
        lost_selectors, deadline = self._selectors.purge(now)
        deadlines.append(deadline)
        lost_topology, deadline = self._topology.purge(now)
        deadlines.append(deadline)
        lost_associations, deadline = self._associations.purge(now)
        deadlines.append(deadline)
        if self._node_numbers is not None:
            lost_numbers, deadline = self._node_numbers.purge(now)
            deadlines.append(deadline)
            lost_topology = lost_topology or lost_numbers
        if lost_two_hops or lost_associations:
            self._mark_neighbourhood()
        if lost_topology:
            self._mark_routes()
        if lost_selectors:
            self._selectors_shrank(now)
        for deadline in deadlines:
            if deadline is not None:
                self._purge_by(deadline)

    # What follows from the tables.

    def _mark_neighbourhood(self) -> None:
        self._relays_are_stale = True
        self._may_differ = True
        self._mark_routes()

    def _mark_routes(self) -> None:
        self._routes_are_stale = True
        self._has_changes = True

    def _select_relays(self, now: Micros) -> frozenset[Address]:
        mains = self._associations.mains
        table = self._neighbours.table
        first_heard = self._options.relay_ties is RelayTies.FIRST_HEARD
        if first_heard:
            heard = (link.main for links in self._links.values() for link in links.table.values())
            preferred = [address for address in dict.fromkeys(heard) if address in table]
        else:
            preferred = sorted(table)
        candidates = {
            address: RelayCandidate(table[address].willingness, mains(table[address].reached(now)))
            for address in preferred
        }
        return select_relays(self._own, candidates, by_degree=not first_heard)

    def _compute_routes(self, now: Micros) -> dict[Address, OlsrRoute]:
        mains = self._associations.mains
        reached = {
            address: mains(neighbour.reached(now))
            for address, neighbour in self._neighbours.table.items()
            if neighbour.willingness != WILL_NEVER
        }
        topology = {address: known.destinations for address, known in self._topology.table.items()}
        routes = shortest_routes(self._own, self._neighbours.table, reached, topology)
        for interface, main in self._associations.interfaces():
            if main in routes:
                routes.setdefault(interface, routes[main])
        for interface in self._interfaces:
            routes.pop(interface, None)  # whoever advertises our own
        return routes

    def _report(self) -> None:
        """Report to the listener, once per input, after all tables are consistent again."""
        changes, self._changes = self._changes, []
        has_changes, self._has_changes = self._has_changes, False
        for is_up, address in changes:
            node = self._addresses.node(address)
            if node is not None:
                (self._report_up if is_up else self._report_down)(node)
        if has_changes:
            if self._air is not None and self._options.kernel_routes:
                self._host.set_timer("routes", self._host.now() + ROUTES_DELAY)
            self._report_routes()

    def _write_routes(self) -> None:
        """Open: give the host all routes, to nodes and to networks, so that it forwards as others expect."""
        assert self._air is not None
        ways = dict(self._ways_to_neighbours())
        self._air.write_routes(host_routes(self.routes(), self.network_routes(), ways))

    def _ways_to_neighbours(self) -> Iterator[tuple[Address, tuple[Address, Address]]]:
        """For each neighbour, by main address: our interface and its own, of one symmetric link."""
        now = self._host.now()
        for interface, links in self._links.items():
            for source, link in links.table.items():
                if link.is_symmetric(now):
                    yield link.main, (interface, source)

    def _numbers(self, addresses: Iterable[Address]) -> list[NodeId]:
        numbers = (self._addresses.node(address) for address in addresses)
        return sorted(number for number in numbers if number is not None)

    # Losses.

    def _decoded(self, payload: bytes) -> OlsrPacket | None:
        try:
            return decode_packet(payload)
        except WireError as error:
            self._refuse("olsr", error)
            return None

    def _refuse(self, name: str, error: WireError) -> None:
        now, node = self._host.now(), self._host.node
        self._host.trace(Dropped(now, node, DropReason.WIRE, name, detail=str(error)))

    def _overflow(self, table: str, name: str) -> None:
        now, node = self._host.now(), self._host.node
        self._host.trace(Dropped(now, node, DropReason.STORE_FULL, name, detail=f"{table}_max"))


def _name(message: OlsrMessage) -> str:
    try:
        return NAMES[MessageType(message.type)]
    except ValueError:
        return "olsr"


def _code(link: LinkTuple, now: Micros, relays: frozenset[Address], symmetric: Container[Address]) -> int:
    """Section 6.2: what a HELLO says of a link and of the neighbour behind it."""
    if link.main in relays:
        neighbour = NeighbourType.RELAY
    else:
        neighbour = NeighbourType.SYMMETRIC if link.main in symmetric else NeighbourType.NOT
    return link_code(link.status(now), neighbour)
