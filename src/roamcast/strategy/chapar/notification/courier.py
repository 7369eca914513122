"""Real-time events: looked up once, then carried down the virtual multicast tree (section 4.2).

A publisher hands the event to its broker in one hop; the broker looks it up and sets EDNV; from there each
node that holds it notifies its neighbours and divides the rest among next hops (`multicast.py`). Events with
designated destinations begin at the publisher itself. Any node can forward, broker or not: it only needs a
routing table, and current routes may lead through nodes that have just been dismissed.

Beyond the paper: a frame that the link layer gives up is sent again, `retries` times at growing intervals:
over the routes at that time, or by a neighbouring broker if the route still uses the broken link. A second
copy from the same node is not forwarded. A copy from another node has gone in a circle of outdated routes;
it waits until the routes may have been repaired.
"""

from functools import reduce
from operator import or_
from typing import NamedTuple

from roamcast.bounded import BoundedDict
from roamcast.event import Event, EventId
from roamcast.strategy.chapar.messages import Carry, Decline
from roamcast.strategy.chapar.notification.attachment import Attachment
from roamcast.strategy.chapar.notification.multicast import available, multimode, step
from roamcast.strategy.chapar.sealing import opened
from roamcast.strategy.chapar.state import State
from roamcast.strategy.chapar.tables.node_vector import NO_NODES, NodeVector, vector_of
from roamcast.strategy.overflow import traced
from roamcast.strategy.repetition import Backoff
from roamcast.trace import DropReason
from roamcast.units import NodeId, micros

TAKEN_MAX = 4_096  # events whose destinations are remembered; chosen by us


class Pending(NamedTuple):
    """A copy that waits for a route. With `destinations` of None it waits for a broker."""

    carry: Carry
    destinations: NodeVector | None
    sender: NodeId | None
    attempt: int


class TakenOn:
    """The destinations of one event that this node is responsible for, by the node they came from."""

    __slots__ = ("by_sender", "circles")

    def __init__(self) -> None:
        self.by_sender: dict[NodeId | None, NodeVector] = {}
        self.circles = 0


class NotificationCourier:
    def __init__(self, state: State, attachment: Attachment) -> None:
        self._state = state
        self._attachment = attachment
        self._taken: BoundedDict[EventId, TakenOn] = BoundedDict(
            TAKEN_MAX, traced(state.host, "event", "TAKEN_MAX")
        )
        self._pending: dict[int, Pending] = {}
        self._number = 0
        self._backoff = Backoff(micros(state.in_force.retry_delay), attempts=state.in_force.retries)

    # Inputs.

    def publish(self, event: Event, sealed: bytes = b"") -> None:
        carry = Carry(event, None, 0, sealed)
        if event.wants_subscribers:
            self._seek_broker(Pending(carry, None, None, 0))
        else:
            # Point to point and to multipoint: the root of the tree is the publisher.
            destinations = vector_of(self._state.addresses, event.destinations) & ~self._state.host_vector
            self._take(Pending(carry, destinations, None, 0))

    def on_carry(self, sender: NodeId, carry: Carry) -> None:
        state = self._state
        arrived = Carry(carry.event, None, min(carry.hops + 1, 255), carry.sealed)
        if carry.destinations is None:
            if not state.is_broker:
                state.send(sender, Decline())
            self._seek_broker(Pending(arrived, None, sender, 0))
            return
        known = [*state.underlay.known_nodes(), state.node]
        self._take(Pending(arrived, state.addresses.decode(carry.destinations, known), sender, 0))

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

        state.send(broker, pending.carry, own=self._is_own(pending), on_failure=failed)

    def _look_up(self, pending: Pending) -> None:
        """The lookup process at the publisher's broker: EDNV from SNV and ANV, equation (7) for multimode."""
        state, carry = self._state, pending.carry
        event = carry.event
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
        known = self._taken.pop(event, None)
        taken = self._taken[event] = known or TakenOn()
        elsewhere = reduce(or_, taken.by_sender.values(), NO_NODES)
        before = taken.by_sender.get(pending.sender, NO_NODES)
        fresh = (pending.destinations or NO_NODES) & ~before
        taken.by_sender[pending.sender] = before | fresh
        if fresh & state.host_vector & ~elsewhere:
            self._hand_over(pending.carry)
        elif known is None:
            self._serve_unnamed(pending.carry)
        fresh &= ~state.host_vector
        if fresh and pending.carry.hops >= state.options.hop_limit:
            state.drop_event(event, DropReason.EXPIRED, "event", "hop limit")
            return
        if fresh & ~elsewhere:
            self._divide(pending._replace(destinations=fresh & ~elsewhere))
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
        groups = {node: state.addresses.bit(node) for node in state.addresses.nodes(branches.notified)}
        for node, residual in [*groups.items(), *branches.groups.items()]:
            hop = self._detour(node, sender) if state.is_broken(node) else node
            if hop == sender or hop is None:
                # Two nodes whose routes disagree would send it to and fro. At the retry they may agree.
                self._try_again(pending._replace(destinations=residual), "no way on")
            else:
                self._pass(pending, hop, residual)
        if branches.stranded:
            self._try_again(pending._replace(destinations=branches.stranded), "no route")

    def _detour(self, around: NodeId, sender: NodeId | None) -> NodeId | None:
        """Another broker of the neighbourhood: it may have a route past a link that has just broken."""
        state = self._state
        brokers = (broker for broker in state.adjacent_brokers() if not state.is_broken(broker))
        return next((broker for broker in brokers if broker not in (around, sender)), None)

    def _pass(self, pending: Pending, to: NodeId, destinations: NodeVector) -> None:
        state, carry = self._state, pending.carry
        vector = state.addresses.encode(destinations)

        def failed() -> None:
            self._try_again(pending._replace(destinations=destinations), "the next hop is gone")

        state.send(
            to,
            Carry(carry.event, vector, carry.hops, carry.sealed),
            own=self._is_own(pending),
            on_failure=failed,
        )

    def _try_again(self, pending: Pending, problem: str) -> None:
        state, event = self._state, pending.carry.event.id
        if self._backoff.is_over(pending.attempt):
            state.drop_event(event, DropReason.NOT_IN_RANGE, "event", problem)
            return
        if len(self._pending) >= state.options.pending_max:
            state.drop_event(event, DropReason.QUEUE_FULL, "event", problem)
            return
        self._number += 1
        self._pending[self._number] = pending._replace(attempt=pending.attempt + 1)
        due = state.host.now() + self._backoff.wait(pending.attempt)
        state.host.set_timer(("retry", self._number), due)

    def _is_own(self, pending: Pending) -> bool:
        return pending.carry.event.publisher == self._state.node

    def _serve_unnamed(self, carry: Carry) -> None:
        """Beyond the paper: a relay that wants the event itself gets it although the vector does not name
        it, because the broker that looked it up did not know its subscription yet."""
        state = self._state
        event = opened(carry.event, carry.sealed, state.inbox.opener)
        if event is not None and event.publisher != state.node and state.broker.wants(event):
            state.broker.deliver(event, carry.hops)

    def _hand_over(self, carry: Carry) -> None:
        state = self._state
        event = opened(carry.event, carry.sealed, state.inbox.opener)
        if event is None or not state.broker.wants(event):
            state.drop_event(carry.event.id, DropReason.FALSE_POSITIVE, "event")
        else:
            state.broker.deliver(event, carry.hops)
