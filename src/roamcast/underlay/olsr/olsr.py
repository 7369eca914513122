"""The underlay `olsr`: the tables of RFC 3626 put together, its timers, and the flooding of messages.

What arrives goes through one function, `on_receive`, in the order of section 3.4. Tables that follow from
others (our relays, the routes) are only marked when something changes, and computed when a
HELLO names the relays or a strategy asks for a route.
"""

from collections.abc import Container, Iterable

from roamcast.errors import WireError
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
from roamcast.underlay.olsr.options import OlsrOptions
from roamcast.underlay.olsr.outbox import MessageOutbox, WaitingMessage
from roamcast.underlay.olsr.pace import Prompt
from roamcast.underlay.olsr.routing import OlsrRoute, shortest_routes
from roamcast.underlay.olsr.topology import TopologySet
from roamcast.units import Micros, NodeId, micros
from roamcast.wire.olsr import (
    WILL_NEVER,
    Address,
    LinkType,
    MessageType,
    NeighbourType,
    OlsrMessage,
    decode_hello,
    decode_hna,
    decode_mid,
    decode_packet,
    decode_tc,
    encode_hello,
    encode_message,
    encode_tc,
    link_code,
)

HELLO = int(MessageType.HELLO)  # compared with every message that arrives
TTL_MAX = 255
NEVER: Micros = 1 << 62
NAMES = {MessageType.HELLO: "hello", MessageType.TC: "tc", MessageType.MID: "mid", MessageType.HNA: "hna"}


