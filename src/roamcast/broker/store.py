"""Memorized events, kept for their lifetime for absent and later subscribers.

Bounded by count and by octets. When full, the event that would expire first is pushed out: it has the least
remaining lifetime to lose. The caller traces what was pushed out. On a live node somebody was promised these
events, so only those are pushed out that nobody waits for any more (`settled`); if there is none, the store
refuses what is new. Full stores would then wait for each other for ever. So an event has a little more room
the more hops it has come over: the one with the most hops of all finds room everywhere and is settled in the
end, then the next (a structured buffer pool; Raubold and Haenle, "A method of deadlock-free resource
allocation and flow control in packet networks", 1976).

Chunks of large payloads (`chunks.py`) have room of their own, so that they push nothing else out; when
it is full, the publisher who has the most gives its oldest (`ChunkRoom`).

Of retained events (`retained.py`) the newest of each topic is kept; it replaces the one before.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from roamcast.broker.retained import Order, order_of, supersedes
from roamcast.broker.seen import event_fingerprint
from roamcast.chunks import MARK, is_chunk, readable
from roamcast.errors import RoamcastError
from roamcast.event import Event, EventId
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

ENTRIES_MAX = 10_000  # chosen by us, as are the next three
BYTES_MAX = 64 * 1024 * 1024
CHUNK_BYTES_MAX = 64 * 1024 * 1024  # of all chunks: three payloads of the largest size
PUBLISHER_CHUNK_BYTES_MAX = 40 * 1024 * 1024  # of one publisher's: two of them
REMAINS_MIN = 1_000  # fewer stale entries of the expiry queue are not worth clearing; chosen by us
OVERHEAD_BYTES = 500  # estimate, for one stored event beside its payload and attributes
# How long events are kept for a node or a client that is away: as a live node remembers silent neighbours.
ABSENT_WAIT: Micros = 600 * SECOND
# How a full store asks which events are settled; all chosen by us. To ask for 10,000 takes 50 ms, in which
# the node does nothing else, so they are asked for part by part.
ASKED_AT_ONCE = 256  # events, those that expire first
ASKED_MORE = 2_000  # of the others, where most of those are not settled
ASKED_EVERY: Micros = 100 * MILLISECOND  # for so many
# Before events go they are asked for once more, several in one call: this share of a full store goes at once.
AT_ONCE_SHARE = 256
# Room beyond the bounds for what came over hops, per hop: a share of them, but at least one event.
HOP_SHARE = 64
HOPS_MAX = 16  # more count as so many: a store has at most a quarter more than its bounds say


class StoreFullError(RoamcastError):
    """The store cannot take an event: the disk is full, or the store is, of events that others still lack."""


class StoredEvent:
    """One kept event. `expires_at` is on this node's own clock; `had_by`: neighbours that surely had it."""

    __slots__ = ("event", "expires_at", "had_by", "hops", "key", "size")

    def __init__(self, event: Event, expires_at: Micros, hops: int) -> None:
        self.event = event
        self.key = event.id
        self.expires_at = expires_at
        self.hops = hops
        self.had_by: tuple[NodeId, ...] = ()
        self.size = OVERHEAD_BYTES + len(event.payload)
        for name, value in event.attributes.items():
            self.size += len(name) + len(value) if isinstance(value, str) else 8


Settled: TypeAlias = Callable[[list[StoredEvent]], list[StoredEvent]]
"""Of these events, those that nobody waits for any more."""


