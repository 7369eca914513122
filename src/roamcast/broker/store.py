"""Memorized events, kept for their lifetime for absent and later subscribers.

Bounded by count and by octets. When full, the event that would expire first is pushed out: it has
the least remaining lifetime to lose. The caller traces what was pushed out. On a live node somebody was
promised these events, so only those are pushed out that nobody waits for any more (`settled`); if there is
none, the store refuses what is new.

Of retained events (`retained.py`) the newest of each topic is kept; it replaces the one before.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from roamcast.broker.retained import Order, order_of, supersedes
from roamcast.errors import RoamcastError
from roamcast.event import Event, EventId
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

ENTRIES_MAX = 10_000  # chosen by us, as is the next
BYTES_MAX = 64 * 1024 * 1024
REMAINS_MIN = 1_000  # fewer stale entries of the expiry queue are not worth clearing; chosen by us
OVERHEAD_BYTES = 500  # estimate, for one stored event beside its payload and attributes
# How long events are kept for a node or a client that is away: as a live node remembers silent neighbours.
ABSENT_WAIT: Micros = 600 * SECOND
ASKED_EVERY: Micros = 100 * MILLISECOND  # how often a full store asks which events are settled; chosen by us


class StoreFullError(RoamcastError):
    """The store cannot take an event: the disk is full, or the store is, of events that others still lack."""


class StoredEvent:
    """One kept event. `expires_at` is on this node's own clock; `had_by`: neighbours that surely had it."""

    __slots__ = ("event", "expires_at", "had_by", "hops", "size")

    def __init__(self, event: Event, expires_at: Micros, hops: int) -> None:
        self.event = event
        self.expires_at = expires_at
        self.hops = hops
        self.had_by: tuple[NodeId, ...] = ()
        attributes = sum(len(k) + len(v) if isinstance(v, str) else 8 for k, v in event.attributes.items())
        self.size = OVERHEAD_BYTES + len(event.payload) + attributes


Settled: TypeAlias = Callable[[Iterable[StoredEvent]], Iterator[StoredEvent]]
"""Of these events, those that nobody waits for any more."""


class EventStore:
    def __init__(self, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self.settled: Settled | None = None  # None: nobody is asked before an event is pushed out
        self.loses = True  # whether somebody may still need what is pushed out
        self._entries: dict[EventId, StoredEvent] = {}
        self._bytes = 0
        self._by_expiry: list[tuple[Micros, EventId]] = []  # may hold events that are gone
        self._newest: dict[str, StoredEvent] = {}  # of retained events, by topic
        self._from_before: dict[str, Order] = {}  # the newest that stood when this node started, by topic
        self._may_go: list[tuple[Micros, EventId]] = []  # settled ones, as by the last answer
        self._asked_at: Micros = -ASKED_EVERY

    def keep(self, event: Event, expires_at: Micros, hops: int, now: Micros) -> list[Event]:
        """Keep an event that is not yet kept; returns what had to go to make room, maybe itself. What it
        supersedes is removed without being returned; what is superseded already is not kept."""
        self._forget_expired(now)
        if expires_at <= now or not self._is_wanted(event):
            return []
        before = self.superseded_by(event)
        entry = StoredEvent(event, expires_at, hops)
        pushed_out = [] if self.settled is None else self._make_room(entry.size, before, now)
        self._write(entry, before, now)
        if before is not None:
            self._remove(before)
        if supersedes(event):
            self._newest[event.topic] = entry
        self._entries[event.id] = entry
        self._bytes += entry.size
        heapq.heappush(self._by_expiry, (expires_at, event.id))
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            _, first = heapq.heappop(self._by_expiry)
            if first in self._entries:
                pushed_out.append(self._remove(first).event)
        if len(self._by_expiry) > 2 * len(self._entries) + REMAINS_MIN:
            self._by_expiry = [(entry.expires_at, key) for key, entry in self._entries.items()]
            heapq.heapify(self._by_expiry)
        return pushed_out

    def has_room(self, payload_bytes: int, now: Micros, before: EventId | None = None) -> bool:
        """Whether an event with such a payload would be kept, in the place of `before`."""
        return (
            self.settled is None
            or self._fits(OVERHEAD_BYTES + payload_bytes, before)
            or self._first_settled(now) is not None
        )

    @property
    def is_filling(self) -> bool:
        """Whether more than half of the room is taken."""
        return 2 * len(self._entries) > self._entries_max or 2 * self._bytes > self._bytes_max

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

    def _write(self, entry: StoredEvent, before: EventId | None, now: Micros) -> None:
        """For stores that outlive their node: `StoreFullError` refuses the event."""

    def _make_room(self, size: int, before: EventId | None, now: Micros) -> list[Event]:
        pushed_out: list[Event] = []
        while not self._fits(size, before):
            first = self._first_settled(now)
            if first is None:
                count = len(self._entries)
                raise StoreFullError(f"the store is full: others still wait for its {count} memorized events")
            pushed_out.append(self._remove(first).event)
        return pushed_out

    def _fits(self, size: int, before: EventId | None) -> bool:
        entries, octets = len(self._entries) + 1, self._bytes + size
        if before is not None:
            entries, octets = entries - 1, octets - self._entries[before].size
        return entries <= self._entries_max and octets <= self._bytes_max

    def _first_settled(self, now: Micros) -> EventId | None:
        """The settled event that would expire first."""
        assert self.settled is not None
        for ask in (False, True):
            if ask:
                if now - self._asked_at < ASKED_EVERY:
                    return None
                self._asked_at = now
                self._may_go = [
                    (one.expires_at, one.event.id) for one in self.settled(self._entries.values())
                ]
                heapq.heapify(self._may_go)
            while self._may_go:
                if self._may_go[0][1] in self._entries:
                    return self._may_go[0][1]
                heapq.heappop(self._may_go)
        return None

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