class Olsr(Underlay):
    def __init__(self, context: UnderlayContext, options: OlsrOptions) -> None:
        super().__init__()
        self._host = context.host
        self._options = options
        self._addresses: Addresses = context.addresses or Subnet()
        self._own: Address = self._addresses.address(context.host.node)
        self._hello_interval = micros(options.hello_interval)
        self._tc_interval = micros(options.tc_interval)
        self._neighbour_hold = micros(options.hello_interval * options.hold_intervals)
        self._topology_hold = micros(options.tc_interval * options.hold_intervals)
        self._jitter = micros(options.hello_interval * options.jitter)
        self._relay_jitter = self._jitter if options.relay_jitter is None else micros(options.relay_jitter)
        self._validity_max = micros(options.validity_max)
        self._two_hop_max = options.two_hop_max

        lost_hold = None if options.lost_hold is None else micros(options.lost_hold)
        self._links = LinkSet(self._own, self._neighbour_hold, options.links_max, lost_hold)
        self._neighbours = Neighbours(options.two_hop_max, lambda: self._overflow("two_hop", "hello"))
        self._selectors: Deadlines[Address] = Deadlines(options.links_max)
        self._duplicates = Duplicates(micros(options.duplicate_hold), options.duplicates_max)
        self._topology = TopologySet(options.topology_max)
        self._associations = Associations(options.associations_max)
        self._outbox = MessageOutbox(options.packet_max, options.forward_max)

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
        self._said: dict[Address, int] = {}  # link codes of the last HELLO, without lost links
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

    def on_timer(self, name: TimerName) -> None:
        now = self._host.now()
        match name:
            case "hello":
                self._send_hello(now)
                self._host.set_timer("hello", now + self._hello_interval - self._draw_jitter())
            case "tc":
                self._send_tc(now)
                self._host.set_timer("tc", now + self._tc_interval - self._draw_jitter())
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
        """Section 3.4. Most messages are copies of known ones: those end at one look-up."""
        try:
            packet = decode_packet(payload)
        except WireError as error:
            self._refuse("olsr", error)
            return
        now = self._host.now()
        duplicates = self._duplicates.until
        for message in packet.messages:
            if duplicates.get(message.key, 0) > now or message.originator == self._own or not message.ttl:
                continue
            try:
                if message.type == HELLO:
                    self._on_hello(self._addresses.address(sender), message, now)
                else:
                    self._on_flooded(self._addresses.address(sender), message, now)
            except WireError as error:
                self._refuse(_name(message), error)
        if self._may_differ:
            self._speak_up(now)
        if self._has_changes:
            self._report()

    def on_acquainted(self, neighbour: NodeId) -> None:
        """`prompt`: the two did not accept each other's HELLOs until now, so send one soon."""
        if self._options.prompt:
            self._prompt_hello.ask()

    def on_link_failure(self, neighbour: NodeId) -> None:
        """Section 13. Ignored unless `link_layer_notification` is set."""
        if not self._options.link_layer_notification:
            return
        now = self._host.now()
        link = self._links.on_failure(self._addresses.address(neighbour), now)
        if link is not None:
            self._check_neighbour(link.main, now)
            self._purge_by(link.until)
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
        return self._numbers(own | self.own_relays() | set(self._topology.relays()))

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
        now = self._host.now()
        return {address: link.status(now) for address, link in sorted(self._links.table.items())}

    def gateways(self) -> list[Gateway]:
        """Other networks, as HNA messages offer them."""
        return self._associations.gateways()

    # HELLO: links, neighbours, selectors (sections 6 to 8).

    def _on_hello(self, source: Address, message: OlsrMessage, now: Micros) -> None:
        if message.hops:
            raise WireError("HELLO hop count", 9, f"is {message.hops}; a HELLO is never relayed")
        hello = decode_hello(message.body)
        main = message.originator
        until = now + (message.validity if message.validity < self._validity_max else self._validity_max)
        known = self._links.table.get(source)
        before = None if known is None else known.status(now)
        link = self._links.on_hello(source, main, hello, until, now)
        if link is None or len(hello.symmetric) > self._two_hop_max:
            self._overflow("links" if link is None else "two_hop", "hello")
            return
        if link.status(now) is not before:
            self._may_differ = True
        if until < self._purge_at:
            self._purge_by(until)
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
            if self._neighbours.on_hello(main, hello, until, now) or neighbour is None:
                self._mark_neighbourhood()
        code = hello.links.get(self._own)
        if code is not None and code >> 2 == NeighbourType.RELAY:
            self._add_selector(main, until, now)

    def _check_neighbour(self, main: Address, now: Micros) -> None:
        """A link is not symmetric (any more): is the neighbour lost with it (section 8.5)?"""
        if main in self._neighbours.table and not self._links.is_symmetric_to(main, now):
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
                self._host.trace(OverlayChanged(now, self._host.node, "role_on", role="mpr"))
            self._has_changes = self._may_differ = True
        self._selectors.hold(main, until)  # always has room: its bound is that of the link set

    def _selectors_shrank(self, now: Micros) -> None:
        self._has_changes = self._may_differ = True
        if not self._selectors:
            self._host.trace(OverlayChanged(now, self._host.node, "role_off", role="mpr"))

    def _send_hello(self, now: Micros) -> None:
        """Section 6.2. Relays are computed now, from the current tables."""
        relays, symmetric = self.own_relays(), self._neighbours.table
        by_code: dict[int, list[Address]] = {}
        for address, link in sorted(self._links.table.items()):
            if now < link.until:
                code = _code(link, now, relays, symmetric)
                if code in by_code:
                    by_code[code].append(address)
                else:
                    by_code[code] = [address]
        body = encode_hello(self._hello_interval, self._options.willingness, sorted(by_code.items()))
        self._send(MessageType.HELLO, self._neighbour_hold, 1, body)
        if self._options.prompt:
            self._said = self._standing(now)
            self._prompt_hello.cancel()
            if self._lost_relay and self._advertised:
                # Our last TC may have gone only to that relay; the relays just named forward this one.
                self._prompt_tc.ask()
            self._lost_relay = False

    # Flooded messages: TC, MID, HNA and what we do not know (sections 3.4, 5.4, 9.5, 12.5).

    def _on_flooded(self, source: Address, message: OlsrMessage, now: Micros) -> None:
        link = self._links.table.get(source)
        if link is None or not link.lost_until <= now < link.symmetric_until:
            return  # not noted as seen: a copy over a good link still counts
        self._learn(message, now)
        if not self._duplicates.add(message.key, now):
            self._overflow("duplicates", _name(message))
        if message.ttl > 1 and link.main in self._selectors:
            self._relay(message, now)

    def _learn(self, message: OlsrMessage, now: Micros) -> None:
        until = now + (message.validity if message.validity < self._validity_max else self._validity_max)
        changed: bool | None
        match message.type:
            case MessageType.TC:
                is_stranger = message.originator not in self._topology.table
                if self._options.prompt and is_stranger and self._advertised:
                    # Two networks have met: an originator whose first TC comes here lacks our TC too.
                    self._prompt_tc.ask()
                changed = self._topology.on_tc(message.originator, decode_tc(message.body), until)
            case MessageType.MID:
                changed = self._associations.on_mid(message.originator, decode_mid(message.body), until)
                if changed:
                    self._mark_neighbourhood()
            case MessageType.HNA:
                changed = self._associations.on_hna(message.originator, decode_hna(message.body), until)
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
        if not self._outbox:
            self._host.set_timer("relay", now + int(self._host.random.random() * self._relay_jitter))
        if not self._outbox.add(WaitingMessage(data, _name(message), own=False)):
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

    def _to_advertise(self) -> tuple[Address, ...]:
        match self._options.tc_redundancy:
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
            if self._standing(now) != self._said:
                self._prompt_hello.ask()
            if self._to_advertise() != self._advertised:
                self._prompt_tc.ask()

    def _standing(self, now: Micros) -> dict[Address, int]:
        """The link codes of a HELLO sent now, without lost links, which need no second HELLO."""
        relays, symmetric = self.own_relays(), self._neighbours.table
        return {
            address: _code(link, now, relays, symmetric)
            for address, link in self._links.table.items()
            if link.status(now) is not LinkType.LOST
        }

    # Sending.

    def _send(self, type: MessageType, validity: Micros, ttl: int, body: bytes) -> None:
        self._sequence = (self._sequence + 1) % 65_536
        data = encode_message(type, validity, self._own, ttl, 0, self._sequence, body)
        self._outbox.add(WaitingMessage(data, NAMES[type], own=True))
        self._flush()

    def _flush(self) -> None:
        self._host.cancel_timer("relay")
        for frame in self._outbox.frames():
            self._host.broadcast(frame)

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
        for link in list(self._links.table.values()):
            if not link.is_symmetric(now):
                self._check_neighbour(link.main, now)
        deadlines = [self._links.purge(now)]
        lost_two_hops, deadline = self._neighbours.purge(now)
        deadlines.append(deadline)
        lost_selectors, deadline = self._selectors.purge(now)
        deadlines.append(deadline)
        lost_topology, deadline = self._topology.purge(now)
        deadlines.append(deadline)
        lost_associations, deadline = self._associations.purge(now)
        deadlines.append(deadline)
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
        candidates = {
            address: RelayCandidate(neighbour.willingness, mains(neighbour.reached(now)))
            for address, neighbour in self._neighbours.table.items()
        }
        return select_relays(self._own, candidates)

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
            if main in routes and interface != self._own:
                routes.setdefault(interface, routes[main])
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
            self._report_routes()

    def _numbers(self, addresses: Iterable[Address]) -> list[NodeId]:
        numbers = (self._addresses.node(address) for address in addresses)
        return sorted(number for number in numbers if number is not None)

    # Losses.

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