class EventStore:
    def __init__(
        self,
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
        chunks: "ChunkRoom | None" = None,
        settled: Settled | None = None,
    ) -> None:
        """`settled` is asked before an event is pushed out; None: nobody is."""
        self.entries_max = entries_max
        self.bytes_max = bytes_max
        self.settled = settled
        self.loses = True  # whether somebody may still need what is pushed out
        self._entries: dict[EventId, StoredEvent] = {}
        self.fingerprint = 0  # the sum of those of all entries
        self._chunks = ChunkRoom() if chunks is None else chunks
        self._count = 0  # of all but chunks
        self._bytes = 0  # likewise
        self._count_by_hops = [0] * (HOPS_MAX + 1)
        self._bytes_by_hops = [0] * (HOPS_MAX + 1)
        self._by_expiry: list[tuple[Micros, EventId]] = []  # may hold events that are gone
        self._chunks_by_expiry: list[tuple[Micros, EventId]] = []  # the same, of chunks
        self._newest: dict[str, StoredEvent] = {}  # of retained events, by topic
        self._from_before: dict[str, Order] = {}  # the newest that stood when this node started, by topic
        # Settled ones, as by the last answer, by hops; those that expire last first.
        self._may_go: dict[int, list[tuple[Micros, EventId]]] = {}
        self._asked_at: Micros = -ASKED_EVERY  # for others than the first
        self._unasked: list[EventId] = []  # of the round in which all are asked for, part by part

    def keep(self, event: Event, expires_at: Micros, hops: int, now: Micros) -> list[Event]:
        """Keep an event that is not yet kept; returns what had to go to make room, maybe itself. What it
        supersedes is removed without being returned; what is superseded already is not kept."""
        self.forget_expired(now)
        if expires_at <= now or (key := event.id) in self._entries:
            return []
        is_newest = supersedes(event)
        before = self.superseded_by(event) if is_newest else None
        if is_newest and before is None and event.topic in self._newest:
            return []
        entry, of_chunk = StoredEvent(event, expires_at, hops), MARK in event.attributes  # `is_chunk`
        pushed_out: list[Event] = []
        if self.settled is not None and not of_chunk:
            self._make_room(entry, before, now, pushed_out)
            before = before if before in self._entries else None
        self._write(entry, before, now)
        if before is not None:
            self._remove_whole(before)
        if is_newest:
            self._newest[event.topic] = entry
        self._entries[key] = entry
        self.fingerprint += event_fingerprint(*key)
        if of_chunk:
            heapq.heappush(self._chunks_by_expiry, (expires_at, key))
            self._chunks.add(key, entry.size)
            pushed_out += [self._remove(chunk).event for chunk in self._chunks.excess()]
        else:
            heapq.heappush(self._by_expiry, (expires_at, key))
            self._account(entry, 1)
            if self.settled is None:
                self._excess(pushed_out)
        if len(self._by_expiry) + len(self._chunks_by_expiry) > 2 * len(self._entries) + REMAINS_MIN:
            self._clear_remains()
        return pushed_out

    def has_room(
        self, payload_bytes: int, now: Micros, before: EventId | None = None, *, hops: int = 0
    ) -> bool:
        """Whether an event with such a payload that came over so many hops would be kept, in the place of
        `before`."""
        if self.settled is None:
            return True
        tight = self._tight_at(OVERHEAD_BYTES + payload_bytes, before, hops)
        return tight is None or bool(self._first_settled(now, tight))

    @property
    def is_filling(self) -> bool:
        """Whether more than half of the room is taken."""
        return 2 * self._count > self.entries_max or 2 * self._bytes > self.bytes_max

    def standing(self, now: Micros) -> list[StoredEvent]:
        """The kept events that have not expired, oldest arrival first."""
        self.forget_expired(now)
        return list(self._entries.values())

    def find(self, event: EventId) -> StoredEvent | None:
        """One kept event; it may have expired."""
        return self._entries.get(event)

    def superseded_by(self, event: Event) -> EventId | None:
        """The event that is removed when this one is kept: the one before it of its topic."""
        before = self._newest.get(event.topic)
        if before is None or not supersedes(event) or order_of(before.event) >= order_of(event):
            return None
        return before.event.id

    def is_history(self, event: Event) -> bool:
        """Whether an event was superseded before this node started. Either it was here before, or it comes
        too late: only the newest survives a restart, so this node cannot tell which."""
        newest = self._from_before.get(event.topic) if self._from_before else None
        return newest is not None and supersedes(event) and order_of(event) < newest

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, event: EventId) -> bool:
        return event in self._entries

    def pushed_out_before(self, now: Micros) -> Iterable[tuple[EventId, Micros]]:
        """What earlier boots have had and pushed out, with the end of its lifetime."""
        return ()

    def _push_out(self, events: list[EventId], now: Micros) -> list[Event]:
        return [self._remove(event).event for event in events]

    def _write(self, entry: StoredEvent, before: EventId | None, now: Micros) -> None:
        """Overridden by stores that outlive their node; `StoreFullError` refuses the event."""

    def _make_room(
        self, entry: StoredEvent, before: EventId | None, now: Micros, pushed_out: list[Event]
    ) -> None:
        while (tight := self._tight_at(entry.size, before, entry.hops)) is not None:
            first = self._first_settled(now, tight)
            if not first:
                waited_for = f"others still wait for its {self._count} memorized events"
                raise StoreFullError(f"the store is full: {waited_for}")
            pushed_out += self._push_out(first, now)

    def _tight_at(self, size: int, before: EventId | None, hops: int) -> int | None:
        """None if an event of this size fits in, in the place of `before`. Else the number of hops for which
        there would be too much that came over so many hops or fewer: one of those must go."""
        if self._count < self.entries_max and self._bytes + size <= self.bytes_max:
            return None
        replaced = None if before is None or before in self._chunks else self._entries.get(before)
        entries, octets = 1, size
        for over, (count, sizes) in enumerate(zip(self._count_by_hops, self._bytes_by_hops, strict=True)):
            entries, octets = entries + count, octets + sizes
            if replaced is not None and over == min(replaced.hops, HOPS_MAX):
                entries, octets = entries - 1, octets - replaced.size
            if over >= min(hops, HOPS_MAX) and (
                entries > self.entries_max + over * max(1, self.entries_max // HOP_SHARE)
                or octets > self.bytes_max + over * max(size, self.bytes_max // HOP_SHARE)
            ):
                return over
        return None

    def _account(self, entry: StoredEvent, count: int) -> None:
        hops = min(entry.hops, HOPS_MAX)
        self._count += count
        self._bytes += count * entry.size
        self._count_by_hops[hops] += count
        self._bytes_by_hops[hops] += count * entry.size

    def _first_settled(self, now: Micros, over: int) -> list[EventId]:
        """The settled event that would expire first, of those that came over so many hops or fewer, and the
        next that came over as many."""
        while True:
            first: list[tuple[Micros, EventId]] = []
            for hops, queue in self._may_go.items():
                last = self._last_settled(queue) if hops <= over else []
                if last and (not first or last[-1] < first[-1]):
                    first = last
            if first or not self._find_settled(now, over):
                return [event for _, event in reversed(first)]

    def _last_settled(self, queue: list[tuple[Micros, EventId]]) -> list[tuple[Micros, EventId]]:
        """The end of a queue: those for which nobody waits since the last answer either."""
        assert self.settled is not None
        find, most = self._entries.get, max(1, self.entries_max // AT_ONCE_SHARE)
        while queue:
            asked = {entry: one for one in queue[-most:] if (entry := find(one[1])) is not None}
            del queue[-most:]
            settled = set(self.settled(list(asked)))
            for entry, one in asked.items():
                if entry in settled:
                    queue.append(one)
                else:
                    heapq.heappush(self._by_expiry, one)
            if settled:
                return queue[-len(settled) :]
        return []

    def _find_settled(self, now: Micros, over: int) -> bool:
        """Ask which events may go: of those that expire first, and if these are waited for, of the others, a
        part at a time. False if there is none that came over so many hops or fewer, as far as is known."""
        assert self.settled is not None
        if now - self._asked_at < ASKED_EVERY:
            return False
        for queue in self._may_go.values():
            while queue:
                heapq.heappush(self._by_expiry, queue.pop())
        asked: list[tuple[Micros, EventId]] = []
        while self._by_expiry and len(asked) < ASKED_AT_ONCE:
            first = heapq.heappop(self._by_expiry)
            if first[1] in self._entries:
                asked.append(first)
        settled = set(self.settled([self._entries[key] for _, key in asked]))
        for one in asked:
            if self._entries[one[1]] not in settled:
                heapq.heappush(self._by_expiry, one)
        if 2 * sum(min(one.hops, HOPS_MAX) <= over for one in settled) < len(asked):
            self._asked_at = now
            if not self._unasked:
                self._unasked = list(self._entries)
            part, self._unasked = self._unasked[-ASKED_MORE:], self._unasked[:-ASKED_MORE]
            found = [entry for key in part if (entry := self._entries.get(key)) is not None]
            settled.update(one for one in self.settled(found) if not is_chunk(one.event))
        entries = (((entry.expires_at, entry.key), entry.hops) for entry in settled)
        for one, hops in sorted(entries, reverse=True):
            self._may_go.setdefault(min(hops, HOPS_MAX), []).append(one)
        return any(queue and hops <= over for hops, queue in self._may_go.items())

    def forget_expired(self, now: Micros) -> None:
        for queue in (self._by_expiry, self._chunks_by_expiry):
            while queue and queue[0][0] <= now:
                self._forget_if_expired(heapq.heappop(queue)[1], now)
        for queue in self._may_go.values():
            while queue and queue[-1][0] <= now:
                self._forget_if_expired(queue.pop()[1], now)

    def _forget_if_expired(self, event: EventId, now: Micros) -> None:
        entry = self._entries.get(event)
        if entry is not None and entry.expires_at <= now:
            self._remove(event)

    def _excess(self, pushed_out: list[Event]) -> None:
        """Remove what has to go so that all but the chunks are within their bounds."""
        while self._count > self.entries_max or self._bytes > self.bytes_max:
            _, first = heapq.heappop(self._by_expiry)
            if first in self._entries:
                pushed_out.append(self._remove(first).event)

    def _clear_remains(self) -> None:
        """The queues of expiry hold what is gone; when that is most of them, they are made anew."""
        for queue, of_chunks in ((self._by_expiry, False), (self._chunks_by_expiry, True)):
            queue[:] = [
                (entry.expires_at, key)
                for key, entry in self._entries.items()
                if is_chunk(entry.event) is of_chunks
            ]
            heapq.heapify(queue)

    def _remove(self, event: EventId) -> StoredEvent:
        entry = self._entries.pop(event)
        self.fingerprint -= event_fingerprint(*event)
        if MARK in entry.event.attributes:  # `is_chunk`
            self._chunks.remove(event, entry.size)
        else:
            self._account(entry, -1)
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
