"""Real-time events: looked up once, then carried down the virtual multicast tree (section 4.2, *Lookup
process*, *Event notification*, *Event multicasting*).

A publisher hands the event to its broker in one hop; the broker looks it up and sets EDNV; from there each
node that holds it notifies its neighbours and divides the rest among next hops (`divide`). Events with
designated destinations begin at the publisher itself. The tree is never built. Any node can forward, broker
or not: it only needs a routing table, and current routes may lead through nodes that have just been
dismissed.

Beyond the paper: several next hops and neighbours are served by one broadcast that holds the vector of each
(`Spread`), unless `notification = "unicast"`. A next hop acknowledges it by its own broadcast of the event;
one that is not heard gets its part by unicast. Neighbours that have nothing to pass on are served by
`recapitulation.py`. Events with designated destinations go by unicast: their receivers are few, and cannot
be told by the identifiers that a recapitulation holds.

Likewise: a frame that the link layer gives up is sent again, `retries` times at growing intervals:
over the routes at that time, or by a neighbouring broker if the route still uses the broken link. A second
copy from the same node is not forwarded. A copy from another node has gone in a circle of outdated routes;
it waits until the routes may have been repaired.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import NamedTuple

import msgspec

from roamcast.event import Event, EventClass, EventId
from roamcast.kit.confirm import Backoff
from roamcast.kit.cover import turn
from roamcast.kit.protocol import overflow_traced
from roamcast.kit.relay import Relay
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.chapar.attachment import Attachment
from roamcast.strategy.chapar.messages import BRANCHES_MAX, Carry, Recap, Spread
from roamcast.strategy.chapar.node_vectors import (
    NO_NODES,
    NodeBits,
    NodeVector,
    available,
    multimode,
    notified,
    remaining,
    vector_of,
)
from roamcast.strategy.chapar.part import Part, Shared
from roamcast.strategy.chapar.recapitulation import Recapitulation
from roamcast.trace import DropReason
from roamcast.units import SECOND, Micros, NodeId, micros

# An older event counts as this old: the time that it is kept here can be added, and the sum can be sent.
AGE_MAX: Micros = 2**62
# A failure on a full medium counts as one attempt and so many more: with `prompt` there is one retry, after
# 0.4 s. Measured on the league's `narrowband`, seeds 111 to 118: 0, 2, 3 deliver 0.78, 0.89, 0.97 of the
# reachable pairs.
CONGESTION_COST = 3
DOUBT: Micros = SECOND  # between two unicasts to a neighbour whose HELLO is overdue; chosen by us
DOUBTED_MAX = 256  # such neighbours; chosen by us
TAKEN_MAX = 4_096  # events whose destinations are remembered; chosen by us


class Branches(NamedTuple):
    """One step of the tree. `notified` is NSNV, `groups` the RNV of each next hop."""

    notified: NodeVector
    groups: dict[NodeId, NodeVector]
    stranded: NodeVector  # destinations without a next hop


def divide(
    destinations: NodeVector,
    host: NodeVector,
    neighbours: NodeVector,
    preceding: NodeVector,
    next_hop: Callable[[NodeId], NodeId | None],
    addresses: NodeBits,
) -> Branches:
    """Divide EDNV at one node. `neighbours` (NNV) are those that are no brokers: a neighbouring broker is
    reached as the next hop of its own group, and passes the event on if it must."""
    now = notified(destinations, host, neighbours, preceding)
    groups: dict[NodeId, NodeVector] = {}
    stranded = NO_NODES
    for node in addresses.nodes(remaining(destinations, now)):
        hop = next_hop(node)
        if hop is None:
            stranded |= addresses.bit(node)
        else:
            groups[hop] = groups.get(hop, NO_NODES) | addresses.bit(node)
    return Branches(now, dict(sorted(groups.items())), stranded)


class Copy(NamedTuple):
    """A copy of an event on its way. With `destinations` of None it is for a broker to look up."""

    carry: Carry
    destinations: NodeVector | None
    sender: NodeId | None
    born: Micros  # when the event was published, on this node's clock
    attempt: int = 0
    place: int | None = None  # among the next hops of a broadcast: its sender listens for this node's own


class AwaitedRelays(NamedTuple):
    """A broadcast, and the next hops that have not been heard to pass it on."""

    copy: Copy
    branches: dict[NodeId, NodeVector]
    since: Micros


class TakenOn(msgspec.Struct):
    """The destinations of one event that this node is responsible for, by the node they came from."""

    by_sender: dict[NodeId | None, NodeVector] = {}
    circles: int = 0


class EventMulticasting(Part):
    def __init__(self, shared: Shared, attachment: Attachment, recapitulation: Recapitulation) -> None:
        super().__init__(shared)
        self._addresses = self._tables.addresses
        self._attachment = attachment
        self._recapitulation = recapitulation
        self._backoff = Backoff(micros(self._in_force.retry_delay), attempts=self._in_force.retries)
        self._taken: BoundedDict[EventId, TakenOn] = BoundedDict(
            TAKEN_MAX, overflow_traced(self._host, "event", "TAKEN_MAX")
        )
        # Sent again by unicast after a while, unless the next hops are heard.
        self._unheard: Relay[EventId, AwaitedRelays] = Relay(
            self._host, send=self._on_unheard, most=TAKEN_MAX
        )
        self._timeout = recapitulation.timeout
        self._waiting: Relay[int, Copy] = Relay(self._host, send=self._go_on, most=self._options.pending_max)
        self._number = 0  # of the last copy that had to wait
        self._doubted: BoundedDict[NodeId, Micros] = BoundedDict(DOUBTED_MAX, unreported)

    # Inputs.

    def publish(self, event: Event, sealed: bytes = b"") -> None:
        carry = Carry(event, None, 0, sealed)
        now = self._host.now()
        if event.wants_subscribers:
            self._keep_for_newcomers(carry, now, None)
            self._seek_broker(Copy(carry, None, None, now))
        else:
            # Point to point and to multipoint: the root of the tree is the publisher.
            destinations = vector_of(self._addresses, event.destinations) & ~self._brokers.host_vector
            self._take(Copy(carry, destinations, None, now))

    def on_carry(self, sender: NodeId, carry: Carry) -> None:
        copy = self._arrived(sender, carry)
        if carry.destinations is not None:
            self._take(copy._replace(destinations=self._decoded(carry.destinations)))
            return
        if not self._brokers.is_broker:
            self._messenger.decline(sender)
        self._seek_broker(copy)

    def on_spread(self, sender: NodeId, spread: Spread) -> None:
        since = self._confirmed(spread.event.id, sender)
        if since is not None:
            self._timeout.on_confirmed(self._host.now() - since)
        copy, host_vector = self._arrived(sender, spread), self._brokers.host_vector
        hops = [hop for hop, _ in spread.branches]
        if self._host.node in hops:
            place = hops.index(self._host.node)
            residual = self._decoded(spread.branches[place][1])
            self._take(copy._replace(destinations=residual, place=place))
        elif self._addresses.decode(spread.leaves, [self._host.node]) & host_vector:
            self._take(copy._replace(destinations=host_vector))
        elif self._broker.observe(spread.event.id):
            self._keep_for_newcomers(copy.carry, copy.born, sender)
            self._hand_over(copy, is_named=False)

    def on_recap(self, sender: NodeId, recap: Recap) -> None:
        """A next hop's own broadcast may have collided; but what it tells of, it has."""
        for entry in recap.entries:
            self._confirmed(EventId(entry.publisher, entry.sequence), sender)
        self._recapitulation.on_recap(sender, recap)

    # The broker's part.

    def _seek_broker(self, copy: Copy) -> None:
        if self._brokers.is_broker:
            self._look_up(copy)
            return
        broker = self._attachment.broker
        if broker is None or broker == copy.sender:
            self._try_again(copy, "no broker in the neighbourhood")
            return

        def failed(_: object) -> None:
            self._attachment.on_failure()
            self._try_again(copy, "the broker is gone")

        self._messenger.send(self._carry(copy, None), broker, own=self._is_own(copy), on_failure=failed)

    def _look_up(self, copy: Copy) -> None:
        """The lookup process at the publisher's broker: EDNV from SNV and ANV, equation (7) for multimode."""
        event, filters = copy.carry.event, self._tables.filters
        if self._is_own(copy) and not event.destinations and filters.knows_only(self._host.node):
            return  # a node alone, or the first: there is nobody to look for
        subscribers = filters.lookup(self._tables.event_id(event, copy.carry.sealed))
        destinations = multimode(
            vector_of(self._addresses, event.destinations),
            available(subscribers, self._brokers.available_vector()),
        )
        destinations &= ~self._addresses.bit(event.publisher)  # its applications were served at publication
        # The tree begins here, so a route that leads back over the publisher's node is no circle.
        self._take(copy._replace(destinations=destinations, sender=None))

    # A step of the tree.

    def _take(self, copy: Copy) -> None:
        """A copy has come: serve this node, and forward to the destinations that are new."""
        event, host_vector = copy.carry.event.id, self._brokers.host_vector
        self._broker.observe(event)
        self._keep_for_newcomers(copy.carry, copy.born, copy.sender)
        known = self._taken.pop(event, None)
        taken = self._taken[event] = known or TakenOn()
        elsewhere = reduce(or_, taken.by_sender.values(), NO_NODES)
        before = taken.by_sender.get(copy.sender, NO_NODES)
        fresh = (copy.destinations or NO_NODES) & ~before
        taken.by_sender[copy.sender] = before | fresh
        if fresh & host_vector & ~elsewhere:
            self._hand_over(copy, is_named=True)
        elif known is None:
            self._hand_over(copy, is_named=False)
        fresh &= ~host_vector
        if fresh and copy.carry.hops >= self._options.hop_limit:
            self._messenger.drop(DropReason.EXPIRED, "event", event, detail="hop limit")
            return
        if fresh & ~elsewhere:
            forward = copy._replace(destinations=fresh & ~elsewhere)
            if copy.place is not None:  # other receivers of the same broadcast pass it on too, each in turn
                self._wait(forward, turn(self._host, copy.place, copy.carry.event))
            else:
                self._forward(forward)
        if fresh & elsewhere:
            taken.circles += 1
            again = copy._replace(destinations=fresh & elsewhere, attempt=taken.circles)
            self._try_again(again, "went in a circle")

    def _forward(self, copy: Copy) -> None:
        """Notify neighbours and hand each next hop its residual vector (equations 2 and 3)."""
        addresses = self._addresses
        branches = divide(
            copy.destinations or NO_NODES,
            self._brokers.host_vector,
            self._brokers.plain_neighbours(),
            NO_NODES if copy.sender is None else addresses.bit(copy.sender),
            self._underlay.next_hop,
            addresses,
        )
        ways = {node: addresses.bit(node) for node in addresses.nodes(branches.notified)}
        ways |= branches.groups
        is_listened_for = copy.place is not None and copy.attempt == 0
        if (len(ways) > 1 or is_listened_for) and self._may_broadcast(copy.carry.event):
            self._broadcast(copy, ways)
        else:
            for hop, residual in ways.items():
                self._pass_around(copy, hop, residual)
        if branches.stranded:
            self._try_again(copy._replace(destinations=branches.stranded), "no route")

    def _hand_over(self, copy: Copy, *, is_named: bool) -> None:
        """To this node's applications. Beyond the paper: a relay that wants the event gets it although the
        vector does not name it, because the broker that looked it up did not know its subscription yet."""
        event = self._inbox.opened(copy.carry.event, copy.carry.sealed)
        is_wanted = event is not None and self._broker.wants(event)
        if event is not None and is_wanted and (is_named or event.publisher != self._host.node):
            self._broker.deliver(event, copy.carry.hops, self._host.now() - copy.born)
        elif is_named:
            self._messenger.drop(DropReason.FALSE_POSITIVE, "event", copy.carry.event.id)

    # By one broadcast.

    def _may_broadcast(self, event: Event) -> bool:
        return self._in_force.notification == "broadcast" and not event.destinations

    def _broadcast(self, copy: Copy, ways: dict[NodeId, NodeVector]) -> None:
        """One frame for all; a way that leads over a broken link or back gets a frame of its own."""
        carry, encode = copy.carry, self._addresses.encode
        leaves = NO_NODES
        relays: dict[NodeId, NodeVector] = {}
        for hop, residual in ways.items():
            if residual == self._addresses.bit(hop):
                if self._is_doubtful(hop):
                    self._pass_around(copy, hop, residual)
                else:
                    leaves |= residual
            elif self._messenger.is_broken(hop) or hop == copy.sender or len(relays) == BRANCHES_MAX:
                self._pass_around(copy, hop, residual)
            else:
                relays[hop] = residual
        branches = tuple((hop, encode(residual)) for hop, residual in relays.items())
        now = self._host.now()
        spread = Spread(carry.event, carry.hops, encode(leaves), branches, carry.sealed, now - copy.born)
        self._messenger.send(spread, own=self._is_own(copy))
        self._recapitulation.remember(carry, copy.born, told=0)
        if relays:
            before = self._unheard.find(carry.event.id)
            unheard = relays if before is None else before.branches | relays
            self._unheard.cancel(carry.event.id)
            self._unheard.add(carry.event.id, AwaitedRelays(copy, unheard, now), self._timeout.wait)

    def _is_doubtful(self, neighbour: NodeId) -> bool:
        """A neighbour that only listens does not show that its link is broken. Where its HELLO is overdue,
        one event in a while goes by unicast: the link layer tells, and the routes change at once."""
        now = self._host.now()
        if now < self._doubted.get(neighbour, 0) + DOUBT or not self._recapitulation.is_calm:
            return False
        if not self._underlay.is_overdue(neighbour):
            return False
        self._doubted.renew(neighbour, now)
        return True

    def _confirmed(self, event: EventId, relay: NodeId) -> Micros | None:
        """A next hop has the event: it has taken on what it was given. Returns when it was given."""
        awaited = self._unheard.find(event)
        if awaited is None or awaited.branches.pop(relay, None) is None:
            return None
        if not awaited.branches:
            self._unheard.cancel(event)
        return awaited.since

    def _on_unheard(self, _: EventId, awaited: AwaitedRelays) -> None:
        """Next hops that were not heard to pass the event on get their part by unicast."""
        self._timeout.on_missed()
        for hop, residual in awaited.branches.items():
            self._pass(awaited.copy, hop, residual)

    def _keep_for_newcomers(self, carry: Carry, born: Micros, sender: NodeId | None) -> None:
        if self._may_broadcast(carry.event) and carry.event.event_class is EventClass.REALTIME:
            self._recapitulation.keep(carry, born, sender)  # memorized events are in the tables

    # To one next hop.

    def _pass_around(self, copy: Copy, hop: NodeId, residual: NodeVector) -> None:
        """Pass it to the next hop, or around a link that has just broken."""
        way = self._detour(hop, copy.sender) if self._messenger.is_broken(hop) else hop
        if way == copy.sender or way is None:
            # Two nodes whose routes disagree would send it to and fro. At the retry they may agree.
            self._try_again(copy._replace(destinations=residual), "no way on")
        else:
            self._pass(copy, way, residual)

    def _detour(self, around: NodeId, sender: NodeId | None) -> NodeId | None:
        """Another broker of the neighbourhood: it may have a route past a link that has just broken."""
        brokers = (broker for broker in self._brokers.adjacent() if not self._messenger.is_broken(broker))
        return next((broker for broker in brokers if broker not in (around, sender)), None)

    def _pass(self, copy: Copy, to: NodeId, destinations: NodeVector) -> None:
        def failed(_: object) -> None:
            attempt = copy.attempt
            # A neighbour that is still heard: the medium is full, and frames that are sent again and again
            # keep it full. Where events are broadcast, recapitulations make up for it.
            if to in self._underlay.neighbours() and self._may_broadcast(copy.carry.event):
                attempt += CONGESTION_COST
            again = copy._replace(destinations=destinations, attempt=attempt)
            self._try_again(again, "the next hop is gone")

        carry = self._carry(copy, self._addresses.encode(destinations))
        self._messenger.send(carry, to, own=self._is_own(copy), on_failure=failed)

    def _try_again(self, copy: Copy, problem: str) -> None:
        if self._backoff.is_over(copy.attempt):
            self._messenger.drop(DropReason.NOT_IN_RANGE, "event", copy.carry.event.id, detail=problem)
            return
        # Where a broadcast takes long to be passed on, the medium is full, and haste would keep it full.
        wait = max(self._backoff.wait(copy.attempt), self._timeout.measured)
        self._wait(copy._replace(attempt=copy.attempt + 1), wait, problem)

    def _wait(self, copy: Copy, time: Micros, problem: str = "") -> None:
        self._number += 1
        if not self._waiting.add(self._number, copy, time):
            self._messenger.drop(DropReason.QUEUE_FULL, "event", copy.carry.event.id, detail=problem)

    def _go_on(self, _: int, copy: Copy) -> None:
        """The wait is over."""
        if copy.destinations is None:
            self._seek_broker(copy)
        else:
            self._forward(copy)

    # Copies.

    def _arrived(self, sender: NodeId, message: Carry | Spread) -> Copy:
        """The copy as it came, without destinations."""
        carry = Carry(message.event, None, min(message.hops + 1, 255), message.sealed)
        return Copy(carry, None, sender, self._host.now() - min(message.age, AGE_MAX))

    def _carry(self, copy: Copy, vector: bytes | None) -> Carry:
        """The copy as it is sent."""
        carry, age = copy.carry, self._host.now() - copy.born
        return Carry(carry.event, vector, carry.hops, carry.sealed, age)

    def _is_own(self, copy: Copy) -> bool:
        return copy.carry.event.publisher == self._host.node

    def _decoded(self, vector: bytes) -> NodeVector:
        return self._addresses.decode(vector, self._known())

    def _known(self) -> Iterator[NodeId]:
        """A generator: the underlay need not compute its routes where nobody asks for the first node."""
        yield from self._underlay.known_nodes()
        yield self._host.node
