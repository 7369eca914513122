"""The underlay `aodv`: routes on demand, by RFC 3561, which the opportunistic overlays ran over.

A route is searched for when somebody wants to send (`next_hop`): a request (RREQ) floods in rings of growing
radius and leaves, in every node that it passes, the way back to its originator. The destination, or a node
with a route that is fresh enough, answers along that way (RREP). Each destination numbers its answers. A
route is replaced only by one with a newer number, or with the same number and fewer hops: therefore no loops.
A link that breaks is told to those who route over it (RERR).

What differs from the RFC, and why:

- The RFC buffers a packet while its route is searched for. Here `next_hop` answers None, the search begins,
  and `on_routes_changed` tells the strategy of the route. Strategies repeat or keep what they could not send.
- A node that passes on a strategy's message asks `next_hop` as the first sender does. So a relay that has
  lost the route searches for it itself. That is the RFC's local repair (6.12), without its bound on the
  distance.
- HELLOs are always sent, not only by nodes on an active route (6.9): strategies ask for neighbours.
- A node's own number survives a crash (`kit/numbers.py`). It still waits for DELETE_PERIOD after a reboot
  (6.13): it has forgotten the numbers of others, and a neighbour that routes over it could answer it with
  that very route. Meanwhile it has neighbours, answers for itself, and tells those who route over it.
- Acknowledgements of the link layer take the place of RREP-ACK: a neighbour that does not acknowledge an RREP
  is on the blacklist (6.8).
- The RFC leaves open what a node knows of a destination's number when it hears it as a neighbour. Some
  readings allow loops (van Glabbeek, Höfner, Tan and Portmann, 2013). Here the newest number is kept, and
  such a route answers no requests until it is numbered.
- A search that failed is not begun anew for a while, however often the strategy asks.

Left out: multicast (J, R), subnets (7), gateways to other networks (8).
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec

from roamcast.errors import WireError
from roamcast.host import Frame, Kind, SendFailure
from roamcast.kit.numbers import StableCounter
from roamcast.kit.protocol import Timer, Timers, overflow_traced, random_below, trace_drop, trace_overflow
from roamcast.kit.rates import Bucket
from roamcast.kit.relay import Relay
from roamcast.kit.soft_state import SoftState
from roamcast.kit.tables import BoundedDict, ExpiringDict, unreported
from roamcast.trace import DropReason
from roamcast.underlay.addresses import Address, Addresses, Subnet
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros
from roamcast.wire.aodv import (
    DESTINATION_ONLY,
    GRATUITOUS,
    SEQUENCES,
    UNKNOWN_SEQUENCE,
    UNREACHABLE_MAX,
    AodvError,
    AodvMessage,
    AodvReply,
    AodvRequest,
    decode_aodv,
    encode_aodv,
    is_newer,
)

HOPS_MAX = 255
TIMEOUT_BUFFER = 2  # hops (section 10)
DELETE_FACTOR = 5  # K of section 10
RELAY_JITTER: Micros = 10 * MILLISECOND  # before an RREQ is passed on (RFC 5148); chosen, 2 to 20 ms work
SEARCHES_MAX = 256  # at a time, and searches that failed and are remembered; chosen by us
REMEMBERED_MAX = 8_192  # requests that are known already; chosen by us

Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=3_600)]
Hops = Annotated[int, msgspec.Meta(ge=1, le=HOPS_MAX)]
Rate = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class AodvOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of section 10, by their names. The bound on the table is our own."""

    active_route_timeout: Seconds = 3.0  # how long a route lasts after its last use
    hello_interval: Seconds = 1.0
    # A neighbour that is silent for so many HELLO intervals is lost.
    allowed_hello_loss: Annotated[int, msgspec.Meta(ge=1, le=100)] = 2
    net_diameter: Hops = 35  # with the next: how long an answer from the far end may take
    node_traversal_time: Seconds = 0.04  # per hop
    # Requests through the whole network after the first.
    rreq_retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    rreq_ratelimit: Rate = 10  # requests of a node in a second
    rerr_ratelimit: Rate = 10  # errors of a node in a second
    ttl_start: Hops = 1  # how far the first request of a search goes
    ttl_increment: Hops = 2  # how much farther each next one goes
    ttl_threshold: Hops = 7  # beyond it, a request goes through the whole network
    routes_max: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 4_096  # entries of the table


class AodvRoute(msgspec.Struct, eq=False):
    """Section 2: an entry of the route table."""

    next_hop: Address
    hops: int
    sequence: int | None  # the newest that is known of the destination
    is_numbered: bool  # this very route came with that number ("valid destination sequence number")
    until: Micros
    precursors: set[Address]  # neighbours that are known to route over us
    is_broken: bool = False


