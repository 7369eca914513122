"""Memorized events, kept for their lifetime for absent and later subscribers.

Bounded by count and by octets. When full, the event that would expire first is pushed out: it has
the least remaining lifetime to lose. The caller traces what was pushed out.

Chunks of large payloads (`roamcast/chunks/`) have room of their own, so that they push nothing else out; when
it is full, the publisher who has the most gives its oldest (`ChunkRoom`).

Of retained events (`retained.py`) the newest of each topic is kept; it replaces the one before.
"""

import heapq
from collections.abc import Iterator

from roamcast.broker.retained import Order, order_of, supersedes
from roamcast.chunks.form import is_chunk, readable
from roamcast.errors import RoamcastError
from roamcast.event import Event, EventId
from roamcast.units import Micros, NodeId

ENTRIES_MAX = 10_000  # chosen by us, as are the next three
BYTES_MAX = 64 * 1024 * 1024
CHUNK_BYTES_MAX = 64 * 1024 * 1024  # of all chunks: three payloads of the largest size
PUBLISHER_CHUNK_BYTES_MAX = 40 * 1024 * 1024  # of one publisher's: two of them
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
    def __init__(
        self,
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
        chunks: "ChunkRoom | None" = None,
    ) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: dict[EventId, StoredEvent] = {}
        self._chunks = ChunkRoom() if chunks is None else chunks
        self._bytes = 0  # of all but chunks
        self._by_expiry: list[tuple[Micros, EventId]] = []  # may hold events that are gone
        self._chunks_by_expiry: list[tuple[Micros, EventId]] = []  # the same, of chunks
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
            self._remove_whole(before)
        entry = StoredEvent(event, expires_at, hops)
        if supersedes(event):
            self._newest[event.topic] = entry
        self._entries[event.id] = entry
        if is_chunk(event):
            heapq.heappush(self._chunks_by_expiry, (expires_at, event.id))
            self._chunks.add(event.id, entry.size)
            pushed_out = [self._remove(chunk).event for chunk in self._chunks.excess()]
        else:
            heapq.heappush(self._by_expiry, (expires_at, event.id))
            self._bytes += entry.size
            pushed_out = self._make_room()
        self._clear_remains()
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
        for queue in (self._by_expiry, self._chunks_by_expiry):
            while queue and queue[0][0] <= now:
                expired = self._entries.get(heapq.heappop(queue)[1])
                if expired is not None and expired.expires_at <= now:
                    self._remove(expired.event.id)

    def _make_room(self) -> list[Event]:
        """What has to go so that all but the chunks are within their bounds."""
        pushed_out: list[Event] = []
        while len(self._entries) - len(self._chunks) > self._entries_max or self._bytes > self._bytes_max:
            _, first = heapq.heappop(self._by_expiry)
            if first in self._entries:
                pushed_out.append(self._remove(first).event)
        return pushed_out

    def _clear_remains(self) -> None:
        """The queues of expiry hold what is gone; when that is most of them, they are made anew."""
        if len(self._by_expiry) + len(self._chunks_by_expiry) <= 2 * len(self._entries) + REMAINS_MIN:
            return
        for queue, of_chunks in ((self._by_expiry, False), (self._chunks_by_expiry, True)):
            queue[:] = [
                (entry.expires_at, key)
                for key, entry in self._entries.items()
                if (key in self._chunks) is of_chunks
            ]
            heapq.heapify(queue)

    def _is_wanted(self, event: Event) -> bool:
        """False for what is kept already, and for what is superseded already."""
        if event.id in self._entries:
            return False
        newest = self._newest.get(event.topic) if supersedes(event) else None
        return newest is None or order_of(newest.event) < order_of(event)

    def _remove(self, event: EventId) -> StoredEvent:
        entry = self._entries.pop(event)
        if event in self._chunks:
            self._chunks.remove(event, entry.size)
        else:
            self._bytes -= entry.size
        if self._newest.get(entry.event.topic) is entry:
            del self._newest[entry.event.topic]
        return entry

    def _remove_whole(self, event: EventId) -> None:
        """An event that was superseded; with the last chunk of a payload the others go too."""
        chunk = readable(self._remove(event).event)
        if chunk is not None:
            publisher, first = chunk.whole
            for sequence in range(first, event.sequence):
                if EventId(publisher, sequence) in self._chunks:
                    self._remove(EventId(publisher, sequence))


class ChunkRoom:
    """Which chunks are kept, by publisher in the order of arrival, and which must go."""

    def __init__(
        self, bytes_max: int = CHUNK_BYTES_MAX, publisher_bytes_max: int = PUBLISHER_CHUNK_BYTES_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._publisher_bytes_max = publisher_bytes_max
        self._kept: dict[NodeId, dict[EventId, None]] = {}
        self._bytes: dict[NodeId, int] = {}
        self._total = 0
        self._count = 0

    def add(self, chunk: EventId, size: int) -> None:
        self._kept.setdefault(chunk.publisher, {})[chunk] = None
        self._bytes[chunk.publisher] = self._bytes.get(chunk.publisher, 0) + size
        self._total += size
        self._count += 1

    def remove(self, chunk: EventId, size: int) -> None:
        publisher = chunk.publisher
        del self._kept[publisher][chunk]
        self._bytes[publisher] -= size
        self._total -= size
        self._count -= 1
        if not self._kept[publisher]:
            del self._kept[publisher], self._bytes[publisher]

    def excess(self) -> Iterator[EventId]:
        """One chunk after the other that is too many; each is removed before the next is asked for."""
        while self._count:
            # Ties go to the lowest number, so that equal stores stay equal.
            most = max(sorted(self._bytes), key=self._bytes.__getitem__)
            if self._total <= self._bytes_max and self._bytes[most] <= self._publisher_bytes_max:
                return
            yield next(iter(self._kept[most]))

    def __contains__(self, event: EventId) -> bool:
        return event in self._kept.get(event.publisher, ())

    def __len__(self) -> int:
        return self._count
