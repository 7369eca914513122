"""Real-time events: looked up once, then carried down the virtual multicast tree (section 4.2).

A publisher hands the event to its broker in one hop; the broker looks it up and sets EDNV; from there each
node that holds it notifies its neighbours and divides the rest among next hops (`multicast.py`). Events with
designated destinations begin at the publisher itself. Any node can forward, broker or not: it only needs a
routing table, and current routes may lead through nodes that have just been dismissed.

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

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import NamedTuple

from roamcast.event import Event, EventClass, EventId
from roamcast.kit.confirm import Backoff
from roamcast.kit.protocol import overflow_traced
from roamcast.kit.tables import BoundedDict
from roamcast.strategy.chapar.messages import BRANCHES_MAX, Carry, Decline, Spread
from roamcast.strategy.chapar.notification.attachment import Attachment
from roamcast.strategy.chapar.notification.echo import EchoTime
from roamcast.strategy.chapar.notification.multicast import available, multimode, step
from roamcast.strategy.chapar.notification.recapitulation import Recapitulation
from roamcast.strategy.chapar.sealing import opened
from roamcast.strategy.chapar.state import State
from roamcast.strategy.chapar.tables.node_vector import NO_NODES, NodeVector, vector_of
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId, micros

# An older event counts as this old: the time that it is kept here can be added, and the sum can be sent.
AGE_MAX: Micros = 2**62
# How many attempts more a failure on a full medium counts for: with `prompt` one retry, after 0.4 s. Measured
# on the league's `narrowband`, seeds 111 to 118: 0, 2, 3 deliver 0.78, 0.89, 0.97 of the reachable pairs.
CONGESTION_COST = 3
TAKEN_MAX = 4_096  # events whose destinations are remembered; chosen by us


class Pending(NamedTuple):
    """A copy that waits for a route. With `destinations` of None it waits for a broker."""

    carry: Carry
    destinations: NodeVector | None
    sender: NodeId | None
    born: Micros  # when the event was published, on this node's clock
    attempt: int = 0
    is_awaited: bool = False  # the sender listens for this node's broadcast


class AwaitedRelays(NamedTuple):
    """A broadcast, and the next hops that have not been heard to pass it on."""

    pending: Pending
    branches: dict[NodeId, NodeVector]
    since: Micros


class TakenOn:
    """The destinations of one event that this node is responsible for, by the node they came from."""

    __slots__ = ("by_sender", "circles")

    def __init__(self) -> None:
        self.by_sender: dict[NodeId | None, NodeVector] = {}
        self.circles = 0


class NotificationCourier:
    def __init__(self, state: State, attachment: Attachment, recapitulation: Recapitulation) -> None:
        self._state = state
        self._attachment = attachment
        self._taken: BoundedDict[EventId, TakenOn] = BoundedDict(
            TAKEN_MAX, overflow_traced(state.host, "event", "TAKEN_MAX")
        )
        self._recapitulation = recapitulation
        self._awaited: dict[EventId, AwaitedRelays] = {}
        self._echo = EchoTime()
        self._pending: dict[int, Pending] = {}
        self._number = 0
        self._backoff = Backoff(micros(state.in_force.retry_delay), attempts=state.in_force.retries)

    # Inputs.

    def publish(self, event: Event, sealed: bytes = b"") -> None:
        carry = Carry(event, None, 0, sealed)
        now = self._state.host.now()
        if event.wants_subscribers:
            self._keep_for_newcomers(carry, now)
            self._seek_broker(Pending(carry, None, None, now))
        else:
            # Point to point and to multipoint: the root of the tree is the publisher.
            destinations = vector_of(self._state.addresses, event.destinations) & ~self._state.host_vector
            self._take(Pending(carry, destinations, None, now))

    def on_carry(self, sender: NodeId, carry: Carry) -> None:
        state = self._state
        arrived = Carry(carry.event, None, min(carry.hops + 1, 255), carry.sealed)
        born = state.host.now() - min(carry.age, AGE_MAX)
        if carry.destinations is None:
            if not state.is_broker:
                state.send(sender, Decline())
            self._seek_broker(Pending(arrived, None, sender, born))
            return
        self._take(Pending(arrived, self._decoded(carry.destinations), sender, born))

    def on_spread(self, sender: NodeId, spread: Spread) -> None:
        state, event = self._state, spread.event.id
        self._was_heard(event, sender)
        arrived = Carry(spread.event, None, min(spread.hops + 1, 255), spread.sealed)
        born = state.host.now() - min(spread.age, AGE_MAX)
        residual = dict(spread.branches).get(state.node)
        if residual is not None:
            self._take(Pending(arrived, self._decoded(residual), sender, born, is_awaited=True))
        elif state.addresses.decode(spread.leaves, [state.node]) & state.host_vector:
            self._take(Pending(arrived, state.host_vector, sender, born))
        elif state.broker.observe(event):
            self._serve_unnamed(arrived, born)

    def on_overheard_due(self, event: EventId) -> None:
        """Next hops that were not heard to pass the event on get their part by unicast."""
        awaited = self._awaited.pop(event)
        self._echo.missed()
        for hop, residual in awaited.branches.items():
            self._pass(awaited.pending, hop, residual)

    def on_retry(self, number: int) -> None:
        pending = self._pending.pop(number)
        if pending.destinations is None:
            self._seek_broker(pending)
        else:
            self._divide(pending)

    # Private.

    def _seek_broker(self, pending: Pending) -> None:
        state = self._state
        if state.is_broker:
            self._look_up(pending)
            return
        broker = state.attached
        if broker is None or broker == pending.sender:
            self._try_again(pending, "no broker in the neighbourhood")
            return

        def failed() -> None:
            self._attachment.on_failure()
            self._try_again(pending, "the broker is gone")

        state.send(broker, self._copy(pending, None), own=self._is_own(pending), on_failure=failed)

    def _look_up(self, pending: Pending) -> None:
        """The lookup process at the publisher's broker: EDNV from SNV and ANV, equation (7) for multimode."""
        state, carry = self._state, pending.carry
        event = carry.event
        if self._is_own(pending) and not event.destinations and state.filters.knows_only(state.node):
            return  # a node alone, or the first: there is nobody to look for
        subscribers = state.filters.lookup(state.event_id(event, carry.sealed))
        destinations = multimode(
            vector_of(state.addresses, event.destinations),
            available(subscribers, state.available_vector()),
        )
        destinations &= ~state.addresses.bit(event.publisher)  # its applications were served at publication
        # The tree begins here, so a route that leads back over the publisher's node is no circle.
        self._take(pending._replace(destinations=destinations, sender=None))

    def _take(self, pending: Pending) -> None:
        """A copy has come: serve this node, and forward to the destinations that are new."""
        state, event = self._state, pending.carry.event.id
        state.broker.observe(event)
        self._keep_for_newcomers(pending.carry, pending.born)
        known = self._taken.pop(event, None)
        taken = self._taken[event] = known or TakenOn()
        elsewhere = reduce(or_, taken.by_sender.values(), NO_NODES)
        before = taken.by_sender.get(pending.sender, NO_NODES)
        fresh = (pending.destinations or NO_NODES) & ~before
        taken.by_sender[pending.sender] = before | fresh
        if fresh & state.host_vector & ~elsewhere:
            self._hand_over(pending.carry, pending.born)
        elif known is None:
            self._serve_unnamed(pending.carry, pending.born)
        fresh &= ~state.host_vector
        if fresh and pending.carry.hops >= state.options.hop_limit:
            state.drop_event(event, DropReason.EXPIRED, "event", "hop limit")
            return
        if fresh & ~elsewhere:
            forward = pending._replace(destinations=fresh & ~elsewhere)
            if pending.is_awaited:  # other receivers of the same broadcast pass it on too
                self._wait(forward, int(state.host.random.random() * micros(state.options.jitter)))
            else:
                self._divide(forward)
        if fresh & elsewhere:
            taken.circles += 1
            again = pending._replace(destinations=fresh & elsewhere, attempt=taken.circles)
            self._try_again(again, "went in a circle")

    def _divide(self, pending: Pending) -> None:
        """Notify neighbours and hand each next hop its residual vector (equations 2 and 3)."""
        state, sender = self._state, pending.sender
        destinations = pending.destinations or NO_NODES
        preceding = NO_NODES if sender is None else state.addresses.bit(sender)
        branches = step(
            destinations,
            state.host_vector,
            state.plain_neighbours(),
            preceding,
            state.underlay.next_hop,
            state.addresses,
        )
        ways = {node: state.addresses.bit(node) for node in state.addresses.nodes(branches.notified)}
        ways |= branches.groups
        is_listened_for = pending.is_awaited and pending.attempt == 0
        if (len(ways) > 1 or is_listened_for) and self._may_broadcast(pending.carry.event):
            self._broadcast(pending, ways)
        else:
            for hop, residual in ways.items():
                self._pass_around(pending, hop, residual)
        if branches.stranded:
            self._try_again(pending._replace(destinations=branches.stranded), "no route")

    def _keep_for_newcomers(self, carry: Carry, born: Micros) -> None:
        if self._may_broadcast(carry.event) and carry.event.event_class is EventClass.REALTIME:
            self._recapitulation.keep(carry, born)  # memorized events are in the tables

    def _may_broadcast(self, event: Event) -> bool:
        return self._state.in_force.notification == "broadcast" and not event.destinations

    def _broadcast(self, pending: Pending, ways: dict[NodeId, NodeVector]) -> None:
        """One frame for all; a way that leads over a broken link or back gets a frame of its own."""
        state, carry = self._state, pending.carry
        leaves = NO_NODES
        relays: dict[NodeId, NodeVector] = {}
        for hop, residual in ways.items():
            if residual == state.addresses.bit(hop):
                leaves |= residual
            elif state.is_broken(hop) or hop == pending.sender or len(relays) == BRANCHES_MAX:
                self._pass_around(pending, hop, residual)
            else:
                relays[hop] = residual
        encode = state.addresses.encode
        branches = tuple((hop, encode(residual)) for hop, residual in relays.items())
        age = state.host.now() - pending.born
        spread = Spread(carry.event, carry.hops, encode(leaves), branches, carry.sealed, age)
        state.send(None, spread, own=self._is_own(pending))
        self._recapitulation.note(carry, pending.born)
        if relays:
            self._await(pending, relays)

    def _await(self, pending: Pending, relays: dict[NodeId, NodeVector]) -> None:
        event, host = pending.carry.event.id, self._state.host
        before = self._awaited.get(event)
        branches = relays if before is None else before.branches | relays
        self._awaited[event] = AwaitedRelays(pending, branches, host.now())
        host.set_timer(("overhear", *event), host.now() + self._echo.timeout)

    def _was_heard(self, event: EventId, relay: NodeId) -> None:
        """A next hop has broadcast the event: it has taken on what it was given."""
        awaited = self._awaited.get(event)
        if awaited is None or awaited.branches.pop(relay, None) is None:
            return
        self._echo.heard_after(self._state.host.now() - awaited.since)
        if not awaited.branches:
            del self._awaited[event]
            self._state.host.cancel_timer(("overhear", *event))

    def _pass_around(self, pending: Pending, hop: NodeId, residual: NodeVector) -> None:
        """Pass it to the next hop, or around a link that has just broken."""
        sender = pending.sender
        way = self._detour(hop, sender) if self._state.is_broken(hop) else hop
        if way == sender or way is None:
            # Two nodes whose routes disagree would send it to and fro. At the retry they may agree.
            self._try_again(pending._replace(destinations=residual), "no way on")
        else:
            self._pass(pending, way, residual)

    def _detour(self, around: NodeId, sender: NodeId | None) -> NodeId | None:
        """Another broker of the neighbourhood: it may have a route past a link that has just broken."""
        state = self._state
        brokers = (broker for broker in state.adjacent_brokers() if not state.is_broken(broker))
        return next((broker for broker in brokers if broker not in (around, sender)), None)

    def _pass(self, pending: Pending, to: NodeId, destinations: NodeVector) -> None:
        copy = self._copy(pending, self._state.addresses.encode(destinations))

        def failed() -> None:
            # A neighbour that is still heard: the medium is full, and frames that are sent again and again
            # keep it full. Where events are broadcast, recapitulations make up for it.
            is_heard = to in self._state.underlay.neighbours()
            attempt = pending.attempt + CONGESTION_COST * (
                is_heard and self._may_broadcast(pending.carry.event)
            )
            again = pending._replace(destinations=destinations, attempt=attempt)
            self._try_again(again, "the next hop is gone")

        self._state.send(to, copy, own=self._is_own(pending), on_failure=failed)

    def _copy(self, pending: Pending, vector: bytes | None) -> Carry:
        carry, age = pending.carry, self._state.host.now() - pending.born
        return Carry(carry.event, vector, carry.hops, carry.sealed, age)

    def _try_again(self, pending: Pending, problem: str) -> None:
        state, event = self._state, pending.carry.event.id
        if self._backoff.is_over(pending.attempt):
            state.drop_event(event, DropReason.NOT_IN_RANGE, "event", problem)
            return
        # Where a broadcast takes long to be passed on, the medium is full, and haste would keep it full.
        wait = max(self._backoff.wait(pending.attempt), self._echo.measured)
        self._wait(pending._replace(attempt=pending.attempt + 1), wait, problem)

    def _wait(self, pending: Pending, time: Micros, problem: str = "") -> None:
        state = self._state
        if len(self._pending) >= state.options.pending_max:
            state.drop_event(pending.carry.event.id, DropReason.QUEUE_FULL, "event", problem)
            return
        self._number += 1
        self._pending[self._number] = pending
        state.host.set_timer(("retry", self._number), state.host.now() + time)

    def _decoded(self, vector: bytes) -> NodeVector:
        return self._state.addresses.decode(vector, self._known())

    def _known(self) -> Iterator[NodeId]:
        """A generator: the underlay need not compute its routes where nobody asks for the first node."""
        yield from self._state.underlay.known_nodes()
        yield self._state.node

    def _is_own(self, pending: Pending) -> bool:
        return pending.carry.event.publisher == self._state.node

    def _serve_unnamed(self, carry: Carry, born: Micros) -> None:
        """Beyond the paper: a relay that wants the event itself gets it although the vector does not name
        it, because the broker that looked it up did not know its subscription yet."""
        state = self._state
        event = opened(carry.event, carry.sealed, state.inbox.opener)
        if event is not None and event.publisher != state.node and state.broker.wants(event):
            state.broker.deliver(event, carry.hops, state.host.now() - born)

    def _hand_over(self, carry: Carry, born: Micros) -> None:
        state = self._state
        event = opened(carry.event, carry.sealed, state.inbox.opener)
        if event is None or not state.broker.wants(event):
            state.drop_event(carry.event.id, DropReason.FALSE_POSITIVE, "event")
        else:
            state.broker.deliver(event, carry.hops, state.host.now() - born)