class RouteSearch(msgspec.Struct, eq=False):
    ttl: int  # of the next request
    tries: int = 0  # through the whole network


class Aodv(Underlay):
    def __init__(self, context: UnderlayContext, options: AodvOptions) -> None:
        self._host = context.host
        self._options = options
        self._addresses: Addresses = context.addresses or Subnet()
        self._own: Address = self._addresses.address(context.host.node)
        self._active_route = micros(options.active_route_timeout)
        self._hello_interval = micros(options.hello_interval)
        self._hello_hold = self._hello_interval * options.allowed_hello_loss
        self._hop_time = micros(options.node_traversal_time)
        self._net_traversal = 2 * self._hop_time * options.net_diameter
        self._blacklist_time = max(1, options.rreq_retries) * self._net_traversal
        self._delete_period = DELETE_FACTOR * max(self._active_route, self._hello_interval)

        is_reboot = "aodv.sequence" in self._host.stable
        self._silent_until = self._host.now() + (self._delete_period if is_reboot else 0)
        self._sequence = StableCounter(self._host.stable, "aodv.sequence", 16, 1_024)
        self._request_ids = StableCounter(self._host.stable, "aodv.request", 16, 1_024)
        self._own_sequence = self._sequence.take()
        self._routes: ExpiringDict[Address, AodvRoute] = ExpiringDict(
            options.routes_max,
            overflow_traced(self._host, "route", "routes_max"),
            lambda route: route.until + self._delete_period,
        )
        self._known: ExpiringDict[tuple[Address, int], Micros] = ExpiringDict(
            REMEMBERED_MAX, overflow_traced(self._host, "rreq", "REMEMBERED_MAX"), lambda until: until
        )
        self._blacklist: ExpiringDict[Address, Micros] = ExpiringDict(
            SEARCHES_MAX, unreported, lambda until: until
        )
        self._soft_state = SoftState(self._host, lambda now: None)
        self._soft_state.add(self._routes, self._known, self._blacklist)
        self._relay: Relay[tuple[Address, int], tuple[int, AodvRequest]] = Relay(
            self._host, send=self._pass_on, most=SEARCHES_MAX
        )
        self._searches: dict[Address, RouteSearch] = {}
        self._search_timers: Timers[Address] = Timers(self._host, self._search)
        self._failed_until: BoundedDict[Address, Micros] = BoundedDict(SEARCHES_MAX, unreported)
        self._neighbours: set[Address] = set()
        self._silence: Timers[Address] = Timers(self._host, self._lose)
        self._requests_pace = Bucket(SECOND // options.rreq_ratelimit, options.rreq_ratelimit)
        self._errors_pace = Bucket(SECOND // options.rerr_ratelimit, options.rerr_ratelimit)
        self._hello_timer = Timer(self._host, self._hello)
        self._broadcast_at: Micros = -self._hello_interval

    # Inputs.

    def on_start(self) -> None:
        self._hello_timer.within(self._hello_interval)

    def on_timer(self, name: Any) -> None:
        name.due()

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        source = self._addresses.address(sender)
        try:
            ttl, message = decode_aodv(payload)
        except WireError as error:
            trace_drop(self._host, DropReason.WIRE, "aodv", detail=str(error))
            return
        if message is None or (isinstance(message, AodvRequest) and source in self._blacklist):
            return
        self._hear(source)
        match message:
            case AodvRequest():
                self._on_request(source, ttl, message)
            case AodvReply() if message.is_hello:
                self._on_hello(source, message)
            case AodvReply():
                self._on_reply(source, ttl, message)
            case AodvError():
                self._on_error(source, message)
        self._soft_state.watch()

    def on_link_failure(self, neighbour: NodeId) -> None:
        """Section 6.10: the link layer may tell."""
        self._lose(self._addresses.address(neighbour))

    # Questions.

    def neighbours(self) -> list[NodeId]:
        return self._numbers(self._neighbours)

    def next_hop(self, to: NodeId) -> NodeId | None:
        """Somebody is about to send there: the route stays active (6.2), or is searched for."""
        address = self._addresses.address(to)
        route = self._active(address)
        if address == self._own:
            return None
        if route is not None:
            self._use(route)
            if route.next_hop != address and (first := self._active(route.next_hop)) is not None:
                self._use(first)
            return self._addresses.node(route.next_hop)
        self._want(address)
        if self._is_silent:  # somebody may still route over us (6.13)
            self._tell_broken([(address, self._sequence_of(address) or 0)], set())
        return None

    def distance(self, to: NodeId) -> int | None:
        route = self._active(self._addresses.address(to))
        return None if route is None else route.hops

    def known_nodes(self) -> list[NodeId]:
        return self._numbers([address for address in self._routes if self._active(address) is not None])

    @property
    def _is_silent(self) -> bool:
        return self._host.now() < self._silent_until

    # Searching (sections 6.3 and 6.4).

    def _want(self, to: Address) -> None:
        if to in self._searches or self._failed_until.get(to, 0) > self._host.now():
            return
        if len(self._searches) >= SEARCHES_MAX:
            trace_overflow(self._host, "rreq", "SEARCHES_MAX")
            return
        known = self._routes.get(to)
        self._searches[to] = RouteSearch(
            self._ring(self._options.ttl_start if known is None else known.hops + self._options.ttl_increment)
        )
        self._search(to)

    def _ring(self, ttl: int) -> int:
        return ttl if ttl <= self._options.ttl_threshold else self._options.net_diameter

    def _search(self, to: Address) -> None:
        """Ask, or ask further away, or give up."""
        search, now = self._searches[to], self._host.now()
        if search.tries > self._options.rreq_retries:
            del self._searches[to]
            self._failed_until.renew(to, now + (self._net_traversal << search.tries))
            return
        if (at := max(self._silent_until, self._requests_pace.earliest(now))) > now:
            self._search_timers.at(to, at)
            return
        self._requests_pace.spend(now)
        self._own_sequence = self._sequence.take()
        sequence = self._sequence_of(to)
        request = AodvRequest(
            # Both ends will want to send: the destination is told the way back to us (6.6.3).
            GRATUITOUS | (UNKNOWN_SEQUENCE if sequence is None else 0),
            0,
            self._request_ids.take() % SEQUENCES,
            to,
            sequence or 0,
            self._own,
            self._own_sequence % SEQUENCES,
        )
        self._known[self._own, request.id] = now + 2 * self._net_traversal
        self._broadcast(search.ttl, request, "rreq")
        if search.ttl < self._options.net_diameter:
            wait = 2 * self._hop_time * (search.ttl + TIMEOUT_BUFFER)  # RING_TRAVERSAL_TIME
            search.ttl = self._ring(search.ttl + self._options.ttl_increment)
        else:
            wait = self._net_traversal << search.tries
            search.tries += 1
        self._search_timers.after(to, wait)

    # Messages.

    def _on_request(self, source: Address, ttl: int, request: AodvRequest) -> None:
        """Section 6.5."""
        now, key = self._host.now(), (request.originator, request.id)
        if self._known.get(key, 0) > now or request.originator == self._own or request.hops >= HOPS_MAX:
            return
        self._known[key] = now + 2 * self._net_traversal  # PATH_DISCOVERY_TIME
        hops = request.hops + 1
        lifetime = 2 * self._net_traversal - 2 * hops * self._hop_time
        back = self._learn(request.originator, source, hops, request.originator_sequence, lifetime)
        if request.destination == self._own:
            self._answer_as_destination(source, request)
        if request.destination == self._own or self._is_silent:
            return
        route, known = self._active(request.destination), self._sequence_of(request.destination)
        asked = None if request.flags & UNKNOWN_SEQUENCE else request.destination_sequence
        may_answer = (
            route is not None
            and route.is_numbered
            and known is not None
            and (asked is None or not is_newer(asked, known))
            and not request.flags & DESTINATION_ONLY
        )
        if may_answer and route is not None and back is not None:
            self._answer_for(source, request, route, back)
        elif ttl > 1:
            if known is not None and (asked is None or is_newer(known, asked)):
                asked = known
            onward = msgspec.structs.replace(
                request,
                flags=request.flags & ~UNKNOWN_SEQUENCE | (UNKNOWN_SEQUENCE if asked is None else 0),
                hops=hops,
                destination_sequence=asked or 0,
            )
            if not self._relay.add(key, (ttl - 1, onward), random_below(self._host, RELAY_JITTER)):
                trace_overflow(self._host, "rreq", "SEARCHES_MAX")

    def _pass_on(self, key: tuple[Address, int], waiting: tuple[int, AodvRequest]) -> None:
        self._broadcast(*waiting, "rreq", own=False)

    def _answer_as_destination(self, source: Address, request: AodvRequest) -> None:
        """Section 6.6.1; the number is at least the one that was asked for (6.1)."""
        if not request.flags & UNKNOWN_SEQUENCE and is_newer(
            request.destination_sequence, self._own_sequence % SEQUENCES
        ):
            ahead = (request.destination_sequence - self._own_sequence) % SEQUENCES
            self._sequence.skip_to(self._own_sequence + ahead)
            self._own_sequence = self._sequence.take()
        lifetime = 2 * self._active_route // MILLISECOND  # MY_ROUTE_TIMEOUT
        sequence = self._own_sequence % SEQUENCES
        self._reply(source, AodvReply(0, self._own, sequence, request.originator, lifetime), own=True)

    def _answer_for(self, source: Address, request: AodvRequest, route: AodvRoute, back: AodvRoute) -> None:
        """Sections 6.6.2 and 6.6.3."""
        route.precursors.add(source)
        back.precursors.add(route.next_hop)
        now = self._host.now()
        self._reply(
            source,
            AodvReply(
                route.hops,
                request.destination,
                route.sequence or 0,
                request.originator,
                max(0, route.until - now) // MILLISECOND,
            ),
        )
        if request.flags & GRATUITOUS:
            lifetime = max(0, back.until - now) // MILLISECOND
            gratuitous = AodvReply(
                back.hops, request.originator, back.sequence or 0, request.destination, lifetime
            )
            self._reply(route.next_hop, gratuitous)

    def _on_hello(self, source: Address, hello: AodvReply) -> None:
        """Section 6.9."""
        if hello.destination == source:
            self._learn(source, source, 1, hello.sequence, self._hello_hold)

    def _on_reply(self, source: Address, ttl: int, reply: AodvReply) -> None:
        """Section 6.7."""
        if reply.destination == self._own or reply.hops >= HOPS_MAX or ttl < 1:
            return
        hops = reply.hops + 1
        lifetime = min(reply.lifetime * MILLISECOND, 2 * self._active_route + self._net_traversal)
        route = self._learn(reply.destination, source, hops, reply.sequence, lifetime)
        if route is None or reply.originator == self._own:
            return
        back = self._active(reply.originator)
        if back is None or back.next_hop == source:
            return
        route.precursors.add(back.next_hop)
        if (first := self._active(route.next_hop)) is not None:
            first.precursors.add(back.next_hop)
        self._use(back)
        if ttl > 1:
            self._reply(back.next_hop, msgspec.structs.replace(reply, hops=hops), ttl - 1)

    def _on_error(self, source: Address, error: AodvError) -> None:
        """Section 6.11, case (iii)."""
        lost: dict[Address, AodvRoute] = {}
        for destination, sequence in error.unreachable:
            route = self._active(destination)
            if route is not None and route.next_hop == source:
                lost[destination] = route
                if route.sequence is None or is_newer(sequence, route.sequence):
                    route.sequence = (sequence - 1) % SEQUENCES  # breaking it counts one up
        self._break(lost)

    # Routes.

    def _learn(
        self, to: Address, source: Address, hops: int, sequence: int | None, lifetime: Micros
    ) -> AodvRoute | None:
        """Section 6.2. `sequence`: None for a neighbour whose message says nothing of its number. The answer
        is None if a better route stands."""
        if to == self._own:
            return None
        until = self._host.now() + lifetime
        before, known = self._active(to), self._sequence_of(to)
        is_direct = sequence is None  # any message of a neighbour shows the way to it
        is_new = sequence is not None and (known is None or is_newer(sequence, known))
        is_same = sequence == known and (before is None or hops < before.hops)
        if is_new or is_same or (is_direct and (before is None or before.hops > 1)):
            route = self._routes.get(to) or AodvRoute(source, hops, None, False, until, set())
            kept = before.until if before is not None and before.next_hop == source else 0
            route.next_hop, route.hops, route.until = source, hops, max(until, kept)
            route.is_broken = self._is_silent and hops > 1  # while silent, only its number counts
            route.sequence, route.is_numbered = (known, False) if is_direct else (sequence, True)
            self._routes[to] = route
        elif before is not None and before.next_hop == source and sequence in (None, known):
            before.until = max(before.until, until)
            before.is_numbered = before.is_numbered or not is_direct
            return before
        else:
            return None
        if route.is_broken:
            return None
        if to in self._searches:
            del self._searches[to]
            self._search_timers.cancel(to)
        self._failed_until.pop(to, None)
        if before is None or before.next_hop != source:
            self._report_routes()
        return route

    def _active(self, to: Address) -> AodvRoute | None:
        route = self._routes.get(to)
        return None if route is None or route.is_broken or route.until <= self._host.now() else route

    def _sequence_of(self, to: Address) -> int | None:
        """The newest number that is known. A route that has expired counts one up, as one that breaks does
        (6.1): an answer with the old number, of a node that routes over us, would close a loop."""
        route = self._routes.get(to)
        if route is None:
            return None
        if not route.is_broken and route.until <= self._host.now():
            self._end(route)
        return route.sequence

    def _end(self, route: AodvRoute) -> None:
        route.is_broken, route.until = True, min(route.until, self._host.now())
        if route.sequence is not None:
            route.sequence = (route.sequence + 1) % SEQUENCES

    def _use(self, route: AodvRoute) -> None:
        route.until = max(route.until, self._host.now() + self._active_route)

    def _hear(self, source: Address) -> None:
        """Any message shows that its sender is a neighbour (6.5, 6.7, 6.10)."""
        self._silence.after(source, self._hello_hold)
        self._learn(source, source, 1, None, self._hello_hold)
        if source not in self._neighbours:
            self._neighbours.add(source)
            if (node := self._addresses.node(source)) is not None:
                self._report_up(node)

    def _lose(self, neighbour: Address) -> None:
        """Section 6.11, case (i): a link is gone, with all routes over it."""
        if neighbour in self._neighbours:
            self._silence.cancel(neighbour)
            self._neighbours.discard(neighbour)
            if (node := self._addresses.node(neighbour)) is not None:
                self._report_down(node)
        lost = {
            to: route
            for to, route in self._routes.items()
            if route.next_hop == neighbour and self._active(to) is not None
        }
        self._break(lost)

    def _break(self, lost: dict[Address, AodvRoute]) -> None:
        """Break these routes, and tell the nodes that route over us to one of them."""
        if not lost:
            return
        told: set[Address] = set()
        unreachable: list[tuple[Address, int]] = []
        for to, route in sorted(lost.items()):
            self._end(route)
            if route.precursors and route.sequence is not None:
                told |= route.precursors
                unreachable.append((to, route.sequence))
            route.precursors = set()
        self._tell_broken(unreachable, told)
        self._report_routes()

    def _tell_broken(self, unreachable: list[tuple[Address, int]], told: set[Address]) -> None:
        now = self._host.now()
        for at in range(0, len(unreachable), UNREACHABLE_MAX):
            if self._errors_pace.earliest(now) <= now:
                self._errors_pace.spend(now)
                error = AodvError(tuple(unreachable[at : at + UNREACHABLE_MAX]))
                if len(told) == 1:
                    self._unicast(next(iter(told)), 1, error, "rerr")
                else:
                    self._broadcast(1, error, "rerr")

    # Sending.

    def _hello(self) -> None:
        """Section 6.9: unless a broadcast has told the same within the interval."""
        if self._broadcast_at + self._hello_interval <= self._host.now():
            lifetime = self._hello_hold // MILLISECOND
            hello = AodvReply(0, self._own, self._own_sequence % SEQUENCES, self._own, lifetime)
            self._broadcast(1, hello, "hello")
        early = random_below(self._host, self._hello_interval // 4)
        self._hello_timer.at(self._broadcast_at + self._hello_interval + RELAY_JITTER - early)

    def _reply(self, to: Address, reply: AodvReply, ttl: int | None = None, *, own: bool = False) -> None:
        def failed(failure: SendFailure) -> None:
            if failure is SendFailure.LINK:  # section 6.8: we hear it, and it does not hear us
                self._blacklist[to] = self._host.now() + self._blacklist_time
                self._soft_state.watch()

        self._unicast(to, ttl or self._options.net_diameter, reply, "rrep", failed, own=own)

    def _broadcast(self, ttl: int, message: AodvMessage, name: str, *, own: bool = True) -> None:
        self._broadcast_at = self._host.now()
        self._host.broadcast(Frame(encode_aodv(ttl, message), Kind.CONTROL, name, own=own))

    def _unicast(
        self,
        to: Address,
        ttl: int,
        message: AodvMessage,
        name: str,
        on_failure: Callable[[SendFailure], None] | None = None,
        *,
        own: bool = False,
    ) -> None:
        node = self._addresses.node(to)
        if node is not None:
            self._host.unicast(
                node, Frame(encode_aodv(ttl, message), Kind.CONTROL, name, own=own), on_failure
            )

    def _numbers(self, addresses: Iterable[Address]) -> list[NodeId]:
        numbers = (self._addresses.node(address) for address in addresses)
        return sorted(number for number in numbers if number is not None)
