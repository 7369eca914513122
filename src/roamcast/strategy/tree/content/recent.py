"""Events of the last seconds, kept for neighbours that missed them.

Each event is kept with the nodes in range that have it: one that sent it or named it in a digest certainly
has it (`had_by`), one for whom a frame with it was meant, ours or another's, probably has it (`told`). When a
link breaks, the second is cancelled for its other end.
"""

from roamcast.bounded import BoundedDict, OnEvicted
from roamcast.event import Event, EventId
from roamcast.units import Micros, NodeId


class RecentEvent:
    """An event at this node, and what is known about it."""

    __slots__ = ("again", "event", "had_by", "hops", "is_named", "is_waiting", "published_at", "told")

    def __init__(self, event: Event, hops: int, published_at: Micros, again: bool) -> None:
        self.event = event
        self.hops = hops  # links so far
        self.published_at = published_at  # on this node's clock, computed from the age
        self.again = again  # came by recovery: only for subscriptions that are older than the event
        self.had_by: set[NodeId] = set()
        self.told: set[NodeId] = set()
        self.is_named = False  # whether we are asked to send it on
        self.is_waiting = False  # for its turn to be sent on

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
        self._entries: BoundedDict[EventId, RecentEvent] = BoundedDict(events_max, on_evicted)

    def add(self, event: Event, hops: int, published_at: Micros, again: bool, now: Micros) -> RecentEvent:
        # An expired event stays while a younger one that arrived before it does; `standing` leaves it out.
        self._entries.forget_oldest(lambda entry: now - entry.published_at >= self._keep_for)
        entry = self._entries[event.id] = RecentEvent(event, hops, published_at, again)
        return entry

    def standing(self, now: Micros) -> list[RecentEvent]:
        """Those young enough, in order of arrival."""
        return [each for each in self._entries.values() if now - each.published_at < self._keep_for]

    def on_link_down(self, neighbour: NodeId) -> None:
        for entry in self._entries.values():
            entry.told.discard(neighbour)

    def find(self, event: EventId) -> RecentEvent | None:
        return self._entries.get(event)

    def __contains__(self, event: EventId) -> bool:
        return event in self._entries

    def __len__(self) -> int:
        return len(self._entries)
