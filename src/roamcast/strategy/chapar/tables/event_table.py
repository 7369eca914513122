"""The memorized event table, MET (Chapar, section 4.1): events kept for their lifetime, and who has them.

The paper keeps USNV, the subscribers that still lack the event. Here an entry keeps `notified`, the nodes
known to have it, and USNV follows: SNV ∧ ¬notified. So a later subscription is included without further work,
and nothing has to be recalculated when the filter table changes.

Bounded by `entries_max`. When full, the event that would expire first makes room, and of two such the one
with the lower identifier: all brokers choose alike, so they agree on what stays. An event that was pushed
out stays *known* until it would have expired; otherwise the next consistency check would bring it back.
"""

import heapq

import msgspec

from roamcast.event import Event, EventId
from roamcast.kit.tables import BoundedDict, OnEvicted
from roamcast.strategy.chapar.messages import Memorized
from roamcast.strategy.chapar.notification.multicast import without
from roamcast.strategy.chapar.tables import digest_of
from roamcast.strategy.chapar.tables.node_vector import NO_NODES, NodeVector
from roamcast.units import Micros

KNOWN_MAX_FACTOR = 20  # pushed-out identifiers remembered per entry of `entries_max`; chosen by us


class Memo:
    """One memorized event as this node keeps it. `expires_at` is on this node's own clock."""

    __slots__ = ("event", "event_id", "expires_at", "hops", "id", "notified", "previous", "sealed")

    def __init__(
        self,
        event: Event,
        event_id: int,
        expires_at: Micros,
        hops: int = 0,
        previous: tuple[int, Micros] | None = None,
        sealed: bytes = b"",
    ) -> None:
        self.event = event
        self.id: EventId = event.id
        self.event_id = event_id
        self.expires_at = expires_at
        self.hops = hops
        self.previous = previous
        self.sealed = sealed
        self.notified: NodeVector = NO_NODES

    def unavailable(self, wanted: NodeVector) -> NodeVector:
        """USNV: of those who want it, the ones not known to have it."""
        return without(wanted, self.notified)

    def predecessor(self, now: Micros) -> EventId | None:
        """The event before it of the same publisher, if that one has not expired."""
        if self.previous is None or self.age(now) >= self.previous[1]:
            return None
        return EventId(self.event.publisher, self.previous[0])

    def age(self, now: Micros) -> Micros:
        return max(0, self.event.lifetime - (self.expires_at - now))

    def message(self, now: Micros) -> Memorized:
        return Memorized(self.event, self.hops, self.age(now), self.previous, self.sealed)


def encoded_size(event: Event) -> int:
    """Octets of an event, compared with `event_bytes_max`."""
    return len(_encoder.encode(event))


_encoder = msgspec.msgpack.Encoder()


class EventTable:
    def __init__(self, *, entries_max: int, on_forgotten: OnEvicted[EventId, Micros]) -> None:
        """`on_forgotten`: called with an event that is no longer even known and so may come again."""
        self._entries_max = entries_max
        self._entries: dict[EventId, Memo] = {}
        self._pushed_out: BoundedDict[EventId, Micros] = BoundedDict(
            KNOWN_MAX_FACTOR * entries_max, on_forgotten
        )
        self._by_expiry: list[tuple[Micros, EventId]] = []  # of all that is known
        self._kept_by_expiry: list[tuple[Micros, EventId]] = []  # of what is kept
        self._digest: bytes | None = None

    def keep(self, memo: Memo, now: Micros) -> list[Memo]:
        """Keep an event that is not known yet; returns what had to go to make room, maybe itself."""
        self.forget_expired(now)
        if memo.id in self or memo.expires_at <= now:
            return []
        self._entries[memo.id] = memo
        self._digest = None
        heapq.heappush(self._by_expiry, (memo.expires_at, memo.id))
        heapq.heappush(self._kept_by_expiry, (memo.expires_at, memo.id))
        if len(self._entries) <= self._entries_max:
            return []
        expires_at, first = heapq.heappop(self._kept_by_expiry)
        self._pushed_out[first] = expires_at
        return [self._entries.pop(first)]

    def forget_expired(self, now: Micros) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now:
            _, expired = heapq.heappop(self._by_expiry)
            self._entries.pop(expired, None)
            self._pushed_out.pop(expired, None)
            self._digest = None
        while self._kept_by_expiry and self._kept_by_expiry[0][0] <= now:
            heapq.heappop(self._kept_by_expiry)

    def clear(self) -> None:
        self._entries.clear()
        self._pushed_out.clear()
        self._by_expiry.clear()
        self._kept_by_expiry.clear()
        self._digest = None

    def forget_notified(self, node: NodeVector) -> None:
        """A node's place in vectors is free again."""
        for memo in self._entries.values():
            memo.notified &= ~node

    # Questions. Their answers are as of the last `forget_expired`.

    def entry(self, event: EventId) -> Memo | None:
        return self._entries.get(event)

    def entries(self) -> list[Memo]:
        """By publisher, and each publisher's in the order of publication."""
        return [self._entries[key] for key in sorted(self._entries)]

    def known(self) -> list[EventId]:
        """What is kept and what was pushed out, in order."""
        return sorted([*self._entries, *self._pushed_out])

    def missing(self, now: Micros) -> list[EventId]:
        """Events that must exist, because later ones name them, but that never came here."""
        named = {memo.predecessor(now) for memo in self._entries.values()}
        return sorted(key for key in named if key is not None and key not in self)

    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = digest_of(self.known())
        return self._digest

    def __contains__(self, event: EventId) -> bool:
        """Known: kept, or pushed out and not yet expired."""
        return event in self._entries or event in self._pushed_out

    def __len__(self) -> int:
        return len(self._entries)
