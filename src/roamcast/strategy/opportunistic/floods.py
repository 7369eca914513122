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
from roamcast.kit.protocol import Timers, random_below
from roamcast.strategy.opportunistic.copies import EventCopy, FloodBase
from roamcast.strategy.opportunistic.messages import HOPS_MAX, Flooded
from roamcast.strategy.opportunistic.shared import Part, Shared
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


class Floods(Part):
    def __init__(self, shared: Shared, on_copy: Callable[[NodeId, EventCopy, FloodBase], None]) -> None:
        """`on_copy` gets every flooded event that is new to this node, its own too, and who sent it."""
        super().__init__(shared)
        self._on_copy = on_copy
        self._pending: dict[EventId, PendingFlood] = {}  # to be passed on
        self._timers = Timers(self._host, self._pass_on)

    # Inputs.

    def send(self, copy: EventCopy, flood: FloodBase) -> None:
        if self._copies.add(copy, flood):
            self._broadcast(copy.event.id)
            self._on_copy(self._host.node, copy, flood)

    def on_flooded(self, sender: NodeId, key: EventId, frame: Flooded, *, is_asked: bool) -> None:
        """`key`: of the frame's event."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.heard += 1
            return
        if self._copies.is_known(key):
            return
        flood = FloodBase(frame.base, frame.direct)
        published_at = self._host.now() - frame.age
        copy = EventCopy(frame.event, frame.previous, frame.gap, frame.hops + 1, published_at)
        self._copies.add(copy, flood)
        if frame.hops + 1 < HOPS_MAX and len(self._pending) < PENDING_MAX and not is_asked:
            is_relay = self._underlay.is_relay(self._host.node)
            self._pending[key] = PendingFlood(HEARD_ENOUGH if is_relay else HEARD_ALONE)
            self._timers.after(key, random_below(self._host, JITTER) + (0 if is_relay else OTHERS_LATER))
        self._on_copy(sender, copy, flood)

    # Questions.

    def flooded(self, event: EventId) -> Flooded | None:
        """As it is sent now; None if it was given up."""
        copy, flood = self._copies.find(event), self._copies.flood(event)
        if copy is None or flood is None:
            return None
        age = copy.age(self._host.now())
        return Flooded(copy.event, copy.previous, copy.gap, flood.base, copy.hops, age, flood.direct)

    # Private.

    def _pass_on(self, event: EventId) -> None:
        pending = self._pending.pop(event)
        if pending.heard < pending.enough:
            self._broadcast(event)

    def _broadcast(self, event: EventId) -> None:
        flooded = self.flooded(event)
        if flooded is not None:
            self._messenger.send(flooded, own=event.publisher == self._host.node)
