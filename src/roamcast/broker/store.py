"""Memorized events, kept for their lifetime for absent and later subscribers.

Bounded by count and by octets. When full, the event that would expire first is pushed out: it has
the least remaining lifetime to lose. The caller traces what was pushed out.

Of retained events (`retained.py`) the newest of each topic is kept; it replaces the one before.
"""

import heapq

from roamcast.broker.retained import Order, order_of, supersedes
from roamcast.errors import RoamcastError
from roamcast.event import Event, EventId
from roamcast.units import Micros

ENTRIES_MAX = 10_000  # chosen by us, as is the next
BYTES_MAX = 64 * 1024 * 1024
REMAINS_MIN = 1_000  # fewer stale entries of the expiry queue are not worth clearing; chosen by us
OVERHEAD_BYTES = 500  # estimate, for one stored event beside its payload and attributes


class StoreFullError(RoamcastError):
    """The store cannot take an event, whatever it pushes out: a full disk, not a full table."""


class StoredEvent:
    """One kept event. `expires_at` is on this node's own clock."""

    __slots__ = ("event", "expires_at", "hops", "size")

    def __init__(self, event: Event, expires_at: Micros, hops: int) -> None:
        self.event = event
        self.expires_at = expires_at
        self.hops = hops
        attributes = sum(len(k) + len(v) if isinstance(v, str) else 8 for k, v in event.attributes.items())
        self.size = OVERHEAD_BYTES + len(event.payload) + attributes


class EventStore:
    def __init__(self, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: dict[EventId, StoredEvent] = {}
        self._bytes = 0
        self._by_expiry: list[tuple[Micros, EventId]] = []  # may hold events that are gone
        self._newest: dict[str, StoredEvent] = {}  # of retained events, by topic
        self._from_before: dict[str, Order] = {}  # the newest that stood when this node started, by topic

    def keep(self, event: Event, expires_at: Micros, hops: int, now: Micros) -> list[Event]:
        """Keep an event that is not yet kept; returns what had to go to make room, maybe itself. What it
        supersedes is removed without being returned; what is superseded already is not kept."""
        self._forget_expired(now)
        if expires_at <= now or not self._is_wanted(event):
            return []
        before = self.superseded_by(event)
        if before is not None:
            self._remove(before)
        entry = StoredEvent(event, expires_at, hops)
        if supersedes(event):
            self._newest[event.topic] = entry
        self._entries[event.id] = entry
        self._bytes += entry.size
        heapq.heappush(self._by_expiry, (expires_at, event.id))
        pushed_out: list[Event] = []
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            _, first = heapq.heappop(self._by_expiry)
            if first in self._entries:
                pushed_out.append(self._remove(first).event)
        if len(self._by_expiry) > 2 * len(self._entries) + REMAINS_MIN:
            self._by_expiry = [(entry.expires_at, key) for key, entry in self._entries.items()]
            heapq.heapify(self._by_expiry)
        return pushed_out

    def standing(self, now: Micros) -> list[StoredEvent]:
        """What is kept and has not expired, oldest arrival first."""
        self._forget_expired(now)
        return list(self._entries.values())

    def find(self, event: EventId) -> StoredEvent | None:
        """One kept event; it may have expired."""
        return self._entries.get(event)

    def superseded_by(self, event: Event) -> EventId | None:
        """The event that is removed when this one is kept: the one before it of its topic."""
        before = self._newest.get(event.topic) if supersedes(event) else None
        if before is None or order_of(before.event) >= order_of(event):
            return None
        return before.event.id

    def is_history(self, event: Event) -> bool:
        """Whether an event was superseded before this node started. It was here before, or comes too late;
        only the newest survives a restart, so the two cannot be told apart."""
        newest = self._from_before.get(event.topic)
        return newest is not None and supersedes(event) and order_of(event) < newest

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, event: EventId) -> bool:
        return event in self._entries

    def _forget_expired(self, now: Micros) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now:
            expired = self._entries.get(heapq.heappop(self._by_expiry)[1])
            if expired is not None and expired.expires_at <= now:
                self._remove(expired.event.id)

    def _is_wanted(self, event: Event) -> bool:
        """False for what is kept already, and for what is superseded already."""
        if event.id in self._entries:
            return False
        newest = self._newest.get(event.topic) if supersedes(event) else None
        return newest is None or order_of(newest.event) < order_of(event)

    def _remove(self, event: EventId) -> StoredEvent:
        entry = self._entries.pop(event)
        self._bytes -= entry.size
        if self._newest.get(entry.event.topic) is entry:
            del self._newest[entry.event.topic]
        return entry
