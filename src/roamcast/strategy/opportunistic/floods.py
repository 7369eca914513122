"""One frame that the relays pass on once: an event for a good part of the network.

A tree of routes to so many ends has as many branches as there are nodes. A flood has fewer frames, needs no
route, and who misses one frame hears another. Nobody confirms it; what a node lacks it finds out by itself
(`readers.py`, `gossip.py`).

Each node waits for a moment of its own before it passes a flood on. The underlay's relays do so unless they
have heard it often by then (the counter-based scheme of Ni, Tseng, Chen and Sheu, 1999); others, who wait
longer, only if they have heard it from one neighbour alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind
from roamcast.strategy.opportunistic.copies import Copies, EventCopy, FloodBase
from roamcast.strategy.opportunistic.messages import FRAMES, HOPS_MAX, Flooded
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, Micros, NodeId

JITTER: Micros = 15 * MILLISECOND
HEARD_ENOUGH = 3  # copies, the first included
HEARD_ALONE = 2
OTHERS_LATER: Micros = 40 * MILLISECOND
PENDING_MAX = 1_024


@dataclass(slots=True)
class PendingFlood:
    enough: int
    heard: int = 1


class Floods:
    """Timers are `("flood", publisher, sequence)`."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        copies: Copies,
        on_copy: Callable[[NodeId, EventCopy, FloodBase], None],
    ) -> None:
        """`on_copy` gets every flooded event that is new to this node, its own too, and who sent it."""
        self._host = host
        self._underlay = underlay
        self._copies = copies
        self._on_copy = on_copy
        self._pending: dict[EventId, PendingFlood] = {}  # to be passed on

    # Inputs.

    def send(self, copy: EventCopy, flood: FloodBase) -> None:
        if self._copies.add(copy, flood):
            self._broadcast(copy.event.id)
            self._on_copy(self._host.node, copy, flood)

    def hand(self, to: NodeId, event: EventId) -> None:
        """To a neighbour that asked for it."""
        frame = self._frame(event)
        if frame is not None:
            self._host.unicast(to, frame)

    def on_flooded(self, sender: NodeId, key: EventId, frame: Flooded, *, is_asked: bool) -> None:
        """`key`: of the frame's event."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.heard += 1
            return
        if self._copies.is_known(key):
            return
        now = self._host.now()
        flood = FloodBase(frame.base, frame.direct)
        copy = EventCopy(frame.event, frame.previous, frame.gap, frame.hops + 1, now - frame.age)
        self._copies.add(copy, flood)
        if frame.hops + 1 < HOPS_MAX and len(self._pending) < PENDING_MAX and not is_asked:
            is_relay = self._underlay.is_relay(self._host.node)
            self._pending[key] = PendingFlood(HEARD_ENOUGH if is_relay else HEARD_ALONE)
            delay = int(self._host.random.random() * JITTER) + (0 if is_relay else OTHERS_LATER)
            self._host.set_timer(("flood", *key), now + delay)
        self._on_copy(sender, copy, flood)

    def on_timer(self, event: EventId) -> None:
        pending = self._pending.pop(event)
        if pending.heard < pending.enough:
            self._broadcast(event)

    # Private.

    def _broadcast(self, event: EventId) -> None:
        frame = self._frame(event)
        if frame is not None:
            self._host.broadcast(frame)

    def _frame(self, event: EventId) -> Frame | None:
        copy, flood = self._copies.find(event), self._copies.flood(event)
        if copy is None or flood is None:
            return None  # given up meanwhile
        age = copy.age(self._host.now())
        flooded = Flooded(copy.event, copy.previous, copy.gap, flood.base, copy.hops, age, flood.direct)
        own = event.publisher == self._host.node
        return Frame(FRAMES.encode(flooded), Kind.DATA, "flooded", event, own)
