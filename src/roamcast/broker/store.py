"""Memorized events, kept for their lifetime for absent and later subscribers.

Bounded by count and by octets. When full, the event that would expire first makes room: it is the one
whose loss costs the least waiting time. The caller traces what was pushed out.
"""

import heapq

from roamcast.errors import RoamcastError
from roamcast.event import Event, EventId
from roamcast.units import Micros

ENTRIES_MAX = 10_000
BYTES_MAX = 64 * 1024 * 1024
OVERHEAD_BYTES = 500  # of one stored event beside its payload and attributes, roughly


class StoreFullError(RoamcastError):
    """A store that cannot take an event although it made no room for it: a full disk, not a full table."""


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
        self._by_expiry: list[tuple[Micros, EventId]] = []

    def keep(self, event: Event, expires_at: Micros, hops: int, now: Micros) -> list[Event]:
        """Keep an event that is not yet kept; returns what had to go to make room, maybe itself."""
        self._forget_expired(now)
        if event.id in self._entries or expires_at <= now:
            return []
        entry = StoredEvent(event, expires_at, hops)
        self._entries[event.id] = entry
        self._bytes += entry.size
        heapq.heappush(self._by_expiry, (expires_at, event.id))
        pushed_out: list[Event] = []
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            _, first = heapq.heappop(self._by_expiry)
            pushed_out.append(self._remove(first).event)
        return pushed_out

    def standing(self, now: Micros) -> list[StoredEvent]:
        """What is kept and has not expired, oldest arrival first."""
        self._forget_expired(now)
        return list(self._entries.values())

    def find(self, event: EventId) -> StoredEvent | None:
        """One kept event; it may have expired."""
        return self._entries.get(event)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, event: EventId) -> bool:
        return event in self._entries

    def _forget_expired(self, now: Micros) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now:
            self._remove(heapq.heappop(self._by_expiry)[1])

    def _remove(self, event: EventId) -> StoredEvent:
        entry = self._entries.pop(event)
        self._bytes -= entry.size
        return entry
