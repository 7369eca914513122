"""Events of the last seconds, kept for neighbours that missed them.

Each event is kept with the nodes in range that have it: one that sent it or named it in a digest certainly
has it (`had_by`), one for whom a frame with it was meant, ours or another's, probably has it (`told`). When a
link breaks, the second is cancelled for its other end.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from roamcast.event import Event, EventId
from roamcast.kit.tables import OnEvicted
from roamcast.units import Micros, NodeId


class RecentEvent(msgspec.Struct, eq=False, gc=False):
    """An event at this node, and what is known about it. A struct, and without garbage collection, because
    every event makes one at every node."""

    id: EventId
    event: Event
    hops: int  # links so far
    published_at: Micros  # on this node's clock, computed from the age
    again: bool  # came by recovery: only for subscriptions that are older than the event
    had_by: set[NodeId] = set()
    told: set[NodeId] = set()
    is_named: bool = False  # whether we are asked to send it on
    is_waiting: bool = False  # for its turn to be sent on

    def reached(self, neighbour: NodeId) -> bool:
        return neighbour in self.had_by or neighbour in self.told


class RecentEvents:
    """Bounded in count and in time since publication; in order of arrival.

    The time counts from publication, not from arrival. Otherwise an event that is recovered repeatedly could
    outlive its entries in the duplicate filters of other nodes.
    """

    def __init__(
        self, *, events_max: int, keep_for: Micros, on_evicted: OnEvicted[EventId, RecentEvent]
    ) -> None:
        self._keep_for = keep_for
        self._events_max = events_max
        self._on_evicted = on_evicted
        # Not a `BoundedDict`: an entry takes 1.0 µs there, and 0.14 µs here.
        self._entries: dict[EventId, RecentEvent] = {}
        self._order: deque[RecentEvent] = deque()
        self.find: Callable[[EventId], RecentEvent | None] = self._entries.get

    def add(self, event: RecentEvent, now: Micros) -> None:
        # An expired event stays while a younger one that arrived before it does; `standing` leaves it out.
        order, entries = self._order, self._entries
        while order and now - order[0].published_at >= self._keep_for:
            del entries[order.popleft().id]
        if len(order) >= self._events_max:
            evicted = order.popleft()
            del entries[evicted.id]
            self._on_evicted(evicted.id, evicted)
        order.append(event)
        entries[event.id] = event

    def standing(self, now: Micros) -> list[RecentEvent]:
        """Those young enough, in order of arrival."""
        return [each for each in self._order if now - each.published_at < self._keep_for]

    def on_link_down(self, neighbour: NodeId) -> None:
        for entry in self._order:
            entry.told.discard(neighbour)

    def __contains__(self, event: EventId) -> bool:
        return event in self._entries

    def __len__(self) -> int:
        return len(self._entries)
